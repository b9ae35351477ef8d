"""Random operations, of which some fail, beside a model with one entry per record: the same state after each step."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from offsetlake.coordinator.share_partition.partition import SharePartition
from offsetlake.coordinator.share_partition.requests import (
    AcknowledgementBatch,
    AcquireMode,
    AcquireRequest,
    FetchedAbortedTransaction,
    FetchedBatch,
    PersisterWrite,
)
from offsetlake.coordinator.share_partition.settings import ShareSettings
from offsetlake.kafka import error_codes
from offsetlake.rules.share_state import ShareSnapshot, StateBatch, combine
from offsetlake.serve.steps import complete
from support.coordinator.share_model import ACQUIRED, ARCHIVED, AVAILABLE, Entry, Model

MEMBERS = ("m1", "m2", "m3")


@dataclass
class Walk:
    """A share partition, its model, its log, and the writes whose outcome is not known yet."""

    rng: Random
    settings: ShareSettings
    now: int = 0
    log: list[FetchedBatch] = field(default_factory=list)
    log_end: int = 0
    log_start: int = 0
    pending: list[PersisterWrite] = field(default_factory=list)
    batches: tuple[StateBatch, ...] = ()
    outcomes: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model = Model(self.settings)
        self.partition = SharePartition(self.settings, ShareSnapshot(0, 0, 0, 0))

    def step(self) -> None:
        operations = {
            self.produce: 3, self.acquire: 8, self.acknowledge: 8, self.release: 1, self.time_out: 2, self.persist: 8,
            self.compact: 0.3, self.cut: 0.15, self.restart: 0.15,
        }  # fmt: skip
        [operation] = self.rng.choices([*operations], [*operations.values()])
        operation()
        self.model.check(self.partition)

    def produce(self) -> None:
        if self.log_end - self.partition.start_offset > 80:
            return
        for _ in range(self.rng.randint(1, 3)):
            first = self.log_end + self.rng.choice((0, 0, 0, 0, 2))
            last = first + self.rng.choice((0, 0, 2, 6, 11))
            aborted = self.rng.random() < 0.1
            self.log.append(FetchedBatch(first, last, first if aborted else -1, aborted))
            self.log_end = last + 1

    def acquire(self, member: str = "") -> None:
        if not self.partition.can_acquire():
            return
        fetch = self.partition.next_fetch_offset()
        most = self.rng.randint(1, 4)
        batches = [batch for batch in self.log if batch.last_offset >= fetch][:most]
        if not batches:
            return
        request = AcquireRequest(
            member or self.rng.choice(MEMBERS), self.rng.choice((0, 1, 3, 8, 500)), self.rng.choice((0, 1, 5, 500)),
            fetch, batches,
            [FetchedAbortedTransaction(b.producer_id, b.first_offset) for b in batches if b.is_transactional],
            self.rng.choice([*AcquireMode]),
        )  # fmt: skip
        records = self.partition.acquire(self.now, request)
        aborted = {o for b in batches if b.is_transactional for o in range(b.first_offset, b.last_offset + 1)}
        self.model.acquired(request, records, self.partition, self.now + self.settings.record_lock_duration_ms, aborted)

    def acknowledge(self) -> None:
        member = self.rng.choice(MEMBERS)
        batches = self._valid_acknowledgements(member) if self.rng.random() < 0.7 else self._any_acknowledgements()
        result = complete(self.partition.acknowledge(self.now, member, batches))
        entries = dict(self.model.entries)
        expires = self.now + self.settings.record_lock_duration_ms
        error = error_codes.NONE
        changed: dict[int, Entry] = {}
        for batch in batches:
            error = self._malformed(batch) or error
        for batch in batches if not error else ():
            error = self.model.error_of(batch, member)
            if error:
                break
            changed |= self.model.acknowledge(batch, member, result.write.write_id if result.write else -1, expires)
        assert result.error_code == error, batches
        if error:
            assert result.write is None
            self._keep_renewals(entries)
            return
        self._check_write(result.write, changed)

    def _keep_renewals(self, entries: dict[int, Entry]) -> None:
        """Undo changes but renewals; those in the acknowledgement that failed may or may not have happened."""
        actual = {o: s.status for s in self.partition.spans() for o in range(s.first_offset, s.last_offset + 1)}
        for offset, before in entries.items():
            renewed = actual[offset].lock_expires_ms
            if before.state is ACQUIRED and renewed == self.now + self.settings.record_lock_duration_ms:
                entries[offset] = Entry(ACQUIRED, before.count, before.owner, renewed)
            elif before.state is ACQUIRED and before.expires <= self.now and actual[offset].state is not ACQUIRED:
                last = before.count >= self.settings.max_delivery_count
                entries[offset] = Entry(ARCHIVED if last else AVAILABLE, before.count)
        self.model.entries = entries

    def _malformed(self, batch: AcknowledgementBatch) -> int:
        records = batch.last_offset - batch.first_offset + 1
        known = all(0 <= each <= 4 for each in batch.types)
        return error_codes.NONE if known and len(batch.types) in {1, records} else error_codes.INVALID_REQUEST

    def _types(self, records: int) -> list[int]:
        if self.rng.random() < 0.6:
            return [self.rng.choice((0, 1, 1, 1, 2, 2, 3, 4))]
        return [self.rng.choice((0, 1, 1, 1, 2, 2, 3, 4)) for _ in range(records)]

    def _valid_acknowledgements(self, member: str) -> list[AcknowledgementBatch]:
        batches: list[AcknowledgementBatch] = []
        offsets = [o for o, e in self.model.entries.items() if e.state is ACQUIRED and e.owner == member]
        while offsets and len(batches) < 3 and self.rng.random() < 0.8:
            first = last = self.rng.choice(offsets)
            while last + 1 in offsets and self.rng.random() < 0.85:
                last += 1
            batches.append(AcknowledgementBatch(first, last, self._types(last - first + 1)))
            offsets = [offset for offset in offsets if offset > last]
        return batches

    def _any_acknowledgements(self) -> list[AcknowledgementBatch]:
        firsts = [*self.model.entries, self.log_end + 3]
        firsts = [*range(max(firsts[0] - 3, 0), firsts[0]), *firsts]
        first = self.rng.choice(firsts)
        last = first + self.rng.choice((0, 0, 1, 4, 9))
        types = self._types(last - first + 1)
        if self.rng.random() < 0.1:
            types = self.rng.choice(([5], [-1], [], [1, 1, 1]))
        return [AcknowledgementBatch(first, last, types)] * self.rng.choice((1, 1, 1, 1 + (first == last)))

    def _check_write(self, write: PersisterWrite | None, changed: dict[int, Entry]) -> None:
        if write is None:
            assert not changed
            return
        written = {o: (b[2], b[3]) for b in write.batches for o in range(b.first_offset, b.last_offset + 1)}
        assert written == {offset: (entry.count, entry.state) for offset, entry in changed.items()}
        assert write.start_offset == self.partition.start_offset
        assert write.delivery_complete_count == self.partition.delivery_complete_count
        self.pending.append(write)

    def release(self) -> None:
        member = self.rng.choice(MEMBERS)
        write = self.partition.release(member)
        self._released(write, lambda entry: entry.owner == member, write.write_id if write else 0)

    def time_out(self) -> None:
        self.now += self.rng.choice((1, 5, 20))
        due = self.partition.next_timeout_ms
        write = self.partition.time_out(self.now)
        assert write is None or (due is not None and due <= self.now)
        self._released(write, lambda entry: entry.expires <= self.now, 0)
        locks = [e.expires for e in self.model.entries.values() if e.state is ACQUIRED]
        next_timeout = self.partition.next_timeout_ms
        assert not locks or (next_timeout is not None and next_timeout <= min(locks))

    def _released(self, write: PersisterWrite | None, is_released: Callable[[Entry], bool], write_id: int) -> None:
        changed = {
            offset: self.model.released(offset, entry, write_id)
            for offset, entry in self.model.entries.items()
            if entry.state is ACQUIRED and is_released(entry)
        }
        if write_id == 0:
            changed = {offset: Entry(entry.state, entry.count) for offset, entry in changed.items()}
        self.model.entries |= changed
        self._check_write(write, changed)

    def persist(self, is_durable: bool | None = None) -> None:
        if not self.pending:
            return
        is_durable = self.rng.random() < 0.85 if is_durable is None else is_durable
        write = self.pending.pop(0)
        if is_durable:
            self.batches = combine((*self.batches, *write.batches), write.start_offset)
            self.model.persist(write)
            self.partition.persisted(self.now, write)
        else:
            self.partition.not_persisted(self.now, write)
        self.model.complete(write, is_durable, self.now)
        self.model.advance()

    def compact(self) -> None:
        if len(self.log) > 3:
            del self.log[self.rng.randrange(len(self.log) - 1)]

    def cut(self) -> None:
        starts = [batch.first_offset for batch in self.log if batch.first_offset > self.partition.start_offset]
        if starts:
            self.log_start = self.rng.choice(starts[:4])
            self.log = [batch for batch in self.log if batch.first_offset >= self.log_start]
            self.partition.log_start_moved(self.log_start)
            self.model.log_start_moved(self.log_start)

    def restart(self) -> None:
        self.pending = []
        self.model.reload()
        snapshot = ShareSnapshot(0, 0, 0, self.model.durable_start, self.batches)
        self.partition = SharePartition(self.settings, snapshot)
        if self.log_start > self.partition.start_offset:
            self.partition.log_start_moved(self.log_start)
            self.model.log_start_moved(self.log_start)

    def drain(self) -> None:
        """Deliver and accept all that is left; afterwards every record of the log was acknowledged or archived."""
        end = max((batch.last_offset + 1 for batch in self.log), default=0)
        for _ in range(1_000):
            while self.pending:
                self.persist(True)
            self.model.check(self.partition)
            if self.partition.records_in_flight == 0 and self.partition.next_fetch_offset() >= end:
                live = {o for b in self.log if not b.is_transactional for o in range(b.first_offset, b.last_offset + 1)}
                assert live <= self.model.finished
                return
            self.acquire("m1")
            for offset, entry in [*self.model.entries.items()]:
                if entry.state is ACQUIRED and entry.owner == "m1" and offset >= self.partition.start_offset:
                    batch = AcknowledgementBatch(offset, offset, [1])
                    write = complete(self.partition.acknowledge(self.now, "m1", [batch])).write
                    assert write
                    self._check_write(write, self.model.acknowledge(batch, "m1", write.write_id, 0))
            self.time_out()
        pytest.fail("Records stay in flight.")


def _settings(rng: Random) -> ShareSettings:
    return ShareSettings(rng.choice((0, 1, 7, 40, 500)), rng.choice((0, 1, 2, 3, 5, 6)), rng.choice((0, 10, 40)))


def _walk(seed: int, steps: int) -> None:
    rng = Random(seed)
    walk = Walk(rng, _settings(rng))
    for _ in range(steps):
        walk.step()
    walk.drain()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_walk(seed: int) -> None:
    _walk(seed, 250)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_long_random_walk(seed: int) -> None:
    _walk(seed, 5_000)
