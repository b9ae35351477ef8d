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

    def read(buffer: bytes, position: int) -> tuple[int, int]:
        try:
            return unpack_from(buffer, position)[0], position + size
        except struct.error:
            raise _truncated(where, position) from None

    return read


def uuid(where: str) -> Reader:
    """Return a reader of a UUID, whose value is the text form."""

    def read(buffer: bytes, position: int) -> tuple[str, int]:
        end = position + 16
        if end > len(buffer):
            raise _truncated(where, position)
        return _uuid_text(buffer[position:end]), end

    return read


_uuid_text = lru_cache(maxsize=4096)(uuid_text)  # the records of a log contain few different topic IDs


def string(where: str, *, nullable: bool, compact: bool) -> Reader:
    """Return a reader of UTF-8 after its length, which is an int16 or compact."""
    read_length = _length("int16", where, nullable=nullable, compact=compact)

    def read(buffer: bytes, position: int) -> tuple[str | None, int]:
        length, start = read_length(buffer, position)
        if length < 0:
            return None, start
        end = start + length
        if end > len(buffer):
            raise _truncated(where, position)
        if length > MAX_STRING:
            raise UndecodableRecord(
                f"{where} at byte {position} has {length} bytes, but a string has at most {MAX_STRING}"
            )
        try:
            return buffer[start:end].decode(), end
        except UnicodeDecodeError:
            raise UndecodableRecord(f"{where} at byte {position} is not UTF-8") from None

    return read


def bytes_(where: str, *, nullable: bool, compact: bool) -> Reader:
    """Return a reader of bytes after their length, which is an int32 or compact."""
    read_length = _length("int32", where, nullable=nullable, compact=compact)

    def read(buffer: bytes, position: int) -> tuple[bytes | None, int]:
        length, start = read_length(buffer, position)
        if length < 0:
            return None, start
        end = start + length
        if end > len(buffer):
            raise _truncated(where, position)
        return buffer[start:end], end

    return read


def array(read_element: Reader, where: str, *, nullable: bool, compact: bool) -> Reader:
    """Return a reader of elements of at least one byte after their count, which is an int32 or compact."""
    read_count = _length("int32", where, nullable=nullable, compact=compact)

    def read(buffer: bytes, position: int) -> tuple[list[Any] | None, int]:
        count, end = read_count(buffer, position)
        if count < 0:
            return None, end
        _check_size(where, position, count, len(buffer) - end)
        values = []
        for _ in range(count):
            value, end = read_element(buffer, end)
            values.append(value)
        return values, end

    return read


def integer_array(type_: str, where: str, *, nullable: bool, compact: bool) -> Reader:
    """Return a faster equivalent of `array` with an `integer` reader."""
    read_count = _length("int32", where, nullable=nullable, compact=compact)
    code = INTEGERS[type_]
    size = struct.calcsize(f">{code}")

    def read(buffer: bytes, position: int) -> tuple[list[int] | None, int]:
        count, start = read_count(buffer, position)
        if count < 0:
            return None, start
        _check_size(where, position, count * size, len(buffer) - start)
        return list(struct.unpack_from(f">{count}{code}", buffer, start)), start + count * size

    return read


def struct_(steps: Sequence[tuple[str, Reader]], tagged: dict[int, Tagged] | None, where: str) -> Reader:
    """Return a reader of fields in order and, unless `tagged` is None, the tag buffer of a flexible version."""

    def read(buffer: bytes, position: int) -> tuple[dict[str, Any], int]:
        value = {}
        for name, read_field in steps:
            value[name], position = read_field(buffer, position)
        if tagged is None:
            return value, position
        if buffer[position : position + 1] == b"\0":
            return value, position + 1
        return value, _tag_buffer(value, tagged, where, buffer, position)

    return read


def nullable_struct(read_struct: Reader, where: str) -> Reader:
    """Return a reader of a struct after an int8, which is negative if the struct is null."""
    read_marker = integer("int8", where)

    def read(buffer: bytes, position: int) -> tuple[dict[str, Any] | None, int]:
        marker, position = read_marker(buffer, position)
        return (None, position) if marker < 0 else read_struct(buffer, position)

    return read


def nullable_tagged_struct(read_struct: Reader, where: str) -> Reader:
    """Return a reader of a tagged struct after an unsigned varint, which is 0 if the struct is null."""

    def read(buffer: bytes, position: int) -> tuple[dict[str, Any] | None, int]:
        marker, position = unsigned_varint(buffer, position, where)
        return read_struct(buffer, position) if marker else (None, position)

    return read


def _tag_buffer(value: dict[str, Any], tagged: dict[int, Tagged], where: str, buffer: bytes, position: int) -> int:
    """Add the tagged fields that differ from their default to `value`, skip unknown ones, and return the end."""
    count, position = unsigned_varint(buffer, position, where)
    for _ in range(count):
        tag, position = unsigned_varint(buffer, position, where)
        size, position = unsigned_varint(buffer, position, where)
        end = position + size
        if end > len(buffer):
            raise _truncated(f"{where}, tag {tag}", position)
        if tag in tagged:
            name, read, default = tagged[tag]
            field, field_end = read(buffer, position)
            if field_end != end:
                raise UndecodableRecord(
                    f"{where}.{name} at byte {position} has {field_end - position} bytes, but its tag states {size}"
                )
            if field != default:
                value[name] = field
        position = end
    return position


def _length(type_: str, where: str, *, nullable: bool, compact: bool) -> Callable[[bytes, int], tuple[int, int]]:
    """Return a reader of a length or count; -1, for null, only if the field is nullable."""
    read_integer = integer(type_, where)

    def read(buffer: bytes, position: int) -> tuple[int, int]:
        length, end = read_integer(buffer, position)
        return (length, end) if length >= 0 else (_null(length, position), end)

    def read_compact(buffer: bytes, position: int) -> tuple[int, int]:
        if position < len(buffer) and 0 < buffer[position] < 0x80:
            return buffer[position] - 1, position + 1
        length, end = unsigned_varint(buffer, position, where)
        return (length - 1, end) if length else (_null(-1, position), end)

    def _null(length: int, position: int) -> int:
        if length < -1:
            raise UndecodableRecord(f"{where} at byte {position} has the invalid length {length}")
        if not nullable:
            raise UndecodableRecord(f"{where} at byte {position} is null, but the field is not nullable")
        return length

    return read_compact if compact else read


def unsigned_varint(buffer: bytes, position: int, where: str) -> tuple[int, int]:
    """Return the unsigned varint at a position, and the position after it; `where` names the field in errors."""
    result = 0
    for i, byte in enumerate(buffer[position : position + 5]):
        result |= (byte & 0x7F) << (7 * i)
        if result > MAX_INT32:
            break
        if byte < 0x80:
            return result, position + i + 1
    else:
        if position + 5 > len(buffer):
            raise _truncated(where, position)
    raise UndecodableRecord(f"{where} at byte {position} has a length, count or tag above {MAX_INT32}")


def _check_size(where: str, position: int, needed: int, left: int) -> None:
    if needed > left:
        raise UndecodableRecord(
            f"{where} at byte {position} is truncated: its elements need at least {needed} bytes, but {left} remain"
        )


def _truncated(where: str, position: int) -> UndecodableRecord:
    return UndecodableRecord(f"{where} at byte {position} is truncated")
