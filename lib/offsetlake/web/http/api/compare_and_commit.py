"""Compare-and-commit: all offsets of a commit are stored if the committed offsets are the expected ones, else none."""

import asyncio
import struct
from collections.abc import Sequence
from typing import NamedTuple

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches.writer import Batch, Headers, record_batch
from offsetlake.kafka.commits.encoding import offset_commit_key, offset_commit_value
from offsetlake.kafka.error_codes import (
    KAFKA_STORAGE_ERROR,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSTABLE_OFFSET_COMMIT,
)
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.storage.group_details import NO_MEMBER
from offsetlake.serve.storage.mapped_snapshot import Stored
from offsetlake.serve.storage.memtable import VALUE
from offsetlake.serve.storage.store import Store, key
from offsetlake.serve.writes.commit_rules import commit_error
from offsetlake.util.times import now_ms

_OFFSET_COMMIT_VERSION = 10  # whose error codes apply
_PARTITION = struct.Struct(">i")


class ExpectedCommit(NamedTuple):
    """An offset to store, and the committed offset that is expected; None expects that there is none."""

    topic: bytes
    partition: int
    expected: int | None
    offset: int
    epoch: int
    metadata: bytes


class CurrentOffset(NamedTuple):
    """The committed offset of a partition."""

    topic: bytes
    partition: int
    stored: Stored | None


class CommitOutcome(NamedTuple):
    """The outcome of a compare-and-commit.

    | Field      | Description |
    |------------|-------------|
    | error      | An error code of Kafka's, with which nothing was written, or NONE |
    | differing  | The committed offsets that are not the expected ones; if there are any, nothing was written |
    | log_offset | The log offset of the first record; -1 if nothing was written |
    """

    error: int = NONE
    differing: tuple[CurrentOffset, ...] = ()
    log_offset: int = -1


class CompareAndCommit:
    """A write that compares when all writes before it are done."""

    exclusive = True

    def __init__(
        self,
        partition: int,
        group: bytes,
        offsets: Sequence[ExpectedCommit],
        store: Store,
        topics: Topics,
        audit: Headers,
        done: asyncio.Future[CommitOutcome],
    ) -> None:
        self.partition, self._group, self._offsets = partition, group, offsets
        self._store, self._topics, self._audit, self._done = store, topics, audit, done
        self._outcome = CommitOutcome()

    def batches(self) -> Sequence[Batch]:
        """Return one batch of all offsets, or none if the commit is refused."""
        error = self._error()
        self._outcome = CommitOutcome(error, () if error else self._differing())
        if self._outcome != CommitOutcome():
            return ()
        now = now_ms()
        records = [
            (
                offset_commit_key(self._group, offset.topic) + _PARTITION.pack(offset.partition),
                offset_commit_value(offset.offset, offset.epoch, offset.metadata, now, -1, ZERO_UUID),
            )
            for offset in self._offsets
        ]
        return (record_batch(now, records, self._audit),)

    def written(self, firsts: list[int]) -> None:
        """Store the offsets and report the outcome."""
        if firsts:
            values = {
                key(new.topic, new.partition): VALUE.pack(new.offset, new.epoch, ZERO_UUID) + new.metadata
                for new in self._offsets
            }
            self._store.commit(self._group, values, firsts[0] + len(values) - 1)
            for offset in self._offsets:
                self._topics.grow(offset.topic, offset.partition)
            self._outcome = CommitOutcome(log_offset=firsts[0])
        if not self._done.cancelled():
            self._done.set_result(self._outcome)

    def failed(self, error: LogUnavailable) -> None:
        """Report the error; nothing was written."""
        if not self._done.cancelled():
            self._done.set_exception(error)

    def _error(self) -> int:
        """Return the error code of a commit without a member.

        Offsets of open transactions, and those that are unknown, cannot be compared.
        """
        error = commit_error(self._store, self._group, NO_MEMBER, _OFFSET_COMMIT_VERSION)
        if error:
            return error
        for offset in self._offsets:
            if not self._topics.has_partition(offset.topic, offset.partition):
                return UNKNOWN_TOPIC_OR_PARTITION
            if self._store.is_unstable(self._group, offset.topic, offset.partition):
                return UNSTABLE_OFFSET_COMMIT
            if self._is_unknown(offset):
                return KAFKA_STORAGE_ERROR
        return NONE

    def _is_unknown(self, offset: ExpectedCommit) -> bool:
        doubt = self._store.doubt(self._group)
        if doubt is None:
            return False
        (stored,) = self._store.read(self._group, offset.topic, (offset.partition,))
        return doubt.concerns(key(offset.topic, offset.partition), is_stored=stored is not None)

    def _differing(self) -> tuple[CurrentOffset, ...]:
        differing = []
        for offset in self._offsets:
            (stored,) = self._store.read(self._group, offset.topic, (offset.partition,))
            if (None if stored is None else stored[0]) != offset.expected:
                differing.append(CurrentOffset(offset.topic, offset.partition, stored))
        return tuple(differing)
