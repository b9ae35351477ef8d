"""Kafka's requests on the wire: frames, headers, and a cursor for the two requests that have a path of their own."""

import struct
from typing import NamedTuple

from offsetlake.kafka.batch_writer import unsigned_varint
from offsetlake.kafka.readers import MAX_STRING

MAX_FRAME = 100 << 20  # socket.request.max.bytes of a broker
_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_HEADER = struct.Struct(">hhih")
_COMMITTED, _COMMITTED_WITHOUT_EPOCH = struct.Struct(">iqi"), struct.Struct(">iq")


class Malformed(Exception):
    """A request that is not what its header says: the connection ends, as a broker ends it."""


class Header(NamedTuple):
    """A request's header, as far as its versions share it; `body` is where the client id ends."""

    api: int
    version: int
    correlation: int
    client_id: bytes | None
    body: int


def read_header(frame: bytes) -> Header:
    """Read the header of a frame; Malformed where it is too short."""
    try:
        api, version, correlation, length = _HEADER.unpack_from(frame)
    except struct.error as error:
        raise Malformed("a request without a whole header") from error
    stop = _HEADER.size + max(length, 0)
    if stop > len(frame):
        raise Malformed("a client id longer than its request")
    return Header(api, version, correlation, frame[_HEADER.size : stop] if length >= 0 else None, stop)


def behind_tags(frame: bytes, at: int) -> int:
    """Pass over the tagged fields of a flexible request header; gives where the body begins."""
    if frame[at] == 0:
        return at + 1
    cursor = Cursor(frame, at, flexible=True)
    cursor.tags()
    return cursor.at


class Cursor:
    """Reads the fields of one request; `flexible` tells how lengths and tags are written (KIP-482)."""

    __slots__ = ("_data", "_flexible", "at")

    def __init__(self, data: bytes, at: int, *, flexible: bool) -> None:
        self._data, self.at, self._flexible = data, at, flexible

    def bool_(self) -> bool:
        """Read a boolean."""
        at = self.at
        self.at = at + 1
        return self._data[at] != 0

    def int16(self) -> int:
        """Read an int16."""
        at = self.at
        self.at = at + 2
        number: int = _INT16.unpack_from(self._data, at)[0]
        return number

    def int32(self) -> int:
        """Read an int32."""
        at = self.at
        self.at = at + 4
        number: int = _INT32.unpack_from(self._data, at)[0]
        return number

    def int64(self) -> int:
        """Read an int64."""
        at = self.at
        self.at = at + 8
        number: int = _INT64.unpack_from(self._data, at)[0]
        return number

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read fields of fixed width together."""
        at = self.at
        self.at = at + layout.size
        return layout.unpack_from(self._data, at)

    def raw(self, size: int) -> bytes:
        """Read so many bytes."""
        at = self.at
        stop = self.at = at + size
        if size < 0 or stop > len(self._data):
            raise Malformed("a field reaches behind the end of its request")
        return self._data[at:stop]

    def length(self) -> int:
        """Read how many elements an array has: -1 where it is null."""
        length = self.varint() - 1 if self._flexible else self.int32()
        if length > len(self._data):
            raise Malformed("an array longer than its request")
        return length

    def string(self) -> bytes | None:
        """Read a string; None where it is null. It comes as UTF-8, whatever it was.

        Malformed where it is longer than strings are: a flexible length can say so, and no record could hold it.
        """
        data, at = self._data, self.at
        if not self._flexible:
            length = _INT16.unpack_from(data, at)[0]
            at += 2
        elif data[at] < 0x80:
            length = data[at] - 1
            at += 1
        else:
            length = self.varint() - 1
            at = self.at
        if length <= 0:
            self.at = at
            return None if length < 0 else b""
        stop = self.at = at + length
        if stop > len(data):
            raise Malformed("a string reaches behind the end of its request")
        text = data[at:stop]
        text = text if text.isascii() else text.decode(errors="replace").encode()
        if len(text) > MAX_STRING:
            raise Malformed(f"a string of {len(text)} bytes")
        return text

    def int32s(self) -> tuple[int, ...]:
        """Read an array of int32; Malformed where it is null."""
        length = self.length()
        if length < 0 or self.at + 4 * length > len(self._data):
            raise Malformed("an array that is null or longer than its request")
        at = self.at
        self.at = at + 4 * length
        return struct.unpack_from(f">{length}i", self._data, at)

    def committed(self, *, epochs: bool) -> list[tuple[int, int, int, bytes, int]]:
        """Read the partitions of a topic of OffsetCommit.

        Of each: partition, offset, leader epoch (-1 without), metadata, and where in the frame the offset stands.
        """
        layout, no_epoch = (_COMMITTED, ()) if epochs else (_COMMITTED_WITHOUT_EPOCH, (-1,))
        rows = []
        for _ in range(self.length()):
            place = self.at + _INT32.size
            fields = layout.unpack_from(self._data, self.at)
            self.at += layout.size
            rows.append((*fields, *no_epoch, self.string() or b"", place))
            self.tags()
        return rows

    def varint(self) -> int:
        """Read an unsigned varint."""
        data, at = self._data, self.at
        number = data[at]
        at += 1
        if number >= 0x80:
            number &= 0x7F
            shift = 7
            while True:
                byte = data[at]
                at += 1
                number |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 28:
                    raise Malformed("a length of more than 32 bits")
        self.at = at
        return number

    def tags(self) -> None:
        """Pass over a buffer of tagged fields, where the version has one."""
        if self._flexible:
            if self._data[self.at] == 0:
                self.at += 1
                return
            for _ in range(self.varint()):
                self.varint()
                self.raw(self.varint())

    def end(self) -> None:
        """Say that all was read; Malformed where bytes are left."""
        if self.at != len(self._data):
            raise Malformed(f"{len(self._data) - self.at} bytes behind the end of a request")


def string(text: bytes, *, flexible: bool) -> bytes:
    """Write a string that is not null."""
    return (unsigned_varint(len(text) + 1) if flexible else _INT16.pack(len(text))) + text


def count(number: int, *, flexible: bool) -> bytes:
    """Write how many elements an array has."""
    return unsigned_varint(number + 1) if flexible else _INT32.pack(number)
