"""Acknowledgements in steps of a few ranges, between which other members, timers and writes change the same records."""

from random import Random
from typing import TYPE_CHECKING

import pytest

from offsetlake.coordinator.share_partition import changes, requests
from offsetlake.coordinator.share_partition.batch import NO_WRITE, RecordState
from offsetlake.coordinator.share_partition.partition import SharePartition
from offsetlake.coordinator.share_partition.requests import (
    Acknowledged,
    AcknowledgementBatch,
    AcquireMode,
    AcquireRequest,
    FetchedBatch,
    PersisterWrite,
)
from offsetlake.coordinator.share_partition.settings import ShareSettings
from offsetlake.rules.share_state import ShareSnapshot

if TYPE_CHECKING:
    from offsetlake.coordinator.share_partition.steps import Steps

ACCEPT, RELEASE, RENEW = 1, 2, 4
MEMBERS = ("m1", "m2", "m3")
SETTINGS = ShareSettings(max_in_flight_records=60, max_delivery_count=1000, record_lock_duration_ms=50)
OPERATIONS = 500


class Walk:
    """A share partition, what is under way, and the offsets whose acceptance is durable."""

    def __init__(self, seed: int) -> None:
        self.rng, self.now = Random(seed), 0
        self.partition = SharePartition(SETTINGS, ShareSnapshot(0, 0, 0, 0))
        self.accepted: set[int] = set()
        self._steps: list[tuple[Steps[Acknowledged], set[int]]] = []
        self._writes: list[tuple[PersisterWrite, set[int]]] = []

    def run(self) -> None:
        operations = {
            self.acquire: 4, self.acknowledge: 2, self.step: 20, self.release: 0.3, self.time_out: 1, self.end_write: 8,
        }  # fmt: skip
        for operation in self.rng.choices([*operations], [*operations.values()], k=OPERATIONS):
            operation()
            self.check_timer()
        while self._steps:
            self.step()
        while self._writes:
            self.end_write()
        self.check_timer()

    def acquire(self) -> None:
        first, member = self.partition.next_fetch_offset(), self.rng.choice(MEMBERS)
        batches = [FetchedBatch(first, first + 6), FetchedBatch(first + 7, first + 13)]
        limits = self.rng.randrange(1, 20), self.rng.randrange(1, 10)
        mode = self.rng.choice([*AcquireMode])
        if self.partition.can_acquire():
            self.partition.acquire(self.now, AcquireRequest(member, *limits, first, batches, mode=mode))

    def acknowledge(self) -> None:
        """Begin with some records of a member, or with records that it may not have acquired."""
        member, accepted = self.rng.choice(MEMBERS), set[int]()
        spans = [*self.partition.spans()]
        batches = []
        for span in [each for each in spans if each.status.is_acquired_by(member)] or spans:
            if self.rng.random() < 0.7:
                offsets = range(self.rng.randint(span.first_offset, span.last_offset), span.last_offset + 1)
                types = self.rng.choices((ACCEPT, RELEASE, RENEW), k=self.rng.choice((1, len(offsets))))
                batches.append(AcknowledgementBatch(offsets[0], offsets[-1], types))
                every = types if len(types) > 1 else types * len(offsets)
                accepted |= {offset for offset, kind in zip(offsets, every, strict=True) if kind == ACCEPT}
        self._steps.append((self.partition.acknowledge(self.now, member, batches), accepted))

    def step(self) -> None:
        if not self._steps:
            return
        steps, accepted = self._steps.pop(self.rng.randrange(len(self._steps)))
        try:
            next(steps)
            self._steps.append((steps, accepted))
        except StopIteration as end:
            result: Acknowledged = end.value
            if result.write is not None:
                self._writes.append((result.write, accepted))

    def release(self) -> None:
        self._add(self.partition.release(self.rng.choice(MEMBERS)))

    def time_out(self) -> None:
        self.now += self.rng.randrange(SETTINGS.record_lock_duration_ms)
        self._add(self.partition.time_out(self.now))

    def end_write(self) -> None:
        if not self._writes:
            return
        write, accepted = self._writes.pop(self.rng.randrange(len(self._writes)))
        if self.rng.random() < 0.7:
            self.partition.persisted(self.now, write)
            self.accepted |= {
                offset for offset in accepted if any(each[0] <= offset <= each[1] for each in write.batches)
            }
        else:
            self.partition.not_persisted(self.now, write)

    def check_timer(self) -> None:
        """Expect a timer for each lock, unless an acknowledgement that can renew it is under way."""
        acquired = [span.status for span in self.partition.spans() if span.status.state is RecordState.ACQUIRED]
        if acquired and not self._steps:
            due_ms = max(self.now, min(status.lock_expires_ms for status in acquired))
            assert self.partition.next_timeout_ms is not None
            assert self.partition.next_timeout_ms <= due_ms

    def _add(self, write: PersisterWrite | None) -> None:
        if write is not None:
            self._writes.append((write, set()))


@pytest.mark.parametrize("seed", range(60))
def test_records_are_acknowledged_by_whole_requests_whose_write_succeeded(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(changes, "RANGES_PER_STEP", 1)
        patched.setattr(requests, "RANGES_PER_STEP", 1)
        patched.setattr(changes, "_SPANS_PER_TURN", 2)
        walk = Walk(seed)
        walk.run()
    acknowledged = {*range(walk.partition.start_offset)}
    for span in walk.partition.spans():
        assert span.status.write_id == NO_WRITE
        if span.status.state is RecordState.ACKNOWLEDGED:
            acknowledged |= {*range(span.first_offset, span.last_offset + 1)}
    assert acknowledged == walk.accepted
