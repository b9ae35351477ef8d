"""Requests as bytes with the positions of their lengths, so that one length at a time can be invalidated."""

import dataclasses
import struct
from collections.abc import Iterator
from datetime import timedelta
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin

from kio.index import load_request_schema
from kio.static.primitive import i16

_INTEGERS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q"}
_FLEXIBLE_HEADER = 2
_PAST_THE_END = 1 << 20


class Length(NamedTuple):
    """The length of a string, of bytes or of an array: bytes `start` to `stop` of a request.

    `path` names the field, `end` is the position after its contents. `layout` is a format of struct, or None for an
    unsigned varint.
    """

    path: str
    start: int
    stop: int
    end: int
    is_text: bool
    layout: str | None


class Layout:
    """A request, without its size."""

    def __init__(self, api: int, version: int, entity: Any) -> None:
        self.data = bytearray(struct.pack(">hhihs", api, version, 7, 1, b"c"))
        self.lengths: list[Length] = []
        self.tags: list[int] = []
        """The positions of the numbers of tagged fields, which are all zero."""
        schema: Any = load_request_schema(i16(api), i16(version))
        self._flexible = bool(schema.__flexible__)
        if schema.__header_schema__.__version__ == _FLEXIBLE_HEADER:
            self._tags()
        self._entity(entity, "")

    def _entity(self, entity: Any, path: str) -> None:
        for field in dataclasses.fields(entity):
            if "tag" not in field.metadata:
                types = get_args(field.type)
                nullable_entity = NoneType in types and tuple not in {get_origin(type_) for type_ in types}
                value, kind = getattr(entity, field.name), field.metadata.get("kafka_type")
                if kind is None and nullable_entity:
                    self.data += b"\xff" if value is None else b"\1"
                if kind is not None or value is not None or not nullable_entity:
                    self._value(value, kind, f"{path}.{field.name}")
        if self._flexible:
            self._tags()

    def _tags(self) -> None:
        self.tags.append(len(self.data))
        self.data += b"\0"

    def _value(self, value: Any, kind: str | None, path: str) -> None:
        if isinstance(value, tuple):
            number = self._length(path, len(value), ">i")
            for element in value:
                self._value(element, kind, f"{path}[]")
            self.lengths[number] = self.lengths[number]._replace(end=len(self.data))
        elif kind == "string":
            self._content(path, None if value is None else value.encode(), ">h")
        elif kind in {"bytes", "records"} or (value is None and kind is None):
            self._content(path, value, ">i")
        elif kind is None:
            self._entity(value, path)
        elif kind == "bool":
            self.data.append(value)
        elif kind == "uuid":
            self.data += bytes(16) if value is None else value.bytes
        else:
            number = value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value
            self.data += struct.pack(_INTEGERS[kind.replace("timedelta_i", "int")], number)

    def _content(self, path: str, content: bytes | None, layout: str) -> None:
        number = self._length(path, -1 if content is None else len(content), layout)
        self.data += content or b""
        self.lengths[number] = self.lengths[number]._replace(end=len(self.data), is_text=layout == ">h")

    def _length(self, path: str, length: int, layout: str) -> int:
        """Append a length; return its index in `lengths`."""
        start = len(self.data)
        self.data += _varint(length + 1) if self._flexible else struct.pack(layout, length)
        stop = len(self.data)
        self.lengths.append(Length(path, start, stop, stop, False, None if self._flexible else layout))
        return len(self.lengths) - 1

    def mutations(self) -> Iterator[tuple[str, bytes]]:
        """Yield descriptions of errors and requests with them: one invalid length or tag at a time."""
        for length in self.lengths:
            for name, value in (("null", -1), ("-2", -2)):
                yield f"{length.path} {name}", self._with(length, value, self.data[length.end :])
            for name, value in (("too long", _PAST_THE_END), ("longest", 2**31 - 1)):
                yield f"{length.path} {name}", self._with(length, value, self.data[length.stop :])
            if length.is_text and length.end > length.stop:
                yield f"{length.path} empty", self._with(length, 0, self.data[length.end :])
                wrong = b"\xff" * (length.end - length.stop)
                yield f"{length.path} not UTF-8", self._with(length, len(wrong), wrong + self.data[length.end :])
        for number, position in enumerate(self.tags):
            for name, written in (
                ("unknown tag", b"\1\x7e\2ab"),
                ("tag past the end", b"\1\x7e\xff\xff\3"),
                ("2 ** 31 - 1 tags", b"\xff\xff\xff\xff\7"),
                ("a varint of 6 bytes", b"\xff\xff\xff\xff\xff\1"),
            ):
                yield f"tags {number}: {name}", bytes(self.data[:position] + written + self.data[position + 1 :])
        for stop in (8, 10, len(self.data) // 2, len(self.data) - 1):
            yield f"cut at {stop}", bytes(self.data[:stop])

    def _with(self, length: Length, value: int, rest: bytes) -> bytes:
        """Return the request with another value of a length, followed by `rest`."""
        if length.layout is None:
            written = _varint((value + 1) & 0xFFFF_FFFF)
        else:
            written = struct.pack(length.layout, min(value, 0x7FFF) if length.layout == ">h" else value)
        return bytes(self.data[: length.start]) + written + bytes(rest)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
