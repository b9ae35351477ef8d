"""The leader of a share partition: a state machine without clock, socket and disk."""

from collections.abc import Iterator, Sequence

from offsetlake.coordinator.share_partition.acquire import acquire
from offsetlake.coordinator.share_partition.batch import Span
from offsetlake.coordinator.share_partition.changes import StateChanges, complete
from offsetlake.coordinator.share_partition.requests import (
    Acknowledged,
    AcknowledgementBatch,
    AcquiredRecords,
    AcquireRequest,
    PersisterWrite,
    are_valid,
)
from offsetlake.coordinator.share_partition.settings import ShareSettings
from offsetlake.coordinator.share_partition.steps import Steps
from offsetlake.coordinator.share_partition.window import Window
from offsetlake.kafka import error_codes
from offsetlake.rules.share_state import UNKNOWN, ShareSnapshot


class SharePartition:
    """The records in flight of one share partition (`kafka.server.share.SharePartition` of Kafka 4.2).

    The caller fetches records, keeps the time and persists the state. It reports the outcome of each StateWrite that a
    method returns with `persisted` or `not_persisted`, in any order, and a write may follow before the outcome of the
    previous one. Times are in ms, by any clock that does not jump.

    There are some differences to Kafka, where Kafka's leader may never deliver another record, or start before the log:

    * If nothing of what was fetched is acquired, or the log start offset moves, the start offset moves past archived
      records at once, and not after the next write: if all records in flight are archived, no write follows.
    * A gap in the persisted state for which the log has no records is not fetched again.
    * The start offset moves although there is no record at it, and never to an earlier offset.
    * If a write fails, records before the start offset whose lock expired are archived, and do not become available.
    * A fetch that begins after the last offset that may be acquired returns no records instead of an error.
    * Records whose write is pending stay pending when their batch is divided.

    Attributes:
        settings: The limits, which may change.
        next_timeout_ms: When `time_out` is due next; it may have nothing to do then. None if no record is acquired.
    """

    def __init__(self, settings: ShareSettings, state: ShareSnapshot, initial_offset: int = UNKNOWN) -> None:
        """Load the state that the persister returned.

        Args:
            settings: The limits.
            state: The state.
            initial_offset: The start offset by `share.auto.offset.reset`, if the state has none.

        Raises:
            InvalidShareState: The batches are invalid; the share partition cannot be used.
        """
        self.settings = settings
        self.next_timeout_ms: int | None = None
        self._state_epoch = state.state_epoch
        self._leader_epoch = state.leader_epoch
        self._writes = 0
        start_offset = initial_offset if state.start_offset == UNKNOWN else state.start_offset
        self._window = Window(start_offset, state.batches)

    @property
    def start_offset(self) -> int:
        """The first offset that is in flight or will be (SPSO)."""
        return self._window.start_offset

    @property
    def end_offset(self) -> int:
        """The last offset in flight, or the start offset if none is."""
        return self._window.end_offset

    @property
    def delivery_complete_count(self) -> int:
        """The number of records in flight that are acknowledged or archived."""
        return self._window.delivery_complete_count

    @property
    def records_in_flight(self) -> int:
        """The number of offsets in flight."""
        return self._window.records

    def spans(self) -> Iterator[Span]:
        """Yield the records by status in the order of offsets, with acquired ones before the start offset."""
        return self._window.spans()

    def next_fetch_offset(self) -> int:
        """Return the offset from which to fetch: the first that is available, or the one after all in flight."""
        return self._window.next_fetch_offset()

    def can_acquire(self) -> bool:
        """Return whether a record in flight is available, or more records may be in flight."""
        if self._window.next_fetch_offset() != self._window.end_offset + 1:
            return True
        return self._window.records < max(self.settings.max_in_flight_records, 1)

    def acquire(self, now_ms: int, request: AcquireRequest) -> list[AcquiredRecords]:
        """Acquire records that were fetched from `next_fetch_offset()`, and return them in the order of offsets.

        The caller ensures that no other member fetches from the share partition between both.
        """
        lock_expires_ms = now_ms + self.settings.record_lock_duration_ms
        acquired = acquire(self._window, self.settings, request, lock_expires_ms)
        if acquired:
            self._lock_until(lock_expires_ms)
        else:
            self._window.advance()
        return acquired

    def acknowledge(
        self, now_ms: int, member_id: str, batches: Sequence[AcknowledgementBatch], allows_renew: bool = True
    ) -> Steps[Acknowledged]:
        """Acknowledge records, all or none of them; only locks that were renewed before an error stay renewed.

        Other methods may be called between the steps; few acknowledgements have a single one.

        Args:
            now_ms: The time.
            member_id: The member.
            batches: The acknowledgements in the order of offsets; records before the start offset are ignored.
            allows_renew: Whether the request may renew locks: IsRenewAck of version 2.

        Returns:
            INVALID_REQUEST for batches that are malformed, or have offsets after those in flight; INVALID_RECORD_STATE
            if the member has not acquired a record, or acknowledged it before.
        """
        if not (yield from are_valid(batches, allows_renew)):
            return Acknowledged(error_codes.INVALID_REQUEST)
        changes = self._changes()
        lock_expires_ms = now_ms + self.settings.record_lock_duration_ms
        error_code = yield from changes.acknowledge(member_id, batches, lock_expires_ms)
        self._lock_until(lock_expires_ms)
        write = self._write(changes)
        if error_code and write:
            self._complete(write, False, now_ms)
            self._lock_until(now_ms)  # locks may have expired between the steps
        return Acknowledged(error_code) if error_code else Acknowledged(write=write)

    def release(self, member_id: str) -> PersisterWrite | None:
        """Release the records of a member that left; those that were delivered too often are archived."""
        changes = self._changes()
        changes.release(member_id)
        return self._write(changes)

    def time_out(self, now_ms: int) -> PersisterWrite | None:
        """Release the records whose locks expired; they are available at once, whether the write succeeds or not."""
        changes = self._changes()
        changes.time_out(now_ms)
        locks = (span.status.lock_expires_ms for span in self._window.spans())
        self.next_timeout_ms = min((lock for lock in locks if lock > now_ms), default=None)
        return self._write(changes)

    def persisted(self, now_ms: int, write: PersisterWrite) -> bool:
        """Complete a write that is durable; return whether the start offset moved."""
        self._complete(write, True, now_ms)
        return self._window.advance()

    def not_persisted(self, now_ms: int, write: PersisterWrite) -> bool:
        """Restore the state before a write that failed; return whether the start offset moved.

        Records whose lock expired meanwhile become available, or are archived after the last delivery.
        """
        self._complete(write, False, now_ms)
        return self._window.advance()

    def log_start_moved(self, log_start_offset: int) -> None:
        """Archive what is available before the log start offset, and start there; the next write persists this."""
        self._window.log_start_moved(log_start_offset)
        self._window.advance()

    def _lock_until(self, lock_expires_ms: int) -> None:
        if self.next_timeout_ms is None or lock_expires_ms < self.next_timeout_ms:
            self.next_timeout_ms = lock_expires_ms

    def _changes(self) -> StateChanges:
        self._writes += 1
        return StateChanges(self._window, self._writes, self.settings.max_delivery_count)

    def _write(self, changes: StateChanges) -> PersisterWrite | None:
        if not changes.batches:
            return None
        window = self._window
        return PersisterWrite(
            changes.write_id,
            self._state_epoch,
            self._leader_epoch,
            window.start_offset,
            window.delivery_complete_count,
            tuple(changes.batches),
        )

    def _complete(self, write: PersisterWrite, is_durable: bool, now_ms: int) -> None:
        complete(self._window, write, is_durable, now_ms, self.settings.max_delivery_count)
