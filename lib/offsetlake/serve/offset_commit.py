"""OffsetCommit, versions 2 to 10: one request is one record batch, all of its offsets in the log or none."""

import struct
from collections.abc import Callable
from functools import lru_cache

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batch_writer import Batch, Record, offset_commit_key, offset_commit_value, record_batch
from offsetlake.kafka.placement import partition_for_group
from offsetlake.serve import commit_rules as rules
from offsetlake.serve import wire
from offsetlake.serve.base import NO_ID
from offsetlake.serve.commit_rules import NONE, Committer
from offsetlake.serve.store import VALUE, Store
from offsetlake.serve.topics import LAST_OFFSET, Topics
from offsetlake.serve.writes import Writes
from offsetlake.times import now_ms

VERSIONS = range(2, 11)
METADATA_LIMIT = 4096  # UTF-16 units: offset.metadata.max.bytes of a broker
_RETENTION, _THROTTLE, _EPOCH, _INSTANCE, _FLEXIBLE, _TOPIC_IDS = 4, 3, 6, 7, 8, 10
_INT32 = struct.Struct(">i")
_ANSWERED = struct.Struct(">ih")

Stored = tuple[bytes, int, int, bytes, bytes]
"""What is stored of a partition but its log offset: key within the group, offset, leader epoch, topic id, metadata."""

Answer = Callable[[bytes], None]
Answered = list[tuple[bytes, list[tuple[int, int]]]]
"""Of each topic its name or id as the request has it, and error codes by partition."""


class Commit:
    """A request that goes to the log; its records are made, their log offsets are not known yet."""

    __slots__ = ("_answer", "_answered", "_batch", "_group", "_store", "_stored", "_version", "alone", "partition")

    def __init__(
        self,
        partition: int,
        batch: Batch,
        store: Store,
        group: bytes,
        stored: list[Stored],
        answered: Answered,
        version: int,
        answer: Answer,
    ) -> None:
        self.partition, self.alone, self._batch = partition, False, batch
        self._store, self._group, self._stored = store, group, stored
        self._answered, self._version, self._answer = answered, version, answer

    def batches(self) -> tuple[Batch]:
        """Give the one batch."""
        return (self._batch,)

    def written(self, firsts: list[int]) -> None:
        """Serve it from now on, and answer."""
        at = firsts[0]
        values = {}
        for name, offset, epoch, topic_id, metadata in self._stored:
            values[name] = VALUE.pack(offset, epoch, at, topic_id) + metadata
            at += 1
        self._store.commit(self._group, values, at - 1)
        self._answer(_body(self._answered, self._version, NONE))

    def failed(self, _error: LogUnavailable) -> None:
        """Answer as a broker does whose disk takes no more."""
        self._answer(_body(self._answered, self._version, rules.NOT_COORDINATOR))


class OffsetCommit:
    """Takes OffsetCommit requests to the log."""

    def __init__(self, store: Store, topics: Topics, writes: Writes, log_partitions: int) -> None:
        self._store, self._topics, self._writes = store, topics, writes
        self.log_partition = lru_cache(1 << 16)(
            lambda group: partition_for_group(group.decode(errors="replace"), log_partitions)
        )

    def take(self, frame: bytes, at: int, version: int, answer: Answer) -> None:
        """Take the request whose body begins at `at`; `answer` is called with the body of the answer, now or later.

        Raises Malformed, IndexError or struct.error where the bytes are no such request.
        """
        cursor = wire.Cursor(frame, at, flexible=version >= _FLEXIBLE)
        group = cursor.string()
        generation, member = cursor.int32(), cursor.string()
        instance = cursor.string() if version >= _INSTANCE else None
        retention = cursor.int64() if version <= _RETENTION else -1
        now = now_ms()
        expiry = -1 if retention < 0 else now + retention
        error = rules.INVALID_GROUP_ID if group is None else NONE
        if self._store.loading:
            error = rules.COORDINATOR_LOAD_IN_PROGRESS
        group = group or b""
        known = generation < 0 and not member and instance is None and self._store.takes_commits(group)
        if not error and not known:
            committer = Committer(generation, member or b"", instance)
            error = rules.refusal(self._store.group(group), lambda: self._store.members(group), committer, version)
        stored: list[Stored] = []
        records: list[Record] = []
        answered: Answered = []
        for _ in range(cursor.length()):
            self._read_topic(cursor, version, group, (now, expiry), error, stored, records, answered)
        cursor.tags()
        if not records:
            answer(_body(answered, version, error))
            return
        partition = self.log_partition(group)
        batch = record_batch(now, records)
        self._writes.add(Commit(partition, batch, self._store, group, stored, answered, version, answer))

    def _read_topic(
        self,
        cursor: wire.Cursor,
        version: int,
        group: bytes,
        times: tuple[int, int],
        error: int,
        stored: list[Stored],
        records: list[Record],
        answered: Answered,
    ) -> None:
        """Read a topic of a request, and make what is to be stored, written and answered of it."""
        if version >= _TOPIC_IDS:
            named = topic_id = cursor.raw(16)
            name = self._topics.name_of(topic_id)
        else:
            name, topic_id = cursor.string() or b"", NO_ID
            named = wire.string(name, flexible=version >= _FLEXIBLE)
        partitions: list[tuple[int, int]] = []
        answered.append((named, partitions))
        prefix = b"" if name is None else offset_commit_key(group, name)
        for partition, offset, epoch, metadata in cursor.committed(epochs=version >= _EPOCH):
            if name is None:
                code = rules.UNKNOWN_TOPIC_ID
            elif not self._topics.holds(name, partition):
                code = rules.UNKNOWN_TOPIC_OR_PARTITION
            elif offset == LAST_OFFSET:  # the end ListOffsets gives for one that nobody knows
                code = error or rules.OFFSET_OUT_OF_RANGE
            else:
                code = error or _too_large(metadata)
            partitions.append((partition, code))
            if not code and name is not None:
                self._topics.grow(name, partition)
                number = _INT32.pack(partition)
                stored.append((name + number, offset, epoch, topic_id, metadata))
                value = offset_commit_value(offset, epoch, metadata, *times, topic_id)
                records.append((prefix + number, value))
        cursor.tags()


def _too_large(metadata: bytes) -> int:
    units = len(metadata) if len(metadata) <= METADATA_LIMIT else len(metadata.decode().encode("utf-16-le")) // 2
    return rules.OFFSET_METADATA_TOO_LARGE if units > METADATA_LIMIT else NONE


def _body(answered: Answered, version: int, error: int) -> bytes:
    """Write the answer; partitions without an error of their own get `error`."""
    flexible = version >= _FLEXIBLE
    tags = b"\0" if flexible else b""
    out = [bytes(4)] if version >= _THROTTLE else []
    out.append(wire.count(len(answered), flexible=flexible))
    for named, partitions in answered:
        out += (named, wire.count(len(partitions), flexible=flexible))
        out += [_ANSWERED.pack(partition, code or error) + tags for partition, code in partitions]
        out.append(tags)
    out.append(tags)
    return b"".join(out)
