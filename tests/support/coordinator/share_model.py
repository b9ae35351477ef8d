"""A brute-force model of a share partition, with one entry per offset, and a log that is compacted and cut.

The model decides itself what acknowledging, releasing, timing out, persisting and reloading do. Of acquiring, it checks
that each record changed as it may: how many records are acquired at once is up to the share partition.
"""

from dataclasses import dataclass, field, replace

from offsetlake.coordinator.share_partition.batch import RecordState, RecordStatus
from offsetlake.coordinator.share_partition.partition import SharePartition
from offsetlake.coordinator.share_partition.requests import (
    AcknowledgementBatch,
    AcquiredRecords,
    AcquireMode,
    AcquireRequest,
    PersisterWrite,
)
from offsetlake.coordinator.share_partition.settings import ShareSettings
from offsetlake.kafka import error_codes

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = RecordState
TERMINAL = (ACKNOWLEDGED, ARCHIVED)


@dataclass(frozen=True)
class Entry:
    """One record; `owner` had it before the change that `write` makes durable."""

    state: RecordState
    count: int
    owner: str = ""
    expires: int = -1
    write: int = 0


def _entry(status: RecordStatus) -> Entry:
    return Entry(status.state, status.delivery_count, status.member_id, status.lock_expires_ms, status.write_id)


@dataclass
class Model:
    """The expected state of a share partition.

    Attributes:
        entries: The records that may be in flight.
        durable: The state and the delivery count that the persister has, by offset.
        unknown: Offsets in flight, after a restart, whose state was not persisted.
        finished: Offsets of records that were acknowledged or archived at some time.
    """

    settings: ShareSettings
    start: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)
    durable: dict[int, tuple[int, int]] = field(default_factory=dict)
    durable_start: int = 0
    unknown: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)

    def complete_count(self) -> int:
        return sum(entry.state in TERMINAL for offset, entry in self.entries.items() if offset >= self.start)

    def check(self, partition: SharePartition) -> None:
        """Compare the whole state."""
        actual = {
            offset: _entry(status) for first, last, status in partition.spans() for offset in range(first, last + 1)
        }
        skipped = range(self.start, partition.start_offset)
        if not any(offset in self.entries or offset in self.unknown for offset in skipped):
            self.start += len(skipped)  # there are no records at these offsets
        self.finished |= {o for o, entry in self.entries.items() if entry.state in TERMINAL and not entry.write}
        for offset in [*self.entries]:
            if offset not in actual:
                entry = self.entries.pop(offset)
                assert offset < self.start, offset
                assert entry.state in TERMINAL, (offset, entry)
                assert not entry.write, (offset, entry)
        assert actual == self.entries
        assert partition.start_offset == self.start
        assert partition.delivery_complete_count == self.complete_count()
        available = [offset for offset, entry in self.entries.items() if entry.state is AVAILABLE and not entry.write]
        end = max(self.entries, default=self.start - 1) + 1
        first = min(available, default=max(end, self.start))
        fetched = partition.next_fetch_offset()
        assert fetched == first or (fetched in self.unknown and fetched < first), (fetched, first)

    def advance(self) -> None:
        """Move the start offset past records that are complete; offsets without an entry have no record."""
        end = max(self.entries, default=self.start - 1) + 1
        offset = start = self.start
        while offset < end:
            entry = self.entries.get(offset)
            if offset in self.unknown or (entry and (entry.state not in TERMINAL or entry.write)):
                break
            offset += 1
            if entry:
                start = offset
        if any(o < self.start and (e.state not in TERMINAL or e.write) for o, e in self.entries.items()):
            return
        self.start = start
        if not any(offset >= start for offset in self.entries):
            self.unknown.clear()

    def acquired(
        self, request: AcquireRequest, records: list[AcquiredRecords], partition: SharePartition, expires: int,
        aborted: set[int],
    ) -> None:  # fmt: skip
        """Check and apply what was acquired; `aborted` are the fetched offsets of aborted transactions."""
        offsets = {offset: r.delivery_count for r in records for offset in range(r.first_offset, r.last_offset + 1)}
        assert len(offsets) == sum(r.records for r in records), "overlap"
        if request.mode is AcquireMode.RECORD_LIMIT:
            assert len(offsets) <= request.max_records
        base, last = request.batches[0].first_offset, request.batches[-1].last_offset
        assert all(min(base, min(self.entries, default=base)) <= offset <= last for offset in offsets)
        for first, end, status in partition.spans():
            after = Entry(
                status.state, status.delivery_count, status.member_id, status.lock_expires_ms, status.write_id
            )
            for offset in range(first, end + 1):
                before = self.entries.get(offset)
                count = (before.count if before else 0) + 1
                if offset in offsets:
                    assert offset not in aborted
                    assert before is None or (before.state is AVAILABLE and not before.write)
                    assert offsets[offset] == count
                    assert after == Entry(ACQUIRED, count, request.member_id, expires)
                elif after != before:
                    assert after in self._archived(offset, request, aborted), (offset, before, after)
                if before is None:
                    assert max(self.start, base) <= offset <= last
                self.entries[offset] = after
        self._fetched(request, max(offsets, default=base - 1), partition, aborted)

    def _fetched(self, request: AcquireRequest, last: int, partition: SharePartition, aborted: set[int]) -> None:
        """Note which offsets have no records, and which records were archived and removed."""
        base = request.batches[0].first_offset
        if request.max_records > 0:
            skipped = {offset for offset in self.unknown if request.fetch_offset <= offset < base or offset <= last}
            self.unknown -= skipped | {*self.entries} | {o for o in aborted if o < partition.start_offset}
        left = {offset for first, end, _ in partition.spans() for offset in range(first, end + 1)}
        for offset, entry in self.entries.items():
            is_stale = request.fetch_offset <= offset < base and entry.state is AVAILABLE
            is_aborted = offset in aborted and entry.state in (AVAILABLE, ACQUIRED) and not entry.write
            if offset not in left and (is_stale or is_aborted):
                self.entries[offset] = Entry(ARCHIVED, entry.count)
        if last < base:
            self.advance()

    def _archived(self, offset: int, request: AcquireRequest, aborted: set[int]) -> list[Entry]:
        """Return how a record that is not acquired may be after a fetch."""
        before = self.entries.get(offset)
        if before is None:
            is_part = request.mode is AcquireMode.RECORD_LIMIT
            return [Entry(ARCHIVED, 1)] * (offset in aborted) + [Entry(AVAILABLE, 0)] * is_part
        entries: list[Entry] = []
        if before.state is AVAILABLE and request.fetch_offset <= offset < request.batches[0].first_offset:
            entries.append(Entry(ARCHIVED, before.count, write=before.write))
        if offset in aborted and before.state is AVAILABLE and not before.write:
            entries.append(Entry(ARCHIVED, before.count + 1))
        if offset in aborted and before.state is ACQUIRED:
            entries.append(Entry(ARCHIVED, before.count))
        return entries

    def released(self, offset: int, entry: Entry, write: int) -> Entry:
        is_last = entry.count >= self.settings.max_delivery_count or offset < self.start
        return replace(entry, state=ARCHIVED if is_last else AVAILABLE, write=write)

    def error_of(self, batch: AcknowledgementBatch, member: str) -> int:
        """Return the error of one acknowledgement in the present state."""
        if batch.last_offset < self.start:
            return error_codes.NONE
        has_start = batch.first_offset < self.start <= batch.last_offset
        lowest = min(self.entries, default=None)
        if lowest is None or lowest > (self.start if has_start and lowest > batch.first_offset else batch.first_offset):
            return error_codes.INVALID_RECORD_STATE
        if batch.last_offset not in self.entries:
            return error_codes.INVALID_REQUEST
        for offset in range(max(batch.first_offset, self.start), batch.last_offset + 1):
            entry = self.entries.get(offset)
            if entry and (entry.state is not ACQUIRED or entry.owner != member):
                return error_codes.INVALID_RECORD_STATE
        return error_codes.NONE

    def acknowledge(self, batch: AcknowledgementBatch, member: str, write: int, expires: int) -> dict[int, Entry]:
        """Apply one valid acknowledgement, and return the changed records."""
        changed: dict[int, Entry] = {}
        for offset in range(max(batch.first_offset, self.start), batch.last_offset + 1):
            entry = self.entries.get(offset)
            if entry is None:
                continue
            kind = batch.types[0] if len(batch.types) == 1 else batch.types[offset - batch.first_offset]
            if kind == 4:
                self.entries[offset] = replace(entry, expires=expires)
                continue
            state = {0: ARCHIVED, 1: ACKNOWLEDGED, 3: ARCHIVED}.get(kind)
            changed[offset] = replace(entry, state=state, write=write) if state else self.released(offset, entry, write)
        self.entries |= changed
        return changed

    def complete(self, write: PersisterWrite, is_durable: bool, now: int) -> None:
        for offset, entry in self.entries.items():
            if entry.write != write.write_id:
                continue
            if is_durable or not entry.owner:
                self.entries[offset] = Entry(entry.state, entry.count)
            elif entry.expires > now:
                self.entries[offset] = Entry(ACQUIRED, entry.count, entry.owner, entry.expires)
            else:
                is_last = entry.count >= self.settings.max_delivery_count or offset < self.start
                self.entries[offset] = Entry(ARCHIVED if is_last else AVAILABLE, entry.count)

    def persist(self, write: PersisterWrite) -> None:
        """Write to the persister: of two states of a record, that with the higher count and then state remains."""
        self.durable_start = write.start_offset
        for first, last, count, state in write.batches:
            for offset in range(first, last + 1):
                self.durable[offset] = max(self.durable.get(offset, (0, 0)), (count, int(state)))
        self.durable = {offset: value for offset, value in self.durable.items() if offset >= self.durable_start}

    def log_start_moved(self, log_start: int) -> None:
        if log_start <= self.start:
            return
        for offset, entry in self.entries.items():
            if self.start <= offset < log_start and entry.state is AVAILABLE:
                self.entries[offset] = Entry(ARCHIVED, entry.count, write=entry.write)
        self.start = log_start
        self.unknown = {offset for offset in self.unknown if offset >= log_start}
        self.advance()

    def reload(self) -> None:
        """Restart from the persisted state."""
        self.start = self.durable_start
        self.entries = {o: Entry(RecordState(state), count) for o, (count, state) in sorted(self.durable.items())}
        self.unknown = {*range(self.start, max(self.entries, default=self.start))} - {*self.entries}
        self.advance()
