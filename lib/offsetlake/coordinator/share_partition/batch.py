"""A batch of records in flight, with one status for each run of records that have the same status."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from itertools import pairwise
from typing import NamedTuple

NO_MEMBER = ""
NO_LOCK = -1
NO_WRITE = 0


class RecordState(IntEnum):
    """The state of a record; those but ACQUIRED are the delivery states in the log (`RecordState` in Kafka)."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class RecordStatus(NamedTuple):
    """The status of a record; records share the objects.

    Attributes:
        state: The state, which may not be durable yet.
        delivery_count: How often the record was acquired.
        member_id: The member that has acquired the record, or that has it again if the write fails.
        lock_expires_ms: When the lock of that member expires, in ms of the caller's clock; NO_LOCK if there is none.
        write_id: The write that makes the state durable; NO_WRITE if the state does not depend on one.
    """

    state: RecordState
    delivery_count: int
    member_id: str = NO_MEMBER
    lock_expires_ms: int = NO_LOCK
    write_id: int = NO_WRITE

    @property
    def is_available(self) -> bool:
        """Whether a member can acquire the record."""
        return self.state is RecordState.AVAILABLE and self.write_id == NO_WRITE

    @property
    def is_terminal(self) -> bool:
        """Whether the record is acknowledged or archived."""
        return self.state >= RecordState.ACKNOWLEDGED

    @property
    def is_complete(self) -> bool:
        """Whether the record is acknowledged or archived, and no write can change that."""
        return self.is_terminal and self.write_id == NO_WRITE

    def is_acquired_by(self, member_id: str) -> bool:
        """Return whether the member has acquired the record."""
        return self.state is RecordState.ACQUIRED and self.member_id == member_id

    def archived(self) -> "RecordStatus":
        """Return the status after archiving, which no failed write reverts."""
        if self.write_id == NO_WRITE:
            return settled(RecordState.ARCHIVED, self.delivery_count)
        return RecordStatus(RecordState.ARCHIVED, self.delivery_count, write_id=self.write_id)

    def completed(self, is_durable: bool, now_ms: int, max_delivery_count: int) -> "RecordStatus":
        """Return the status after its write; without the change if the write failed, unless the lock expired."""
        if is_durable or self.member_id == NO_MEMBER:
            return settled(self.state, self.delivery_count)
        if self.lock_expires_ms > now_ms:
            return RecordStatus(RecordState.ACQUIRED, self.delivery_count, self.member_id, self.lock_expires_ms)
        is_last = self.delivery_count >= max_delivery_count
        return settled(RecordState.ARCHIVED if is_last else RecordState.AVAILABLE, self.delivery_count)


@cache
def settled(state: RecordState, delivery_count: int) -> RecordStatus:
    """Return the status, one object for all records, of a record that no member has acquired."""
    return RecordStatus(state, delivery_count)


class Span(NamedTuple):
    """A range of records with the same status."""

    first_offset: int
    last_offset: int
    status: RecordStatus

    @property
    def records(self) -> int:
        """The number of offsets."""
        return self.last_offset - self.first_offset + 1


class InFlightBatch:
    """Consecutive offsets that were fetched together.

    Attributes:
        first_offset: The first offset.
        last_offset: The last offset.
        is_divided: Whether records are treated one by one from now on, even if all have the same status.
    """

    __slots__ = ("_ends", "_statuses", "first_offset", "is_divided", "last_offset")

    def __init__(self, first_offset: int, last_offset: int, status: RecordStatus) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.is_divided = False
        self._ends = array("q", (last_offset,))
        self._statuses = [status]

    @property
    def records(self) -> int:
        """The number of offsets."""
        return self.last_offset - self.first_offset + 1

    @property
    def status(self) -> RecordStatus:
        """The status of all records of a batch that is not divided."""
        return self._statuses[0]

    def is_within(self, first_offset: int, last_offset: int) -> bool:
        """Return whether all offsets are in the range."""
        return first_offset <= self.first_offset and self.last_offset <= last_offset

    def spans(self, first_offset: int, last_offset: int) -> Iterator[Span]:
        """Yield the runs in a range of offsets; they must not be changed while the iterator is used."""
        first = max(first_offset, self.first_offset)
        last = min(last_offset, self.last_offset)
        index = bisect_left(self._ends, first)
        while first <= last:
            end = min(self._ends[index], last)
            yield Span(first, end, self._statuses[index])
            first = end + 1
            index += 1

    def put(self, first_offset: int, last_offset: int, status: RecordStatus) -> None:
        """Set the status of a range of offsets of the batch, and join runs of the same status."""
        self.replace(first_offset, [(last_offset, status)])

    def replace(self, first_offset: int, runs: list[tuple[int, RecordStatus]]) -> None:
        """Set the statuses from an offset on, each up to the last offset of its run; join runs of the same status."""
        ends, statuses, last_offset = self._ends, self._statuses, runs[-1][0]
        first, last = bisect_left(ends, first_offset), bisect_left(ends, last_offset)
        if (ends[first - 1] + 1 if first else self.first_offset) < first_offset:
            runs = [(first_offset - 1, statuses[first]), *runs]
        elif first:
            first -= 1
            runs = [(ends[first], statuses[first]), *runs]
        if last_offset == ends[last] and last + 1 < len(ends):
            last += 1
        if last_offset < ends[last]:
            runs.append((ends[last], statuses[last]))
        joined = [run for run, following in pairwise(runs) if run[1] != following[1]]
        joined.append(runs[-1])
        ends[first : last + 1] = array("q", [end for end, _ in joined])
        statuses[first : last + 1] = [status for _, status in joined]
