"""Reads the bodies of requests by kio's schemas, in one pass over untrusted bytes.

kio's own reader is not used: it allocates memory for a length before it checks the rest of the request
(`tests/serve/protocol/kio-report.md`), fails on unknown tagged fields, which KIP-482 says to skip, and accepts null
where a schema does not. A check before it would read each request twice, and the two could disagree.

Primitives are read by `offsetlake.serve.protocol.wire.Cursor`; only the assembly of entities by a schema is here,
because OffsetCommit and OffsetFetch are read by that cursor directly, without a schema. The schemas of requests are not
recursive, so the nesting is bounded by the schema. Entities and arrays are read by generators that yield between
elements, so that a large request is read in turns.
"""

import dataclasses
import uuid
from collections import namedtuple
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin

from offsetlake.serve.protocol.wire import Cursor, Malformed
from offsetlake.serve.steps import Steps

ELEMENTS_PER_STEP = 16
_ELEMENT_BYTES = 200  # approximate memory of one element after it was read

Read = Callable[[Cursor], Any]
ReadInSteps = Callable[[Cursor], Steps[Any]]


class _Type(NamedTuple):
    """The function that reads a value, and the minimum size of the value; `read` returns `Steps` if `in_steps`."""

    read: Read | ReadInSteps
    min_bytes: int
    in_steps: bool = False


@cache
def entity_reader(schema: Any) -> ReadInSteps:
    """Return the function that reads an entity of a kio schema in steps, as a named tuple of its fields.

    The values are those that kio's reader returns, except that bytes of strings that are not valid UTF-8 are replaced
    by U+FFFD, as on a broker. The function raises Malformed, IndexError or struct.error if the bytes are malformed.
    """
    return _entity(schema).read


@cache
def _entity(schema: Any) -> _Type:
    flexible = bool(schema.__flexible__)
    fields = dataclasses.fields(schema)
    plain = [field for field in fields if "tag" not in field.metadata]
    tagged = [field for field in fields if "tag" in field.metadata]
    kind: Any = namedtuple(schema.__name__, [field.name for field in plain + tagged])  # type: ignore[misc]
    make = kind._make
    types = [_field(field, flexible=flexible) for field in plain]
    min_bytes = max(1, sum(type_.min_bytes for type_ in types) + flexible)
    known = {field.metadata["tag"]: number for number, field in enumerate(tagged)}
    tagged_types = [_field(field, flexible=True) for field in tagged]
    defaults = [field.default for field in tagged]

    def read_entity(cursor: Cursor) -> Steps[Any]:
        values: list[Any] = []
        for read, _, in_steps in types:
            values.append((yield from read(cursor)) if in_steps else read(cursor))
        if not known:
            if flexible:
                cursor.tags()
            return make(values)
        tagged_values = defaults.copy()
        for _ in range(cursor.tag_count()):
            number = known.get(cursor.varint())
            size = cursor.varint()
            if number is None:
                cursor.raw(size)
            else:
                read, _, in_steps = tagged_types[number]
                tagged_values[number] = (yield from read(cursor)) if in_steps else read(cursor)
        return make(values + tagged_values)

    return _Type(read_entity, min_bytes, in_steps=True)


def _field(field: "dataclasses.Field[Any]", *, flexible: bool) -> _Type:
    annotation, nullable = _without_none(field.type)
    kind = field.metadata.get("kafka_type")
    if get_origin(annotation) is tuple:
        return _array(get_args(annotation)[0], kind, nullable=nullable, flexible=flexible)
    if kind is None:
        return _nullable_entity(_entity(annotation)) if nullable else _entity(annotation)
    return _value(kind, nullable=nullable, flexible=flexible)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """Return a type without its alternative None, and whether it had this alternative."""
    types = [type_ for type_ in get_args(annotation) if type_ is not NoneType]
    nullable = get_origin(annotation) is not tuple and len(types) < len(get_args(annotation))
    return (types[0] if nullable else annotation), nullable


def _array(element: Any, kind: str | None, *, nullable: bool, flexible: bool) -> _Type:
    read, element_bytes, in_steps = (
        _entity(element) if kind is None else _value(kind, nullable=False, flexible=flexible)
    )

    def read_array(cursor: Cursor) -> Steps[tuple[Any, ...] | None]:
        length = cursor.nullable_length(element_bytes) if nullable else cursor.length(element_bytes)
        if length < 0:
            return None
        values: list[Any] = []
        for number in range(1, length + 1):
            values.append((yield from read(cursor)) if in_steps else read(cursor))
            if number % ELEMENTS_PER_STEP == 0:
                yield ELEMENTS_PER_STEP * _ELEMENT_BYTES
        return tuple(values)

    return _Type(read_array, 1 if flexible else 4, in_steps=True)


def _nullable_entity(entity: _Type) -> _Type:
    def read_nullable(cursor: Cursor) -> Steps[Any]:
        return None if cursor.int8() < 0 else (yield from entity.read(cursor))

    return _Type(read_nullable, 1, in_steps=True)


def _value(kind: str, *, nullable: bool, flexible: bool) -> _Type:
    if kind == "string":
        return _Type(_nullable_text if nullable else _text, 1 if flexible else 2)
    if kind in {"bytes", "records"}:
        return _Type(Cursor.nullable_bytes if nullable else _bytes, 1 if flexible else 4)
    return _FIXED[kind]


def _text(cursor: Cursor) -> str:
    return cursor.name().decode()


def _nullable_text(cursor: Cursor) -> str | None:
    text = cursor.string()
    return None if text is None else text.decode()


def _bytes(cursor: Cursor) -> bytes:
    data = cursor.nullable_bytes()
    if data is None:
        raise Malformed("a bytes field that is not nullable is null")
    return data


def _uuid(cursor: Cursor) -> uuid.UUID | None:
    """Return a UUID, or None for the zero UUID, as kio does."""
    data = cursor.raw(16)
    return uuid.UUID(bytes=data) if any(data) else None


_FIXED = {
    "bool": _Type(Cursor.bool_, 1),
    "int8": _Type(Cursor.int8, 1),
    "int16": _Type(Cursor.int16, 2),
    "uint16": _Type(lambda cursor: cursor.int16() & 0xFFFF, 2),
    "error_code": _Type(Cursor.int16, 2),
    "int32": _Type(Cursor.int32, 4),
    "int64": _Type(Cursor.int64, 8),
    "timedelta_i32": _Type(lambda cursor: timedelta(milliseconds=cursor.int32()), 4),
    "uuid": _Type(_uuid, 16),
}
"""The types of fixed width by Kafka type, as far as requests and small responses of a cluster use them."""
