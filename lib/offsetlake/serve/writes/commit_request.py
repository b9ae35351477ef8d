"""A parsed OffsetCommit request, and its answer."""

import struct
from typing import TYPE_CHECKING

from offsetlake.kafka.error_codes import NONE
from offsetlake.serve.protocol import wire
from offsetlake.serve.storage.group_details import CommitSender
from offsetlake.serve.storage.memtable import StoredFields

if TYPE_CHECKING:
    from offsetlake.serve.protocol.topics import NamedPartition

FIRST_THROTTLED_VERSION, FIRST_FLEXIBLE_VERSION = 3, 8  # versions of OffsetCommit
_PARTITION_RESULT = struct.Struct(">ih")


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
    | positions        | Of their offsets in the body of the request |
    | results          | Of each topic the name or id as in the request, and the error code of each partition |
    | queued_offsets   | The offsets of the last such request, as int64, while its write is queued; empty otherwise |
    | revision         | That of the topics when their partitions were checked |
    | unknown          | The partitions that do not exist, as far as is known |
    """

    __slots__ = (
        "_success_body",
        "committer", "group", "keys", "positions", "queued_offsets", "results", "retention_ms", "revision", "stored",
        "unknown", "version", "without_member",
    )  # fmt: skip

    def __init__(self, group: bytes, version: int, retention_ms: int, revision: int, committer: CommitSender) -> None:
        self.group, self.version, self.retention_ms, self.committer = group, version, retention_ms, committer
        self.revision = revision
        self.without_member = committer.generation < 0 and not committer.member and committer.instance is None
        self.keys: list[bytes] = []
        self.stored: list[StoredFields] = []
        self.positions: list[int] = []
        self.results: list[tuple[bytes, list[tuple[int, int]]]] = []
        self.unknown: list[NamedPartition] = []
        self.queued_offsets = b""
        self._success_body = b""

    def add(self, key: bytes, stored: StoredFields, position: int) -> None:
        """Add a partition to store, with the position of its offset in the body of the request."""
        self.keys.append(key)
        self.stored.append(stored)
        self.positions.append(position)

    def accepts_all(self) -> bool:
        """Return whether no partition has an error of its own."""
        return len(self.keys) == sum(len(partitions) for _, partitions in self.results)

    def success_body(self) -> bytes:
        """Return the body of the answer if all partitions without an error of their own are stored."""
        self._success_body = self._success_body or self.body(NONE)
        return self._success_body

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
