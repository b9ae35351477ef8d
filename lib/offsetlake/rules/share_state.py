"""Replays the records of `__share_group_state`, in log order, to the latest state of each share partition.

The result is the state of a share coordinator of Kafka 4.2 that has loaded the same log (`ShareCoordinatorShard.replay`
and `PersisterStateBatchCombiner` in Kafka), including how records are divided into batches, because the coordinator
returns these batches and writes them in its next snapshot.

| Record    | No state          | State    |
|-----------|-------------------|----------|
| snapshot  | state of it       | replaced |
| update    | state of it alone | updated  |
| tombstone | ignored           | removed  |

An update replaces the start offset and the leader epoch unless they are -1, always replaces the delivery complete
count, and adds batches, which are combined with those of the state. Its snapshot epoch is not compared with that of the
state. An update without a state has the state epoch 0 and no timestamps. There is one difference to Kafka: a batch
whose last offset is before its first one contains no record and is ignored, whereas Kafka's combination of such a batch
may never end.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

UNKNOWN = -1
"""A start offset, leader epoch or delivery complete count that is undecided, or that an update does not change."""


class DeliveryState(IntEnum):
    """The delivery states of records that are in the log; an acquired record has its former state there."""

    AVAILABLE = 0
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """A range of records with one delivery state; batches compare in the order in which they are combined."""

    first_offset: int
    last_offset: int
    delivery_count: int
    delivery_state: int

    @property
    def records(self) -> int:
        """The number of records."""
        return self.last_offset - self.first_offset + 1


class ShareSnapshot(NamedTuple):
    """A ShareSnapshotValue: the whole state of a share partition. Timestamps are in ms since the epoch."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = UNKNOWN
    create_timestamp: int = 0
    write_timestamp: int = 0


class ShareUpdate(NamedTuple):
    """A ShareUpdateValue: a change of the state of a share partition."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = UNKNOWN


class SharePartitionState(NamedTuple):
    """The state of a share partition.

    Attributes:
        snapshot: The latest snapshot with all later updates applied.
        highest_state_epoch: The highest state epoch of all records; requests with a lower one are fenced.
        highest_leader_epoch: The highest leader epoch of all records; requests with a lower one are fenced.
    """

    snapshot: ShareSnapshot
    highest_state_epoch: int
    highest_leader_epoch: int

    @property
    def end_offset(self) -> int:
        """The offset after the last record in flight, UNKNOWN if the start offset is undecided without batches."""
        ends = (batch.last_offset + 1 for batch in self.snapshot.batches)
        return max(self.snapshot.start_offset, *ends, UNKNOWN)


def replay(state: SharePartitionState | None, record: ShareSnapshot | ShareUpdate | None) -> SharePartitionState | None:
    """Return the state of a share partition after its next record in log order; None is a tombstone or no state."""
    if record is None:
        return None
    if any(batch.last_offset < batch.first_offset for batch in record.batches):
        record = record._replace(batches=tuple(batch for batch in record.batches if batch.records > 0))
    if isinstance(record, ShareSnapshot):
        snapshot = record
    elif state is None:
        snapshot = ShareSnapshot(
            record.snapshot_epoch, 0, record.leader_epoch, record.start_offset, record.batches,
            record.delivery_complete_count,
        )  # fmt: skip
    else:
        snapshot = _updated(state.snapshot, record)
    if state is None:
        return SharePartitionState(snapshot, snapshot.state_epoch, snapshot.leader_epoch)
    return SharePartitionState(
        snapshot,
        max(state.highest_state_epoch, snapshot.state_epoch),
        max(state.highest_leader_epoch, snapshot.leader_epoch),
    )


def _updated(snapshot: ShareSnapshot, update: ShareUpdate) -> ShareSnapshot:
    start_offset = snapshot.start_offset if update.start_offset == UNKNOWN else update.start_offset
    return ShareSnapshot(  # not `_replace`, which takes five times as long
        snapshot.snapshot_epoch,
        snapshot.state_epoch,
        snapshot.leader_epoch if update.leader_epoch == UNKNOWN else update.leader_epoch,
        start_offset,
        combine((*snapshot.batches, *update.batches), start_offset),
        update.delivery_complete_count,
        snapshot.create_timestamp,
        snapshot.write_timestamp,
    )


def combine(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Combine batches into sorted ones that do not overlap, without the records before `start_offset`.

    Of several batches with a record, that with the highest delivery count applies, and among these that with the
    highest delivery state. Adjacent batches are joined where Kafka joins them, which is not everywhere.

    Args:
        batches: The batches, each with at least one record.
        start_offset: The start offset; UNKNOWN to keep all records.
    """
    kept = sorted(_since(batches, start_offset))  # which is also a heap
    if not any(_is_mergeable(previous, candidate) for previous, candidate in pairwise(kept)):
        return tuple(kept)
    combined: list[StateBatch] = []
    previous = heappop(kept)
    while kept:
        candidate = heappop(kept)
        if _is_mergeable(previous, candidate):
            for piece in _merged(previous, candidate):
                heappush(kept, piece)
            candidate = heappop(kept)
        else:
            combined.append(previous)
        previous = candidate
    return (*combined, previous)


def _since(batches: Iterable[StateBatch], start_offset: int) -> Iterator[StateBatch]:
    for batch in batches:
        if start_offset == UNKNOWN or batch.first_offset >= start_offset:
            yield batch
        elif batch.last_offset >= start_offset:
            yield StateBatch(start_offset, *batch[1:])


def _is_mergeable(previous: StateBatch, candidate: StateBatch) -> bool:
    if candidate.first_offset <= previous.last_offset:
        return True
    return candidate.first_offset == previous.last_offset + 1 and candidate[2:] == previous[2:]


def _merged(previous: StateBatch, candidate: StateBatch) -> Iterator[StateBatch]:
    """Yield the batches that replace two mergeable ones, of which `candidate` is not before `previous`."""
    if candidate[2:] == previous[2:]:
        yield StateBatch(previous[0], max(previous[1], candidate[1]), *previous[2:])
    elif candidate[2:] < previous[2:]:
        yield previous
        if candidate.last_offset > previous.last_offset:
            yield StateBatch(previous[1] + 1, *candidate[1:])
    else:
        if previous.first_offset < candidate.first_offset:
            yield StateBatch(previous[0], candidate[0] - 1, *previous[2:])
        yield candidate
        if previous.last_offset > candidate.last_offset:
            yield StateBatch(candidate[1] + 1, *previous[1:])
