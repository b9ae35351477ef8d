"""Parsed OffsetCommit requests, and a fast path for requests that repeat the one before with other offsets.

A running consumer commits the same partitions again and again. Such a request is not parsed field by field: one
`unpack` of the whole frame yields the bytes around the offsets, which are compared with those of the last request.
"""

import struct

from offsetlake.kafka.error_codes import NONE
from offsetlake.serve.protocol import wire
from offsetlake.serve.storage.group_details import Committer

FIRST_THROTTLED_VERSION, FIRST_FLEXIBLE_VERSION = 3, 8  # versions of OffsetCommit
_CORRELATION_ID_POSITION, _CORRELATION_ID_BYTES, _OFFSET_BYTES = 4, 4, 8
_MAX_CACHED_FRAME_BYTES = 100_000
MAX_CACHED_BYTES = 128 << 20
"""The memory for the last requests of all connections; beyond it, requests are parsed field by field."""

_ENTRY_BYTES = 600  # approximate memory of the objects of a partition, without its key
_PARTITION_RESULT = struct.Struct(">ih")

StoredFields = tuple[bytes, int, bytes, bytes]
"""Key within the group, leader epoch, topic id and metadata of an offset to store."""


class CommitRequest:
    """A parsed request without its offsets, and its answer.

    | Field            | Description |
    |------------------|-------------|
    | group            | UTF-8 |
    | retention_ms     | Time from the commit until the offset expires; -1: by the retention of the group |
    | committer        | Who sent it |
    | without_member   | Not sent by a member: while the group exists, it accepts further such commits |
    | keys             | Keys of the records to write |
    | stored           | The fields that the store needs for each of them |
    | results          | Of each topic the name or id as in the request, and the error code of each partition |
    | previous_offsets | The offsets of the previous, otherwise equal request; empty for the first |
    | revision         | That of the topics when their partitions were checked |
    """

    __slots__ = (
        "_layout", "_positions", "_success_body", "_unchanged",
        "committer", "group", "keys", "previous_offsets", "results", "retention_ms", "revision", "stored", "version",
        "without_member",
    )  # fmt: skip

    def __init__(self, group: bytes, version: int, retention_ms: int, revision: int, committer: Committer) -> None:
        self.group, self.version, self.retention_ms, self.committer = group, version, retention_ms, committer
        self.revision = revision
        self.without_member = committer.generation < 0 and not committer.member and committer.instance is None
        self.keys: list[bytes] = []
        self.stored: list[StoredFields] = []
        self.results: list[tuple[bytes, list[tuple[int, int]]]] = []
        self.previous_offsets: list[int] | tuple[int, ...] = ()
        self._positions: list[int] = []  # of the offsets in the frame
        self._layout: struct.Struct | None = None
        self._unchanged: tuple[bytes, ...] = ()  # the bytes of the frame around the correlation id and the offsets
        self._success_body = b""

    def add(self, key: bytes, stored: StoredFields, position: int) -> None:
        """Add a partition to store, with the position of its offset in the frame."""
        self.keys.append(key)
        self.stored.append(stored)
        self._positions.append(position)

    def size(self, frame: bytes) -> int:
        """Return the approximate memory in bytes of the request once its frame is remembered."""
        return 2 * (len(frame) + sum(map(len, self.keys))) + _ENTRY_BYTES * len(self.keys)

    def remember(self, frame: bytes) -> None:
        """Prepare the fast path for requests like this one, if only their offsets can make a difference."""
        if self.without_member and len(self._positions) == sum(len(partitions) for _, partitions in self.results):
            layout, end = [">"], 0
            for position, code, size in (
                (_CORRELATION_ID_POSITION, "i", _CORRELATION_ID_BYTES),
                *((position, "q", _OFFSET_BYTES) for position in self._positions),
            ):
                layout.append(f"{position - end}s{code}")
                end = position + size
            self._layout = struct.Struct(f"{''.join(layout)}{len(frame) - end}s")
            self._unchanged = self._layout.unpack(frame)[::2]
            self._success_body = self.body(NONE)

    def repeated(self, frame: bytes) -> tuple[int, ...]:
        """Return the offsets of a frame that is equal to this request otherwise; empty if it is not."""
        if self._layout is None or len(frame) != self._layout.size:
            return ()
        fields = self._layout.unpack(frame)
        return fields[3::2] if fields[::2] == self._unchanged else ()

    def success_body(self) -> bytes:
        """Return the body of the answer if all partitions without an error of their own are stored."""
        return self._success_body or self.body(NONE)

    def body(self, error: int) -> bytes:
        """Return the body of the answer; partitions without an error of their own get `error`."""
        flexible = self.version >= FIRST_FLEXIBLE_VERSION
        tags = b"\0" if flexible else b""
        out = [bytes(4)] if self.version >= FIRST_THROTTLED_VERSION else []
        out.append(wire.count(len(self.results), flexible=flexible))
        for topic, partitions in self.results:
            out += (topic, wire.count(len(partitions), flexible=flexible))
            out += [_PARTITION_RESULT.pack(partition, code or error) + tags for partition, code in partitions]
            out.append(tags)
        out.append(tags)
        return b"".join(out)


class CacheBudget:
    """The memory that the cached requests of all connections may use."""

    __slots__ = ("available_bytes",)

    def __init__(self) -> None:
        self.available_bytes = MAX_CACHED_BYTES

    def reserve(self, size: int) -> bool:
        """Reserve `size` bytes if they are available; return whether they were."""
        if size > self.available_bytes:
            return False
        self.available_bytes -= size
        return True


class LastCommit:
    """The cached last OffsetCommit of a connection; `group` is the group of the last one that was written."""

    __slots__ = ("_budget", "_length", "_size", "group", "request")

    def __init__(self, budget: CacheBudget) -> None:
        self._budget, self._size = budget, 0
        self._length = -1
        self.request: CommitRequest | None = None
        self.group: bytes | None = None

    def keep(self, request: CommitRequest, frame: bytes) -> None:
        """Cache a request that was parsed field by field, if its frame is as long as that of the request before."""
        self.request = None
        self._budget.available_bytes += self._size
        self._size = 0
        if len(frame) == self._length <= _MAX_CACHED_FRAME_BYTES:
            size = request.size(frame)
            if self._budget.reserve(size):
                self._size = size
                request.remember(frame)
                self.request = request
        self._length = len(frame)

    def __del__(self) -> None:
        """Release the reserved memory when the connection has ended."""
        self._budget.available_bytes += self._size
