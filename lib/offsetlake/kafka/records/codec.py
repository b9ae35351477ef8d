"""Decodes messages into dicts and encodes them, by their schemas; each version of a schema is compiled once.

A message is a dict with the schema's field names: integers are int, `string` is str, `bytes` is bytes, `uuid` is text
(`offsetlake.kafka.uuid`), structs are dicts, arrays are lists and null is None. Fields that a version does not have are
absent, and so are tagged fields equal to their default, which is how Kafka writes and prints them.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from offsetlake.errors import UndecodableRecord
from offsetlake.kafka.records import readers, writers
from offsetlake.kafka.records.readers import INTEGERS, Reader, Tagged
from offsetlake.kafka.records.schema import Field, Schema
from offsetlake.kafka.records.writers import FieldWriter, Writer


def decode(schema: Schema, version: int, buffer: bytes, offset: int = 0) -> tuple[dict[str, Any], int]:
    """Return the message at byte `offset` of a buffer, and the position after it.

    Raises:
        UndecodableRecord: The version is unknown or the bytes are malformed; the error names the field and the byte.
    """
    value, end = _compiled_reader(schema, version)(buffer, offset)
    return value, end


def encode(schema: Schema, version: int, value: Mapping[str, Any]) -> bytes:
    """Return the bytes of a message; like Kafka, drop fields that the version does not have.

    Raises:
        ValueError: The schema has no such version, or the version cannot represent the value.
    """
    out = bytearray()
    try:
        _compiled_writer(schema, version)(out, value)
    except ValueError as error:
        raise ValueError(f"{schema.name} version {version} cannot be encoded: {error}") from error
    return bytes(out)


@cache
def _compiled_reader(schema: Schema, version: int) -> Reader:
    if not schema.valid.has(version):
        raise UndecodableRecord(f"{schema.name} version {version} is unknown: expected {schema.valid}")
    return _struct_reader(schema.fields, version, schema.name, compact=schema.flexible.has(version))


def _struct_reader(fields: tuple[Field, ...], version: int, where: str, *, compact: bool) -> Reader:
    steps, tagged = [], {}
    for field in fields:
        if field.versions.has(version):
            read = _field_reader(field, version, f"{where}.{field.name}", compact=compact)
            if field.tagged.has(version):
                tagged[field.tag] = Tagged(field.name, read, field.default)
            else:
                steps.append((field.name, read))
    return readers.struct_(steps, tagged if compact else None, where)


def _field_reader(field: Field, version: int, where: str, *, compact: bool) -> Reader:
    nullable = field.nullable.has(version)
    if not field.is_array:
        return _element_reader(field, version, where, nullable=nullable, compact=compact)
    if field.type in INTEGERS:
        return readers.integer_array(field.type, where, nullable=nullable, compact=compact)
    element = _element_reader(field, version, where, nullable=False, compact=compact)
    return readers.array(element, where, nullable=nullable, compact=compact)


def _element_reader(field: Field, version: int, where: str, *, nullable: bool, compact: bool) -> Reader:
    if field.fields is not None:
        read = _struct_reader(field.fields, version, where, compact=compact)
        if not nullable:
            return read
        return (readers.nullable_tagged_struct if field.tagged.has(version) else readers.nullable_struct)(read, where)
    match field.type:
        case "string":
            return readers.string(where, nullable=nullable, compact=compact)
        case "bytes":
            return readers.bytes_(where, nullable=nullable, compact=compact)
        case "uuid":
            return readers.uuid(where)
        case type_:
            return readers.integer(type_, where)


@cache
def _compiled_writer(schema: Schema, version: int) -> Writer:
    if not schema.valid.has(version):
        raise ValueError(f"expected version {schema.valid}")
    return _struct_writer(schema.fields, version, compact=schema.flexible.has(version))


def _struct_writer(fields: tuple[Field, ...], version: int, *, compact: bool) -> Writer:
    steps = [
        FieldWriter(
            field.name,
            _field_writer(field, version, compact=compact),
            field.tag if field.tagged.has(version) else None,
            field.required,
            field.default,
        )
        for field in fields
        if field.versions.has(version)
    ]
    return writers.struct_(steps, flexible=compact)


def _field_writer(field: Field, version: int, *, compact: bool) -> Writer:
    nullable = field.nullable.has(version)
    if not field.is_array:
        return _element_writer(field, version, nullable=nullable, compact=compact)
    if field.type in INTEGERS:
        return writers.integer_array(field.type, nullable=nullable, compact=compact)
    element = _element_writer(field, version, nullable=False, compact=compact)
    return writers.array(element, nullable=nullable, compact=compact)


def _element_writer(field: Field, version: int, *, nullable: bool, compact: bool) -> Writer:
    if field.fields is not None:
        write = _struct_writer(field.fields, version, compact=compact)
        if not nullable:
            return write
        return writers.nullable_struct(write, null=b"\x00" if field.tagged.has(version) else b"\xff")
    match field.type:
        case "string":
            return writers.string(nullable=nullable, compact=compact)
        case "bytes":
            return writers.bytes_(nullable=nullable, compact=compact)
        case "uuid":
            return writers.uuid
        case type_:
            return writers.integer(type_)
