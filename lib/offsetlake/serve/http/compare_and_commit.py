"""A commit that holds only if the offsets it replaces are still what its author has seen; all of it, or none."""

import asyncio
import struct
from collections.abc import Sequence
from typing import NamedTuple

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches.writer import Batch, Headers, record_batch
from offsetlake.kafka.commits.encoding import offset_commit_key, offset_commit_value
from offsetlake.kafka.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION, UNSTABLE_OFFSET_COMMIT
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.storage.mapped_snapshot import Stored
from offsetlake.serve.storage.store import VALUE, Store, key
from offsetlake.serve.writes.commit_rules import NOBODY, refusal
from offsetlake.util.times import now_ms

_NEWEST_VERSION = 10
_PARTITION = struct.Struct(">i")


class ExpectedCommit(NamedTuple):
    """An offset to store, and the one that must stand until then; `expected` is None where there must be none."""

    topic: bytes
    partition: int
    expected: int | None
    offset: int
    epoch: int
    metadata: bytes


class CurrentOffset(NamedTuple):
    """What stands of a partition."""

    topic: bytes
    partition: int
    stored: Stored | None


class Outcome(NamedTuple):
    """What came of it.

    | field      | is |
    |------------|----|
    | error      | NONE, or an error code of Kafka's: nothing was written |
    | differing  | where something else stands than was expected: nothing was written |
    | log_offset | of the first record; -1 where nothing was written |
    """

    error: int = NONE
    differing: tuple[CurrentOffset, ...] = ()
    log_offset: int = -1


class CompareAndCommit:
    """Decides when its turn has come, with all before it written, and has its round for itself."""

    alone = True

    def __init__(
        self,
        partition: int,
        group: bytes,
        exchanges: Sequence[ExpectedCommit],
        store: Store,
        topics: Topics,
        audit: Headers,
        done: asyncio.Future[Outcome],
    ) -> None:
        self.partition, self._group, self._exchanges = partition, group, exchanges
        self._store, self._topics, self._audit, self._done = store, topics, audit, done
        self._outcome = Outcome()

    def batches(self) -> Sequence[Batch]:
        """Give one batch of all offsets, none where one of them stands in the way."""
        error = self._refusal()
        self._outcome = Outcome(error, () if error else self._differing())
        if self._outcome != Outcome():
            return ()
        now = now_ms()
        records = [
            (
                offset_commit_key(self._group, each.topic) + _PARTITION.pack(each.partition),
                offset_commit_value(each.offset, each.epoch, each.metadata, now, -1, ZERO_UUID),
            )
            for each in self._exchanges
        ]
        return (record_batch(now, records, self._audit),)

    def written(self, firsts: list[int]) -> None:
        """Serve it from now on, and tell."""
        if firsts:
            values = {
                key(each.topic, each.partition): VALUE.pack(each.offset, each.epoch, ZERO_UUID) + each.metadata
                for each in self._exchanges
            }
            self._store.commit(self._group, values, firsts[0] + len(values) - 1)
            for each in self._exchanges:
                self._topics.grow(each.topic, each.partition)
            self._outcome = Outcome(log_offset=firsts[0])
        if not self._done.cancelled():
            self._done.set_result(self._outcome)

    def failed(self, error: LogUnavailable) -> None:
        """Tell why nothing was written."""
        if not self._done.cancelled():
            self._done.set_exception(error)

    def _refusal(self) -> int:
        """Give the error code of a commit by nobody's member; in an open transaction nobody knows what stands."""
        group = self._store.group(self._group)
        error = refusal(group, lambda: self._store.members(self._group), NOBODY, _NEWEST_VERSION)
        if error:
            return error
        for each in self._exchanges:
            if not self._topics.has_partition(each.topic, each.partition):
                return UNKNOWN_TOPIC_OR_PARTITION
            if self._store.is_unstable(self._group, each.topic, each.partition):
                return UNSTABLE_OFFSET_COMMIT
        return NONE

    def _differing(self) -> tuple[CurrentOffset, ...]:
        found = []
        for each in self._exchanges:
            (stored,) = self._store.read(self._group, each.topic, (each.partition,))
            if (None if stored is None else stored[0]) != each.expected:
                found.append(CurrentOffset(each.topic, each.partition, stored))
        return tuple(found)
