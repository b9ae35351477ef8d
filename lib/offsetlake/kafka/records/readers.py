"""Reads Kafka's primitive types for the records of a log, one value at a time.

A reader is created once for each field; it takes a buffer and a position, returns a value and the position after it,
and raises only UndecodableRecord, which names the field. Offset commits are read by compiled loops into columns
(`batches.kernels`), and requests by cursors that reject a malformed request as a whole (`serve.protocol.wire`): those
read untrusted input on the path of every request and need no field names.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from offsetlake.errors import UndecodableRecord
from offsetlake.kafka.uuid import uuid_text

Reader = Callable[[bytes, int], tuple[Any, int]]

INTEGERS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}
MAX_STRING = 2**15 - 1  # bytes
MAX_INT32 = 2**31 - 1


class Tagged(NamedTuple):
    """Describes how to read a tagged field; a value equal to the default counts as absent."""

    name: str
    read: Reader
    default: Any


def integer(type_: str, where: str) -> Reader:
    """Return a reader of a big-endian integer of fixed width."""
    layout = struct.Struct(f">{INTEGERS[type_]}")
    unpack_from, size = layout.unpack_from, layout.size

    def read(buffer: bytes, at: int) -> tuple[int, int]:
        try:
            return unpack_from(buffer, at)[0], at + size
        except struct.error:
            raise _truncated(where, at) from None

    return read


def uuid(where: str) -> Reader:
    """Return a reader of a UUID, whose value is the text form."""

    def read(buffer: bytes, at: int) -> tuple[str, int]:
        end = at + 16
        if end > len(buffer):
            raise _truncated(where, at)
        return _uuid_text(buffer[at:end]), end

    return read


_uuid_text = lru_cache(maxsize=4096)(uuid_text)  # the records of a log contain few different topic IDs


def string(where: str, *, nullable: bool, compact: bool) -> Reader:
    """Return a reader of UTF-8 after its length, which is an int16 or compact."""
    read_length = _length("int16", where, nullable=nullable, compact=compact)

    def read(buffer: bytes, at: int) -> tuple[str | None, int]:
        length, start = read_length(buffer, at)
        if length < 0:
            return None, start
        end = start + length
        if end > len(buffer):
            raise _truncated(where, at)
        if length > MAX_STRING:
            raise UndecodableRecord(f"{where} at byte {at} has {length} bytes, but a string has at most {MAX_STRING}")
        try:
            return buffer[start:end].decode(), end
        except UnicodeDecodeError:
            raise UndecodableRecord(f"{where} at byte {at} is not UTF-8") from None

    return read


def bytes_(where: str, *, nullable: bool, compact: bool) -> Reader:
    """Return a reader of bytes after their length, which is an int32 or compact."""
    read_length = _length("int32", where, nullable=nullable, compact=compact)

    def read(buffer: bytes, at: int) -> tuple[bytes | None, int]:
        length, start = read_length(buffer, at)
        if length < 0:
            return None, start
        end = start + length
        if end > len(buffer):
            raise _truncated(where, at)
        return buffer[start:end], end

    return read


def array(read_element: Reader, where: str, *, nullable: bool, compact: bool) -> Reader:
    """Return a reader of elements of at least one byte after their count, which is an int32 or compact."""
    read_count = _length("int32", where, nullable=nullable, compact=compact)

    def read(buffer: bytes, at: int) -> tuple[list[Any] | None, int]:
        count, position = read_count(buffer, at)
        if count < 0:
            return None, position
        _check_size(where, at, count, len(buffer) - position)
        values = []
        for _ in range(count):
            value, position = read_element(buffer, position)
            values.append(value)
        return values, position

    return read


def integer_array(type_: str, where: str, *, nullable: bool, compact: bool) -> Reader:
    """Return a faster equivalent of `array` with an `integer` reader."""
    read_count = _length("int32", where, nullable=nullable, compact=compact)
    code = INTEGERS[type_]
    size = struct.calcsize(f">{code}")

    def read(buffer: bytes, at: int) -> tuple[list[int] | None, int]:
        count, start = read_count(buffer, at)
        if count < 0:
            return None, start
        _check_size(where, at, count * size, len(buffer) - start)
        return list(struct.unpack_from(f">{count}{code}", buffer, start)), start + count * size

    return read


def struct_(steps: Sequence[tuple[str, Reader]], tagged: dict[int, Tagged] | None, where: str) -> Reader:
    """Return a reader of fields in order and, unless `tagged` is None, the tag buffer of a flexible version."""

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
    """Return a reader of a struct after an int8, which is negative if the struct is null."""
    read_marker = integer("int8", where)

    def read(buffer: bytes, at: int) -> tuple[dict[str, Any] | None, int]:
        marker, at = read_marker(buffer, at)
        return (None, at) if marker < 0 else read_struct(buffer, at)

    return read


def nullable_tagged_struct(read_struct: Reader, where: str) -> Reader:
    """Return a reader of a tagged struct after an unsigned varint, which is 0 if the struct is null."""

    def read(buffer: bytes, at: int) -> tuple[dict[str, Any] | None, int]:
        marker, at = _unsigned_varint(buffer, at, where)
        return read_struct(buffer, at) if marker else (None, at)

    return read


def _tag_buffer(value: dict[str, Any], tagged: dict[int, Tagged], where: str, buffer: bytes, at: int) -> int:
    """Add the tagged fields that differ from their default to `value`, skip unknown ones, and return the end."""
    count, at = _unsigned_varint(buffer, at, where)
    for _ in range(count):
        tag, at = _unsigned_varint(buffer, at, where)
        size, at = _unsigned_varint(buffer, at, where)
        end = at + size
        if end > len(buffer):
            raise _truncated(f"{where}, tag {tag}", at)
        if tag in tagged:
            name, read, default = tagged[tag]
            field, field_end = read(buffer, at)
            if field_end != end:
                raise UndecodableRecord(
                    f"{where}.{name} at byte {at} has {field_end - at} bytes, but its tag states {size}"
                )
            if field != default:
                value[name] = field
        at = end
    return at


def _length(type_: str, where: str, *, nullable: bool, compact: bool) -> Callable[[bytes, int], tuple[int, int]]:
    """Return a reader of a length or count; -1, for null, only if the field is nullable."""
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
            raise UndecodableRecord(f"{where} at byte {at} has the invalid length {length}")
        if not nullable:
            raise UndecodableRecord(f"{where} at byte {at} is null, but the field is not nullable")
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
            raise _truncated(where, at)
    raise UndecodableRecord(f"{where} at byte {at} has a length, count or tag above {MAX_INT32}")


def _check_size(where: str, at: int, needed: int, left: int) -> None:
    if needed > left:
        raise UndecodableRecord(
            f"{where} at byte {at} is truncated: its elements need at least {needed} bytes, but {left} remain"
        )


def _truncated(where: str, at: int) -> UndecodableRecord:
    return UndecodableRecord(f"{where} at byte {at} is truncated")
