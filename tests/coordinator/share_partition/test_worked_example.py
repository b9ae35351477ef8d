"""The worked example of KIP-932: the state of a share partition, and what is written, after each operation."""

from dataclasses import dataclass

import pytest

from offsetlake.coordinator.share_partition.batch import RecordState
from offsetlake.coordinator.share_partition.partition import SharePartition
from offsetlake.coordinator.share_partition.requests import (
    AcknowledgementBatch,
    AcknowledgeType,
    AcquireRequest,
    FetchedBatch,
    PersisterWrite,
)
from offsetlake.coordinator.share_partition.settings import ShareSettings
from offsetlake.rules.share_state import ShareSnapshot
from offsetlake.serve.steps import complete

LOG = (FetchedBatch(100, 109), FetchedBatch(110, 119), FetchedBatch(120, 120))
TABLE = """
| Seconds | Operation      | SPSO | SPEO | Records in flight                                        | Written      |
|---------|----------------|------|------|----------------------------------------------------------|--------------|
| 0       | fetch 100-109  | 100  | 110  | 100-109 acq1                                             |              |
| 0       | accept 100-109 | 110  | 110  |                                                          | 100-109 ack1 |
| 0       | fetch 110-119  | 110  | 120  | 110-119 acq1                                             |              |
| 1       | release 110    | 110  | 120  | 110 avl1, 111-119 acq1                                   | 110 avl1     |
| 2       | accept 119     | 110  | 120  | 110 avl1, 111-118 acq1, 119 ack1                         | 119 ack1     |
| 10      | renew 113-118  | 110  | 120  | 110 avl1, 111-118 acq1, 119 ack1                         |              |
| 20      | fetch 110-120  | 110  | 121  | 110 acq2, 111-118 acq1, 119 ack1, 120 acq1               |              |
| 30      | lock timeout   | 110  | 121  | 110 acq2, 111-112 avl1, 113-118 acq1, 119 ack1, 120 acq1 | 111-112 avl1 |
| 31      | accept 113-118 | 110  | 121  | 110 acq2, 111-112 avl1, 113-119 ack1, 120 acq1           | 113-118 ack1 |
| 32      | fetch 111-112  | 110  | 121  | 110-112 acq2, 113-119 ack1, 120 acq1                     |              |
| 33      | accept 110     | 111  | 121  | 111-112 acq2, 113-119 ack1, 120 acq1                     | 110 ack2     |
| 34      | accept 111-112 | 120  | 121  | 120 acq1                                                 | 111-112 ack2 |
"""
"""Records are available, acquired or acknowledged, with the delivery count; the locks last 30 seconds."""
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TABLE.strip().splitlines()[2:]]
NAMES = {RecordState.AVAILABLE: "avl", RecordState.ACQUIRED: "acq", RecordState.ACKNOWLEDGED: "ack"}


@dataclass
class Leader:
    """A share partition whose writes succeed at once."""

    partition: SharePartition

    def run(self, now_ms: int, operation: str) -> PersisterWrite | None:
        name, _, offsets = operation.partition(" ")
        write: PersisterWrite | None = None
        if operation == "lock timeout":
            write = self.partition.time_out(now_ms)
        else:
            first, last = (int(offset) for offset in (offsets.split("-") * 2)[:2])
            if name == "fetch":
                self._fetch(now_ms, first, last)
            else:
                batch = AcknowledgementBatch(first, last, [AcknowledgeType[name.upper()]])
                write = complete(self.partition.acknowledge(now_ms, "member", [batch])).write
        if write:
            self.partition.persisted(now_ms, write)
        return write

    def _fetch(self, now_ms: int, first: int, last: int) -> None:
        assert self.partition.next_fetch_offset() == first
        batches = [batch for batch in LOG if first <= batch.last_offset and batch.first_offset <= last]
        self.partition.acquire(now_ms, AcquireRequest("member", 500, 500, first, batches))


def _text(ranges: list[tuple[int, int, RecordState, int]]) -> str:
    """Return ranges as text; adjacent ones that only differ in who has them or until when are joined."""
    joined: list[tuple[int, int, RecordState, int]] = []
    for first, last, state, count in ranges:
        if joined and joined[-1][1] + 1 == first and joined[-1][2:] == (state, count):
            joined[-1] = (joined[-1][0], last, state, count)
        else:
            joined.append((first, last, state, count))
    return ", ".join(
        f"{first}{f'-{last}' if last > first else ''} {NAMES[state]}{count}" for first, last, state, count in joined
    )


def test_worked_example() -> None:
    partition = SharePartition(ShareSettings(), ShareSnapshot(0, 1, 2, 100))
    leader = Leader(partition)
    for seconds, operation, start, end, in_flight, written in ROWS:
        write = leader.run(int(seconds) * 1_000, operation)
        end_offset = partition.end_offset + (partition.records_in_flight > 0)
        spans = [
            (max(span.first_offset, int(start)), span.last_offset, span.status.state, span.status.delivery_count)
            for span in partition.spans()
            if span.last_offset >= int(start)
        ]
        batches = [
            (batch.first_offset, batch.last_offset, RecordState(batch.delivery_state), batch.delivery_count)
            for batch in (write.batches if write else ())
        ]
        assert (str(partition.start_offset), str(end_offset)) == (start, end), operation
        assert (_text(spans), _text(batches)) == (in_flight, written), operation


CASES = [(1, 100, 10), (4, 110, 1), (8, 110, 7), (10, 110, 8), (11, 111, 9)]


@pytest.mark.parametrize(("row", "start", "complete"), CASES)
def test_a_write_has_the_start_offset_from_before_it_is_durable(row: int, start: int, complete: int) -> None:
    leader = Leader(SharePartition(ShareSettings(), ShareSnapshot(0, 1, 2, 100)))
    write = [leader.run(int(seconds) * 1_000, operation) for seconds, operation, *_ in ROWS][row]
    assert write
    assert (write.state_epoch, write.leader_epoch) == (1, 2)
    assert (write.start_offset, write.delivery_complete_count) == (start, complete)
