"""Writes Kafka's primitive types for the records of a log, one value at a time.

A writer is created once for each field; it appends a value to a bytearray and raises ValueError if the type cannot
represent the value.
"""

import base64
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from offsetlake.kafka.records.readers import INTEGERS, MAX_STRING
from offsetlake.kafka.uuid import uuid_bytes

_INT16 = struct.Struct(">h")
_NO_TAGGED_FIELDS = b"\0"

Writer = Callable[[bytearray, Any], None]


class FieldWriter(NamedTuple):
    """Describes how to write a field of a struct; `tag` is None if the field is not tagged."""

    name: str
    write: Writer
    tag: int | None
    required: bool
    default: Any


def integer(type_: str) -> Writer:
    """Return a writer of a big-endian integer of fixed width."""
    layout = struct.Struct(f">{INTEGERS[type_]}")

    def write(out: bytearray, value: Any) -> None:
        try:
            out += layout.pack(value)
        except struct.error:
            raise ValueError(f"{value!r} is not an {type_}") from None

    return write


def uuid(out: bytearray, value: Any) -> None:
    """Write a UUID, given as text."""
    out += uuid_bytes(value)


def string(*, nullable: bool, compact: bool) -> Writer:
    """Return a writer of UTF-8 after its length, which is an int16 or compact."""
    write_length = _length("int16", nullable=nullable, compact=compact)

    def write(out: bytearray, value: Any) -> None:
        data = None if value is None else value.encode()
        if data is not None and len(data) > MAX_STRING:
            raise ValueError(f"the string has {len(data)} bytes, but the maximum is {MAX_STRING}")
        write_length(out, data)
        out += data or b""

    return write


def bytes_(*, nullable: bool, compact: bool) -> Writer:
    """Return a writer of bytes, or of base64 text as in Kafka's JSON, after their length: an int32 or compact."""
    write_length = _length("int32", nullable=nullable, compact=compact)

    def write(out: bytearray, value: Any) -> None:
        if isinstance(value, str):
            value = base64.b64decode(value)
        write_length(out, value)
        out += value or b""

    return write


def array(write_element: Writer, *, nullable: bool, compact: bool) -> Writer:
    """Return a writer of elements after their count, which is an int32 or compact."""
    write_count = _length("int32", nullable=nullable, compact=compact)

    def write(out: bytearray, value: Any) -> None:
        write_count(out, value)
        for element in value or ():
            write_element(out, element)

    return write


def integer_array(type_: str, *, nullable: bool, compact: bool) -> Writer:
    """Return a writer of big-endian integers after their count, which is an int32 or compact."""
    write_count = _length("int32", nullable=nullable, compact=compact)

    def write(out: bytearray, value: Any) -> None:
        write_count(out, value)
        try:
            out += struct.pack(f">{len(value or ())}{INTEGERS[type_]}", *(value or ()))
        except struct.error:
            raise ValueError(f"{value!r} are not all of type {type_}") from None

    return write


def struct_(steps: Sequence[FieldWriter], *, flexible: bool) -> Writer:
    """Return a writer of fields in order and, in a flexible version, tagged fields that differ from their default."""
    plain = [step for step in steps if step.tag is None]
    tagged = sorted((step for step in steps if step.tag is not None), key=lambda step: step.tag or 0)

    required = [step.name for step in plain if step.required]

    def write(out: bytearray, value: Any) -> None:
        for name in required:
            if name not in value:
                raise ValueError(f"{name} is required")
        try:
            for name, write_field, _, _, default in plain:
                write_field(out, value.get(name, default))
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{name}: {error}") from error
        if not flexible:
            return
        if not tagged:
            out += _NO_TAGGED_FIELDS
            return
        present = [step for step in tagged if value.get(step.name, step.default) != step.default]
        out += unsigned_varint(len(present))
        for step in present:
            data = bytearray()
            _named(step, data, value[step.name])
            out += unsigned_varint(step.tag or 0)
            out += unsigned_varint(len(data))
            out += data

    return write


def nullable_struct(write_struct: Writer, *, null: bytes) -> Writer:
    """Return a writer of the byte 1 and a struct; null is only the byte `null`, which is -1, or 0 in a tagged field."""

    def write(out: bytearray, value: Any) -> None:
        out += null if value is None else b"\x01"
        if value is not None:
            write_struct(out, value)

    return write


def _named(step: FieldWriter, out: bytearray, value: Any) -> None:
    try:
        step.write(out, value)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{step.name}: {error}") from error


def _length(type_: str, *, nullable: bool, compact: bool) -> Writer:
    write_integer = integer(type_)

    def write(out: bytearray, value: Any) -> None:
        if value is None and not nullable:
            raise ValueError("the field is not nullable")
        length = -1 if value is None else len(value)
        if compact:
            out += unsigned_varint(length + 1)
        else:
            write_integer(out, length)

    return write


def unsigned_varint(number: int) -> bytes:
    """Return an unsigned varint, such as the length of a string in a flexible version."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encoded_string(text: str) -> bytes:
    """Return a string as record keys contain it: UTF-8 after its length, an int16.

    Raises:
        ValueError: The string is too long.
    """
    data = text.encode()
    if len(data) > MAX_STRING:
        raise ValueError(f"the name has {len(data)} bytes, but the maximum is {MAX_STRING}")
    return _INT16.pack(len(data)) + data
