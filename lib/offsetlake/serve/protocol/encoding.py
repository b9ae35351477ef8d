"""Encodes responses by kio's schemas, in steps: the elements of arrays can be computed while they are encoded."""

import dataclasses
import struct
from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple, get_args, get_origin

from kio.static.constants import uuid_zero

from offsetlake.kafka.records.writers import unsigned_varint

_CHUNK_PARTS = 512  # parts of a response that are joined, because many small parts take more memory
_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_NUMBERS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q", "error_code": ">h"}
_MILLISECOND = timedelta(milliseconds=1)
_MILLISECONDS = {"timedelta_i32": ">i", "timedelta_i64": ">q"}
_ZERO: dict[str, Any] = {"timedelta_i32": timedelta(0), "error_code": 0, "uuid": uuid_zero}
"""The value by Kafka type of a field that has no default and that a response does not set."""

Values = Mapping[str, Any]
Encode = Callable[[Any], bytes]


class Lazy(NamedTuple):
    """An array of `size` elements, which are computed when they are encoded."""

    size: int
    elements: Iterable[Values]


class Encoded(NamedTuple):
    """An array of `size` elements, which are already encoded; a piece contains any number of them."""

    size: int
    pieces: Iterable[bytes]


class Response:
    """Encodes a response in steps; `chunks` contains what was encoded so far.

    `failed` is called with each `error_code` that is not NONE.
    """

    def __init__(self, failed: Callable[[int], None]) -> None:
        self.chunks: list[bytes] = []
        self._parts: list[bytes] = []
        self._failed = failed

    def encode(self, schema: Any, values: Values) -> Generator[int, None, None]:
        """Encode an entity; yield after each element of an array the number of bytes that were joined since."""
        tags: dict[int, bytes] = {}
        for field in _fields(schema):
            name, default, encode, nested, _, _, is_error, tag = field
            value = values.get(name, default)
            if tag is not None:
                if name in values and value != default:
                    tags[tag] = b"".join(self._tagged(field, value))
            elif nested is None:
                if value and is_error:
                    self._failed(int(value))
                self._parts.append(encode(value))
            else:
                yield from self._nested(field, value)
        if schema.__flexible__:
            self._parts.append(unsigned_varint(len(tags)) if tags else b"\0")
            for tag in sorted(tags):
                self._parts += (unsigned_varint(tag), unsigned_varint(len(tags[tag])), tags[tag])

    def end(self) -> list[bytes]:
        """Return the chunks of the whole response."""
        self._join()
        return self.chunks

    def _join(self) -> int:
        chunk = b"".join(self._parts)
        self._parts.clear()
        self.chunks.append(chunk)
        return len(chunk)

    def _nested(self, field: "_Field", value: Any) -> Generator[int, None, None]:
        """Encode an array of entities, or one entity."""
        if field.is_array:
            yield from self._array(field, value)
        elif value is None:
            self._parts.append(b"\xff")
        else:
            if field.is_nullable:
                self._parts.append(b"\1")
            yield from self.encode(field.nested, value)

    def _array(self, field: "_Field", value: Any) -> Generator[int, None, None]:
        elements: Iterable[Any] = ()
        count = -1
        if value is not None:
            count, elements = value if isinstance(value, Lazy | Encoded) else (len(value), value)
        self._parts.append(field.encode(count))
        if isinstance(value, Encoded):
            for piece in elements:
                self._parts.append(piece)
                yield self._join()
            return
        for element in elements:
            yield from self.encode(field.nested, element)
            yield self._join() if len(self._parts) >= _CHUNK_PARTS else 0

    def _tagged(self, field: "_Field", value: Any) -> list[bytes]:
        if field.nested is None:
            return [field.encode(value)]
        inner = Response(self._failed)
        for _ in inner._array(field, value) if field.is_array else inner.encode(field.nested, value):
            pass
        return inner.end()


def encoded(schema: Any, values: Values, failed: Callable[[int], None] = lambda _: None) -> bytes:
    """Return a small entity as bytes."""
    response = Response(failed)
    for _ in response.encode(schema, values):
        pass
    return b"".join(response.end())


def element_schema(schema: Any, *names: str) -> Any:
    """Return the schema of the elements of an array, which is found by following the names of fields."""
    for name in names:
        schema = next(field.nested for field in _fields(schema) if field.name == name)
    return schema


class _Field(NamedTuple):
    """A field of a schema; `encode` encodes its value, or the number of elements of an array of entities."""

    name: str
    default: Any
    encode: Encode
    nested: Any
    is_array: bool
    is_nullable: bool
    is_error: bool
    tag: int | None


@cache
def _fields(schema: Any) -> list[_Field]:
    fields = []
    for field in dataclasses.fields(schema):
        kind = field.metadata.get("kafka_type", "")
        default = field.default if field.default is not dataclasses.MISSING else _ZERO.get(kind, field.default)
        types = _component_types(field.type)
        is_array = any(get_origin(type_) is tuple for type_ in (field.type, *get_args(field.type)))
        nested = next((type_ for type_ in types if dataclasses.is_dataclass(type_)), None)
        flexible = schema.__flexible__
        if is_array and nested is not None:
            encode = _count(flexible=flexible)
        elif nested is not None:
            encode = _raise_not_primitive
        elif is_array:
            encode = _array_of(_primitive(kind, flexible=flexible), _count(flexible=flexible))
        else:
            encode = _primitive(kind, flexible=flexible)
        is_nullable = type(None) in types
        is_error = field.name == "error_code"
        fields.append(
            _Field(field.name, default, encode, nested, is_array, is_nullable, is_error, field.metadata.get("tag"))
        )
    return fields


def _component_types(annotation: Any) -> list[Any]:
    """Return the types of which an annotation is composed."""
    arguments = get_args(annotation)
    return [type_ for argument in arguments for type_ in _component_types(argument)] if arguments else [annotation]


def _raise_not_primitive(value: Any) -> bytes:
    raise TypeError(f"An entity cannot be encoded as a primitive: {type(value).__name__}")


def _primitive(kind: str, *, flexible: bool) -> Encode:
    """Return the function that encodes values of a Kafka type."""
    if kind in _NUMBERS:
        return struct.Struct(_NUMBERS[kind]).pack
    if kind in _MILLISECONDS:
        pack = struct.Struct(_MILLISECONDS[kind]).pack
        return lambda value: pack(round(value / _MILLISECOND))
    others: dict[str, Encode] = {
        "bool": lambda value: b"\1" if value else b"\0",
        "uuid": lambda value: (value or uuid_zero).bytes,
        "datetime_i64": lambda value: _INT64.pack(-1 if value is None else value),
        "string": _sized(_count(flexible=True) if flexible else _INT16.pack, str.encode),
        "bytes": _sized(_count(flexible=flexible), bytes),
        "records": _sized(_count(flexible=flexible), bytes),
    }
    return others[kind]


def _sized(size: Encode, convert: Callable[[Any], bytes]) -> Encode:
    """Return the function that encodes values after their sizes; null has the size -1."""

    def encode(value: Any) -> bytes:
        if value is None:
            return size(-1)
        data = convert(value)
        return size(len(data)) + data

    return encode


def _array_of(encode: Encode, count: Encode) -> Encode:
    return lambda values: count(-1) if values is None else count(len(values)) + b"".join(map(encode, values))


def _count(*, flexible: bool) -> Encode:
    return (lambda number: unsigned_varint(number + 1)) if flexible else _INT32.pack
