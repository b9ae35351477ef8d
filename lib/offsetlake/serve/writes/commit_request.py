"""An OffsetCommit request as it was read; and the next one of its connection, which mostly differs in its offsets only.

A consumer that goes on commits the same partitions again and again. Such a request is not read field by field: what
stands around its offsets is compared with the last one, by one `unpack` of all of it.
"""

import struct

from offsetlake.kafka.error_codes import NONE
from offsetlake.serve.protocol import wire

THROTTLE, FLEXIBLE = 3, 8  # versions of OffsetCommit since which an answer has a throttle time, and tags
_CORRELATION_AT, _CORRELATION, _OFFSET = 4, 4, 8
_LARGEST_KEPT = 100_000  # bytes, of a frame: it is kept a connection
MAX_KEPT_BYTES = 128 << 20  # of all connections: the next ones are read field by field
_ENTRY_BYTES = 600  # of the objects of a partition, beside its names
_ANSWERED = struct.Struct(">ih")

Named = tuple[bytes, int, bytes, bytes]
"""Of a partition to store: key within the group, leader epoch, topic id, metadata."""


class CommitRequest:
    """What a request says but for its offsets, and how it is answered.

    | field    | is |
    |----------|----|
    | group    | UTF-8 |
    | expires  | ms from its commit on until an offset expires; -1: by the retention of the group |
    | keys     | of what is to be stored, as in the log |
    | stored   | the same, as the store has it |
    | answered | of each topic its name or id as the request has it, and error codes by partition |
    | before   | the offsets of the one before it that was the same otherwise; nothing of the first |

    `of_nobody` says that it comes from no member: then its group takes more like it, as long as there is the group.
    """

    __slots__ = (
        "_accepted", "_around", "_layout", "_places",
        "answered", "before", "expires", "group", "keys", "of_nobody", "stored", "version",
    )  # fmt: skip

    def __init__(self, group: bytes, version: int, expires: int, *, of_nobody: bool) -> None:
        self.group, self.version, self.expires, self.of_nobody = group, version, expires, of_nobody
        self.keys: list[bytes] = []
        self.stored: list[Named] = []
        self.answered: list[tuple[bytes, list[tuple[int, int]]]] = []
        self.before: list[int] | tuple[int, ...] = ()
        self._places: list[int] = []  # of the offsets in the frame
        self._layout: struct.Struct | None = None
        self._around: tuple[bytes, ...] = ()
        self._accepted = b""

    def add(self, key: bytes, stored: Named, place: int) -> None:
        """Take in a partition that is to be stored, whose offset is at a place in the frame."""
        self.keys.append(key)
        self.stored.append(stored)
        self._places.append(place)

    def size(self, frame: bytes) -> int:
        """Return about how many bytes it takes in memory once its frame is remembered."""
        return 2 * (len(frame) + sum(map(len, self.keys))) + _ENTRY_BYTES * len(self.keys)

    def remember(self, frame: bytes) -> None:
        """Prepare for more requests like this one, where nothing but their offsets can make a difference."""
        if self.of_nobody and len(self._places) == sum(len(partitions) for _, partitions in self.answered):
            layout, at = [">"], 0
            for place, code, size in (
                (_CORRELATION_AT, "i", _CORRELATION),
                *((of, "q", _OFFSET) for of in self._places),
            ):
                layout.append(f"{place - at}s{code}")
                at = place + size
            self._layout = struct.Struct(f"{''.join(layout)}{len(frame) - at}s")
            self._around = self._layout.unpack(frame)[::2]
            self._accepted = self.body(NONE)

    def repeated(self, frame: bytes) -> tuple[int, ...]:
        """Give the offsets of a request that is the same otherwise; none where it is another."""
        if self._layout is None or len(frame) != self._layout.size:
            return ()
        fields = self._layout.unpack(frame)
        return fields[3::2] if fields[::2] == self._around else ()

    def accepted(self) -> bytes:
        """Write the answer where all went well."""
        return self._accepted or self.body(NONE)

    def body(self, error: int) -> bytes:
        """Write the answer; partitions without an error of their own get `error`."""
        flexible = self.version >= FLEXIBLE
        tags = b"\0" if flexible else b""
        out = [bytes(4)] if self.version >= THROTTLE else []
        out.append(wire.count(len(self.answered), flexible=flexible))
        for named, partitions in self.answered:
            out += (named, wire.count(len(partitions), flexible=flexible))
            out += [_ANSWERED.pack(partition, code or error) + tags for partition, code in partitions]
            out.append(tags)
        out.append(tags)
        return b"".join(out)


class Kept:
    """How much memory all connections together may take for their last commits."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_KEPT_BYTES

    def take(self, size: int) -> bool:
        """Take some bytes, if there are as many."""
        if size > self.left:
            return False
        self.left -= size
        return True


class LastCommit:
    """What a connection keeps of its last OffsetCommit; `group` is that of the last one that went to the log."""

    __slots__ = ("_kept", "_length", "_size", "group", "request")

    def __init__(self, kept: Kept) -> None:
        self._kept, self._size = kept, 0
        self._length = -1
        self.request: CommitRequest | None = None
        self.group: bytes | None = None

    def keep(self, request: CommitRequest, frame: bytes) -> None:
        """Keep a request that was read field by field; it is prepared for more once two had one length."""
        self.request = None
        self._kept.left += self._size
        self._size = 0
        if len(frame) == self._length <= _LARGEST_KEPT:
            size = request.size(frame)
            if self._kept.take(size):
                self._size = size
                request.remember(frame)
                self.request = request
        self._length = len(frame)

    def __del__(self) -> None:
        """Release its share of the bound: its connection has ended."""
        self._kept.left += self._size
