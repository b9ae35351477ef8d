"""State changes that take effect when they are durable: acknowledgements, and records of members that leave.

A record whose change is being written keeps its lock: if the write fails, the member has the record again, unless its
lock expired.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice

from offsetlake.coordinator.share_partition.batch import InFlightBatch, RecordState, RecordStatus, Span, settled
from offsetlake.coordinator.share_partition.requests import AcknowledgementBatch, AcknowledgeType, PersisterWrite
from offsetlake.coordinator.share_partition.steps import RANGES_PER_STEP, Steps
from offsetlake.coordinator.share_partition.window import Window
from offsetlake.kafka import error_codes
from offsetlake.rules.share_state import StateBatch

_NEW_STATES = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


MAX_CHANGED_RANGES = 20_000
"""The most ranges of records with the same new state in one write: twice the record locks that a broker allows."""

_SPANS_PER_TURN = 64
"""The runs that are copied at a time: they change while acknowledgements are applied."""


class StateChanges:
    """The state changes of one write."""

    def __init__(self, window: Window, write_id: int, max_delivery_count: int) -> None:
        self.batches: list[StateBatch] = []
        self._window = window
        self.write_id = write_id
        self._max_delivery_count = max_delivery_count
        self._statuses: dict[RecordStatus, RecordStatus] = {}
        self._ranges = 0  # in the current step

    def acknowledge(self, member_id: str, batches: Sequence[AcknowledgementBatch], lock_expires_ms: int) -> Steps[int]:
        """Acknowledge records until the first one for which this is impossible, and return the error code.

        After an error, the changes must be completed as not durable. Locks that were renewed stay so, as in Kafka.

        Args:
            member_id: The member that acquired the records.
            batches: The acknowledgements, each with one type or one per offset.
            lock_expires_ms: When renewed locks expire.

        Returns:
            NONE, INVALID_REQUEST for offsets after those in flight or too many ranges, or
            INVALID_RECORD_STATE for records that the member has not acquired.
        """
        for batch in batches:
            self._ranges += 1
            if batch.last_offset >= self._window.start_offset:
                error_code, affected = self._affected(batch)
                for each in affected:
                    error_code = error_code or (
                        yield from self._acknowledge_in(member_id, batch, each, lock_expires_ms)
                    )
                if error_code:
                    return error_code
            if self._ranges >= RANGES_PER_STEP:
                self._ranges = 0
                yield 0
        return error_codes.NONE

    def _affected(self, batch: AcknowledgementBatch) -> tuple[int, list[InFlightBatch]]:
        window = self._window
        floor = window.floor(batch.first_offset)
        if floor is None and window.has_start_within(batch.first_offset, batch.last_offset):
            floor = window.floor(window.start_offset)
        if floor is None:
            return error_codes.INVALID_RECORD_STATE, []
        affected = window.beginning_in(floor.first_offset, batch.last_offset)
        if affected[-1].last_offset < batch.last_offset:
            return error_codes.INVALID_REQUEST, []
        return error_codes.NONE, affected

    def _acknowledge_in(
        self, member_id: str, acknowledgement: AcknowledgementBatch, batch: InFlightBatch, expires_ms: int
    ) -> Steps[int]:
        window = self._window
        if batch.last_offset < window.start_offset:
            return error_codes.NONE
        if not batch.is_divided:
            if not batch.status.is_acquired_by(member_id):
                return error_codes.INVALID_RECORD_STATE
            is_whole = batch.is_within(acknowledgement.first_offset, acknowledgement.last_offset)
            has_one_type = len(acknowledgement.types) == 1
            has_start = window.has_start_within(batch.first_offset, batch.last_offset)
            batch.is_divided = not is_whole or not has_one_type or has_start
        first_offset = acknowledgement.first_offset
        while True:
            first_offset = max(first_offset, batch.first_offset, window.start_offset)  # which may move between steps
            spans = [*islice(batch.spans(first_offset, acknowledgement.last_offset), _SPANS_PER_TURN)]
            if not spans:
                return error_codes.NONE
            for part, acknowledge_type in _by_type(acknowledgement, spans):
                if not part.status.is_acquired_by(member_id):
                    return error_codes.INVALID_RECORD_STATE
                self._acknowledge_part(batch, part, acknowledge_type, expires_ms)
                first_offset = part.last_offset + 1
            if len(self.batches) > MAX_CHANGED_RANGES:
                return error_codes.INVALID_REQUEST
            if self._ranges >= RANGES_PER_STEP:
                self._ranges = 0
                yield 0

    def _acknowledge_part(
        self, batch: InFlightBatch, part: Span, acknowledge_type: AcknowledgeType, expires_ms: int
    ) -> None:
        self._ranges += 1
        if acknowledge_type is AcknowledgeType.RENEW:
            self._put(batch, part, part.status._replace(lock_expires_ms=expires_ms))
        else:
            self._change(batch, part, _NEW_STATES[acknowledge_type])

    def release(self, member_id: str) -> None:
        """Release all records that the member has acquired."""
        for batch in self._window.batches:
            for span in [*batch.spans(batch.first_offset, batch.last_offset)]:
                if span.status.is_acquired_by(member_id):
                    for part, state in self._released(batch, span):
                        self._change(batch, part, state)

    def time_out(self, now_ms: int) -> None:
        """Release all records whose lock expired; this has an effect before it is durable, and even if it never is."""
        for batch in self._window.batches:
            for span in [*batch.spans(batch.first_offset, batch.last_offset)]:
                status = span.status
                if status.state is RecordState.ACQUIRED and status.lock_expires_ms <= now_ms:
                    for part, state in self._released(batch, span):
                        final = self._add(part, state)
                        self._window.put(batch, part, settled(final, status.delivery_count))

    def _released(self, batch: InFlightBatch, span: Span) -> Iterator[tuple[Span, RecordState]]:
        """Yield the parts of a run before the start offset, which are archived, and after it."""
        start_offset = self._window.start_offset
        if self._window.has_start_within(batch.first_offset, batch.last_offset):
            batch.is_divided = True
        if span.first_offset < start_offset:
            yield span._replace(last_offset=min(span.last_offset, start_offset - 1)), RecordState.ARCHIVED
        if span.last_offset >= start_offset:
            yield span._replace(first_offset=max(span.first_offset, start_offset)), RecordState.AVAILABLE

    def _change(self, batch: InFlightBatch, span: Span, state: RecordState) -> None:
        final = self._add(span, state)
        self._put(batch, span, span.status._replace(state=final, write_id=self.write_id))

    def _put(self, batch: InFlightBatch, span: Span, status: RecordStatus) -> None:
        """Set a status, with one object for all equal ones."""
        self._window.put(batch, span, self._statuses.setdefault(status, status))

    def _add(self, span: Span, state: RecordState) -> RecordState:
        """Add a change to the write, and return the new state; at the limit, records are archived, not released."""
        delivery_count = span.status.delivery_count
        if state is RecordState.AVAILABLE and delivery_count >= self._max_delivery_count:
            state = RecordState.ARCHIVED
        batch = StateBatch(span.first_offset, span.last_offset, delivery_count, state)
        last = self.batches[-1] if self.batches else None
        if last is not None and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
            self.batches[-1] = last._replace(last_offset=batch.last_offset)
        else:
            self.batches.append(batch)
        return state


def complete(window: Window, write: PersisterWrite, is_durable: bool, now_ms: int, max_delivery_count: int) -> None:
    """Complete the changes of a write; records before the start offset do not become available."""
    if not write.batches:
        return
    first_offset, last_offset = write.batches[0].first_offset, write.batches[-1].last_offset
    floor = window.floor(first_offset)
    for batch in window.beginning_in(first_offset if floor is None else floor.first_offset, last_offset):
        spans = [*batch.spans(first_offset, last_offset)]
        statuses = [
            span.status.completed(is_durable, now_ms, max_delivery_count)
            if span.status.write_id == write.write_id
            else span.status
            for span in spans
        ]
        if spans:
            window.replace(batch, spans, statuses)
    if not is_durable and first_offset < window.start_offset:
        window.archive(first_offset, window.start_offset - 1, RecordState.AVAILABLE)


def _by_type(acknowledgement: AcknowledgementBatch, spans: Sequence[Span]) -> Iterator[tuple[Span, AcknowledgeType]]:
    """Yield the parts of runs by the type of their acknowledgement, of at most RANGES_PER_STEP offsets with own types.

    After these, the rest is omitted.
    """
    types, offset = acknowledgement.types, spans[0].first_offset
    if len(types) == 1:
        for span in spans:
            yield span, AcknowledgeType(types[0])
        return
    stop = offset + RANGES_PER_STEP
    for span in spans:
        last_offset = min(span.last_offset, stop - 1)
        first = offset - acknowledgement.first_offset
        for acknowledge_type, equal in groupby(types[first : first + last_offset + 1 - offset]):
            part_end = offset + sum(1 for _ in equal) - 1
            yield span._replace(first_offset=offset, last_offset=part_end), AcknowledgeType(acknowledge_type)
            offset = part_end + 1
        if offset == stop:
            return
