"""Requests of the Kafka protocol: frames, headers, and a cursor that reads the primitives of a request.

`offsetlake.kafka.records.readers` decodes the same primitives of records, and cannot be shared: it names the field in
errors and fails on invalid UTF-8, whereas requests are read without field names, limited in their elements, and treated
as a broker treats them.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from offsetlake.kafka.records.readers import MAX_STRING
from offsetlake.kafka.records.writers import unsigned_varint

_INT8, _INT16, _INT32, _INT64 = (struct.Struct(f">{code}") for code in "bhiq")
_HEADER = struct.Struct(">hhih")
_COMMITTED, _COMMITTED_WITHOUT_EPOCH = struct.Struct(">iqi"), struct.Struct(">iq")


class Malformed(Exception):
    """A malformed or unsupported request, which closes its connection, as on a broker."""


class RequestHeader(NamedTuple):
    """The fields of a request header that all of its versions share; `body` is the position after the client id."""

    api: int
    version: int
    correlation: int
    client_id: bytes | None
    body: int


def read_header(frame: bytes) -> RequestHeader:
    """Return the header of a frame; raise Malformed if the frame is too short."""
    try:
        api, version, correlation, length = _HEADER.unpack_from(frame)
    except struct.error as error:
        raise Malformed("the request is shorter than its header") from error
    stop = _HEADER.size + max(length, 0)
    if stop > len(frame):
        raise Malformed("the client id is longer than its request")
    return RequestHeader(api, version, correlation, frame[_HEADER.size : stop] if length >= 0 else None, stop)


def skip_header_tags(frame: bytes, position: int) -> int:
    """Skip the tagged fields of a flexible request header; return the position of the body."""
    if frame[position] == 0:
        return position + 1
    cursor = Cursor(frame, position, flexible=True)
    cursor.tags()
    return cursor.position


class Cursor:
    """Reads the fields of one untrusted request: no length is used before it was checked.

    Args:
        data: The request.
        position: The position of the first field.
        flexible: Whether lengths are varints and tagged fields follow each structure (KIP-482).
        max_elements: How many elements all arrays of the request may have together.

    """

    __slots__ = ("_data", "_elements_left", "_flexible", "position")

    def __init__(self, data: bytes, position: int, *, flexible: bool, max_elements: int | None = None) -> None:
        self._data, self.position, self._flexible = data, position, flexible
        self._elements_left = len(data) if max_elements is None else max_elements

    def bool_(self) -> bool:
        """Return a boolean."""
        position = self.position
        self.position = position + 1
        return self._data[position] != 0

    def int8(self) -> int:
        """Return an int8."""
        position = self.position
        self.position = position + 1
        number: int = _INT8.unpack_from(self._data, position)[0]
        return number

    def int16(self) -> int:
        """Return an int16."""
        position = self.position
        self.position = position + 2
        number: int = _INT16.unpack_from(self._data, position)[0]
        return number

    def int32(self) -> int:
        """Return an int32."""
        position = self.position
        self.position = position + 4
        number: int = _INT32.unpack_from(self._data, position)[0]
        return number

    def int64(self) -> int:
        """Return an int64."""
        position = self.position
        self.position = position + 8
        number: int = _INT64.unpack_from(self._data, position)[0]
        return number

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """Return fields of fixed width."""
        position = self.position
        self.position = position + layout.size
        return layout.unpack_from(self._data, position)

    def raw(self, size: int) -> bytes:
        """Return `size` bytes."""
        position = self.position
        stop = self.position = position + size
        if size < 0 or stop > len(self._data):
            raise Malformed("a field extends beyond the end of its request")
        return self._data[position:stop]

    def nullable_length(self, min_element_bytes: int = 1) -> int:
        """Return the number of elements of an array, or a negative number if the array is null.

        Raise Malformed if the elements do not fit in the rest of the request, or if the request has too many elements.
        """
        length = self.varint() - 1 if self._flexible else self.int32()
        if length > 0:
            if length * min_element_bytes > len(self._data) - self.position:
                raise Malformed(f"an array of {length} elements is longer than its request")
            self._elements_left -= length
            if self._elements_left < 0:
                raise Malformed("the request has more elements than its API allows")
        return length

    def length(self, min_element_bytes: int = 1) -> int:
        """Return the number of elements of an array; raise Malformed as `nullable_length`, and if the array is null."""
        length = self.nullable_length(min_element_bytes)
        if length < 0:
            raise Malformed("an array that is not nullable is null")
        return length

    def nullable_bytes(self) -> bytes | None:
        """Return a field of bytes, or None if it is null; raise Malformed if it is longer than the request."""
        size = self.varint() - 1 if self._flexible else self.int32()
        return None if size < 0 else self.raw(size)

    def name(self) -> bytes:
        """Return a string as `string`; raise Malformed if it is null."""
        text = self.string()
        if text is None:
            raise Malformed("a string that is not nullable is null")
        return text

    def string(self) -> bytes | None:
        """Return a string as valid UTF-8, or None if it is null.

        Raise Malformed if it is longer than MAX_STRING, which a flexible length can state, but no record can contain.
        """
        data, position = self._data, self.position
        if not self._flexible:
            length = _INT16.unpack_from(data, position)[0]
            position += 2
        elif data[position] < 0x80:
            length = data[position] - 1
            position += 1
        else:
            length = self.varint() - 1
            position = self.position
        if length <= 0:
            self.position = position
            return None if length < 0 else b""
        stop = self.position = position + length
        if stop > len(data):
            raise Malformed("a string extends beyond the end of its request")
        text = data[position:stop]
        text = text if text.isascii() else text.decode(errors="replace").encode()
        if len(text) > MAX_STRING:
            raise Malformed(f"a string has {len(text)} bytes; the limit is {MAX_STRING}")
        return text

    def int32s(self) -> tuple[int, ...]:
        """Return an array of int32, read in one step; raise Malformed as `length`."""
        length, position = self.varint() - 1 if self._flexible else self.int32(), self.position
        stop = position + 4 * length
        self._elements_left -= length
        if length < 0 or stop > len(self._data) or self._elements_left < 0:
            raise Malformed(f"an array of {length} elements is longer than its request, or than its API allows")
        self.position = stop
        return struct.unpack_from(f">{length}i", self._data, position)

    def committed(self, *, epochs: bool) -> Iterator[tuple[int, int, int, bytes, int]]:
        """Yield the partitions of a topic of OffsetCommit.

        Each is a tuple of partition, offset, leader epoch (-1 without), metadata, and position of the offset in the
        frame.
        """
        layout, no_epoch = (_COMMITTED, ()) if epochs else (_COMMITTED_WITHOUT_EPOCH, (-1,))
        for _ in range(self.length(layout.size)):
            place = self.position + _INT32.size
            fields = layout.unpack_from(self._data, self.position)
            self.position += layout.size
            row = (*fields, *no_epoch, self.string() or b"", place)
            self.tags()
            yield row

    def varint(self) -> int:
        """Return an unsigned varint of at most 5 bytes as a signed 32-bit number, as a broker does."""
        data, position = self._data, self.position
        number = data[position]
        position += 1
        if number >= 0x80:
            number &= 0x7F
            shift = 7
            while True:
                byte = data[position]
                position += 1
                number |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 28:
                    raise Malformed("a varint has more than 32 bits")
            if shift == 28:  # only a fifth byte can set the sign bit, or bits above it
                number = ((number + (1 << 31)) & 0xFFFF_FFFF) - (1 << 31)
                if number == -(1 << 31):  # in Java, subtracting one overflows to the largest length
                    raise Malformed("a length is 2147483647")
        self.position = position
        return number

    def tags(self) -> None:
        """Skip the tagged fields of a structure, if the version is flexible."""
        if self._flexible:
            if self._data[self.position] == 0:
                self.position += 1
                return
            for _ in range(self.tag_count()):
                self.varint()
                self.raw(self.varint())

    def tag_count(self) -> int:
        """Return the number of tagged fields of a structure; they count as elements of the request."""
        count = max(0, self.varint())
        self._elements_left -= count
        if self._elements_left < 0:
            raise Malformed("the request has more elements than its API allows")
        return count

    def end(self) -> None:
        """Raise Malformed if bytes are left after the last field."""
        if self.position != len(self._data):
            raise Malformed(f"the request has {len(self._data) - self.position} trailing bytes")


def string(text: bytes, *, flexible: bool) -> bytes:
    """Return a string that is not null, with its length."""
    return (unsigned_varint(len(text) + 1) if flexible else _INT16.pack(len(text))) + text


def count(number: int, *, flexible: bool) -> bytes:
    """Return the encoded number of elements of an array."""
    return unsigned_varint(number + 1) if flexible else _INT32.pack(number)
