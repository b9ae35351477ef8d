"""Requests and answers by kio's schemas: one plain mapping an answer, of which each version takes the fields it has."""

import dataclasses
import io
import struct
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, get_args

from kio.index import UnknownAPIKey, UnknownEntity, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from offsetlake.serve import wire
from offsetlake.serve.request_limits import REQUEST_LIMITS
from offsetlake.serve.request_reader import entity_reader

_TAGS = b"\0"
_ZERO: dict[str, Any] = {"timedelta_i32": timedelta(0), "error_code": ErrorCode.none}
"""By Kafka type, what a field without a default gets when an answer does not name it."""

Values = Mapping[str, Any]


def read(frame: bytes, header: wire.Header) -> Any:
    """Return the body of a request, with the fields of its version as attributes.

    Bytes after it are ignored, as by a broker: librdkafka sends Metadata with some. Raise Malformed if the bytes are
    not such a request.
    """
    try:
        schema: Any = load_request_schema(header.api, header.version)
    except (UnknownAPIKey, UnknownEntity) as error:
        raise wire.Malformed(f"api {header.api} of version {header.version}") from error
    limit = REQUEST_LIMITS[header.api].max_elements
    cursor = wire.Cursor(frame, header.body, flexible=schema.__flexible__, max_elements=limit)
    try:
        cursor.tags()
        return entity_reader(schema)(cursor)
    except (IndexError, struct.error) as error:
        raise wire.Malformed("a request that ends before its last field") from error


def write(api: int, version: int, values: Values) -> bytes:
    """Write an answer, from behind its correlation id on. Fields its version does not have are left out."""
    schema: Any = load_response_schema(api, version)
    out = io.BytesIO()
    if schema.__header_schema__.__flexible__:
        out.write(_TAGS)
    write_entity(out, schema, values)
    return out.getvalue()


def write_entity(out: io.BytesIO, schema: Any, values: Values) -> None:
    """Write an entity of a schema, filled with the values that it has fields for."""
    entity_writer(schema)(out, filled(schema, values))


def filled(schema: Any, values: Values) -> Any:
    """Make an entity of the values it has fields for; others keep their defaults."""
    arguments = {}
    for name, convert, default in _fields(schema):
        if name in values:
            arguments[name] = convert(values[name])
        elif default is not dataclasses.MISSING:
            arguments[name] = default
    return schema(**arguments)


Convert = Callable[[Any], Any]


@cache
def _fields(schema: Any) -> list[tuple[str, Convert, Any]]:
    """Give of each field its name, what makes its value, and what it is where nothing is said."""
    found = []
    for field in dataclasses.fields(schema):
        kind = field.metadata.get("kafka_type", "")
        default = field.default if field.default is not dataclasses.MISSING else _ZERO.get(kind, field.default)
        found.append((field.name, _conversion(field.type, kind), default))
    return found


def _conversion(annotated: Any, kind: str) -> Convert:
    if kind == "error_code":
        return ErrorCode
    nested = next((of for of in _named_in(annotated) if dataclasses.is_dataclass(of)), None)
    if nested is None:
        return tuple if kind != "bytes" and tuple in _origins(annotated) else _as_it_is
    if tuple in _origins(annotated):
        return lambda values: None if values is None else tuple(filled(nested, of) for of in values)
    return lambda values: None if values is None else filled(nested, values)


def _as_it_is(value: Any) -> Any:
    return value


def _named_in(annotated: Any) -> list[Any]:
    """Give the types an annotation is made of."""
    parts = get_args(annotated)
    return [of for part in parts for of in _named_in(part)] if parts else [annotated]


def _origins(annotated: Any) -> set[Any]:
    return {getattr(part, "__origin__", part) for part in (annotated, *get_args(annotated))}
