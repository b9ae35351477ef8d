"""Reads Kafka's primitive encodings: every reader is made once for a field and says that field's name when it fails.

A reader takes (buffer, position) and gives (value, position after it); it raises UndecodableRecord, nothing else.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from offsetlake.errors import UndecodableRecord
from offsetlake.kafka.uuid import uuid_text

Reader = Callable[[bytes, int], tuple[Any, int]]

INTEGERS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}
MAX_STRING = 2**15 - 1
MAX_INT32 = 2**31 - 1


class Tagged(NamedTuple):
    """How to read one tagged field; a value equal to the default counts as absent."""

    name: str
    read: Reader
    default: Any


def integer(type_: str, where: str) -> Reader:
    """Big-endian, of fixed width."""
    layout = struct.Struct(f">{INTEGERS[type_]}")
    unpack_from, size = layout.unpack_from, layout.size

    def read(buffer: bytes, at: int) -> tuple[int, int]:
        try:
            return unpack_from(buffer, at)[0], at + size
        except struct.error:
            raise _cut_off(where, at) from None

    return read


def uuid(where: str) -> Reader:
    """16 bytes, as the 22 characters Kafka prints."""

    def read(buffer: bytes, at: int) -> tuple[str, int]:
        end = at + 16
        if end > len(buffer):
            raise _cut_off(where, at)
        return _uuid_text(buffer[at:end]), end

    return read


_uuid_text = lru_cache(maxsize=4096)(uuid_text)  # the records of a log contain few different topic IDs


def string(where: str, *, nullable: bool, compact: bool) -> Reader:
    """UTF-8 behind its length: an int16, or compact."""
    read_length = _length("int16", where, nullable=nullable, compact=compact)

    def read(buffer: bytes, at: int) -> tuple[str | None, int]:
        length, start = read_length(buffer, at)
        if length < 0:
            return None, start
        end = start + length
        if end > len(buffer):
            raise _cut_off(where, at)
        if length > MAX_STRING:
            raise UndecodableRecord(f"{where} at byte {at} is {length} bytes long; a string has {MAX_STRING} at most")
        try:
            return buffer[start:end].decode(), end
        except UnicodeDecodeError:
            raise UndecodableRecord(f"{where} at byte {at} is not UTF-8") from None

    return read


def bytes_(where: str, *, nullable: bool, compact: bool) -> Reader:
    """Bytes behind their length: an int32, or compact."""
    read_length = _length("int32", where, nullable=nullable, compact=compact)

    def read(buffer: bytes, at: int) -> tuple[bytes | None, int]:
        length, start = read_length(buffer, at)
        if length < 0:
            return None, start
        end = start + length
        if end > len(buffer):
            raise _cut_off(where, at)
        return buffer[start:end], end

    return read


def array(read_element: Reader, where: str, *, nullable: bool, compact: bool) -> Reader:
    """Elements behind their count: an int32, or compact. Every element takes a byte at least."""
    read_count = _length("int32", where, nullable=nullable, compact=compact)

    def read(buffer: bytes, at: int) -> tuple[list[Any] | None, int]:
        count, position = read_count(buffer, at)
        if count < 0:
            return None, position
        _refuse_absurd(where, at, count, len(buffer) - position)
        values = []
        for _ in range(count):
            value, position = read_element(buffer, position)
            values.append(value)
        return values, position

    return read


def integer_array(type_: str, where: str, *, nullable: bool, compact: bool) -> Reader:
    """Do what `array` of `integer` does, in one step."""
    read_count = _length("int32", where, nullable=nullable, compact=compact)
    code = INTEGERS[type_]
    size = struct.calcsize(f">{code}")

    def read(buffer: bytes, at: int) -> tuple[list[int] | None, int]:
        count, start = read_count(buffer, at)
        if count < 0:
            return None, start
        _refuse_absurd(where, at, count * size, len(buffer) - start)
        return list(struct.unpack_from(f">{count}{code}", buffer, start)), start + count * size

    return read


def struct_(steps: Sequence[tuple[str, Reader]], tagged: dict[int, Tagged] | None, where: str) -> Reader:
    """Fields in order, then the tag buffer of a flexible version; `tagged` is None if it is not flexible."""

    def read(buffer: bytes, at: int) -> tuple[dict[str, Any], int]:
        value = {}
        for name, read_field in steps:
            value[name], at = read_field(buffer, at)
        if tagged is None:
            return value, at
        if buffer[at : at + 1] == b"\0":
            return value, at + 1
        return value, _tag_buffer(value, tagged, where, buffer, at)

    return read


def nullable_struct(read_struct: Reader, where: str) -> Reader:
    """Read an int8 and a struct; the int8 is below 0 where the struct is null."""
    read_marker = integer("int8", where)

    def read(buffer: bytes, at: int) -> tuple[dict[str, Any] | None, int]:
        marker, at = read_marker(buffer, at)
        return (None, at) if marker < 0 else read_struct(buffer, at)

    return read


def nullable_tagged_struct(read_struct: Reader, where: str) -> Reader:
    """Read an unsigned varint and a struct; the varint is 0 where the struct is null. So only as a tagged field."""

    def read(buffer: bytes, at: int) -> tuple[dict[str, Any] | None, int]:
        marker, at = _unsigned_varint(buffer, at, where)
        return read_struct(buffer, at) if marker else (None, at)

    return read


def _tag_buffer(value: dict[str, Any], tagged: dict[int, Tagged], where: str, buffer: bytes, at: int) -> int:
    """Add the tagged fields that are not at their default to `value`; unknown ones are passed over."""
    count, at = _unsigned_varint(buffer, at, where)
    for _ in range(count):
        tag, at = _unsigned_varint(buffer, at, where)
        size, at = _unsigned_varint(buffer, at, where)
        end = at + size
        if end > len(buffer):
            raise _cut_off(f"{where}, tag {tag}", at)
        if tag in tagged:
            name, read, default = tagged[tag]
            found, read_to = read(buffer, at)
            if read_to != end:
                raise UndecodableRecord(f"{where}.{name} at byte {at} takes {read_to - at} bytes, its tag says {size}")
            if found != default:
                value[name] = found
        at = end
    return at


def _length(type_: str, where: str, *, nullable: bool, compact: bool) -> Callable[[bytes, int], tuple[int, int]]:
    """Read a length or count; -1 is null, and given only where null is allowed."""
    read_integer = integer(type_, where)

    def read(buffer: bytes, at: int) -> tuple[int, int]:
        length, end = read_integer(buffer, at)
        return (length, end) if length >= 0 else (_null(length, at), end)

    def read_compact(buffer: bytes, at: int) -> tuple[int, int]:
        if at < len(buffer) and 0 < buffer[at] < 0x80:
            return buffer[at] - 1, at + 1
        length, end = _unsigned_varint(buffer, at, where)
        return (length - 1, end) if length else (_null(-1, at), end)

    def _null(length: int, at: int) -> int:
        if length < -1:
            raise UndecodableRecord(f"{where} at byte {at} has the length {length}")
        if not nullable:
            raise UndecodableRecord(f"{where} at byte {at} is null, which it cannot be")
        return length

    return read_compact if compact else read


def _unsigned_varint(buffer: bytes, at: int, where: str) -> tuple[int, int]:
    result = 0
    for position, byte in enumerate(buffer[at : at + 5]):
        result |= (byte & 0x7F) << (7 * position)
        if result > MAX_INT32:
            break
        if byte < 0x80:
            return result, at + position + 1
    else:
        if at + 5 > len(buffer):
            raise _cut_off(where, at)
    raise UndecodableRecord(f"{where} at byte {at} has a length, count or tag above {MAX_INT32}")


def _refuse_absurd(where: str, at: int, needed: int, left: int) -> None:
    if needed > left:
        raise UndecodableRecord(
            f"{where} at byte {at} is cut off: its elements take {needed} bytes or more, {left} are left"
        )


def _cut_off(where: str, at: int) -> UndecodableRecord:
    return UndecodableRecord(f"{where} at byte {at} is cut off")
