"""Acquires records that are fetched: those in flight that are available again, and those after the end offset.

This follows `SharePartition.acquire` of Kafka 4.2, with whole record batches where possible. Of records that were
delivered often, fewer are delivered at a time, and the last time each alone, so that one record that members cannot
process does not make all records of its batch reach the limit.
"""

from dataclasses import dataclass

from offsetlake.coordinator.share_partition.aborted import aborted_batches, without
from offsetlake.coordinator.share_partition.batch import InFlightBatch, RecordState, RecordStatus, settled
from offsetlake.coordinator.share_partition.requests import AcquiredRecords, AcquireMode, AcquireRequest
from offsetlake.coordinator.share_partition.settings import ShareSettings
from offsetlake.coordinator.share_partition.window import Window

NO_LIMIT = 2**63


def acquire(
    window: Window, settings: ShareSettings, request: AcquireRequest, lock_expires_ms: int
) -> list[AcquiredRecords]:
    """Acquire what is available of the records that were fetched, and return it in the order of offsets.

    The locks of the records expire at `lock_expires_ms`. Records of aborted transactions are archived. So are available
    records from the fetch offset to the first fetched record: they are not in the log any more.
    """
    if request.max_records <= 0 or not request.batches or request.batches[-1].last_offset < window.start_offset:
        return []
    max_records, last_offset = _limits(window, settings, request)
    first_offset = request.batches[0].first_offset
    if max_records <= 0:
        return []
    if request.fetch_offset < first_offset:
        window.archive(request.fetch_offset, first_offset - 1, RecordState.AVAILABLE)
        window.fetched_until(first_offset)
    if last_offset < first_offset:
        return []
    acquisition = _Acquisition(window, settings, request, lock_expires_ms, max_records, last_offset)
    acquired = acquisition.run()
    archived = aborted_batches(request.batches, request.aborted) if acquired else []
    for batch in archived:
        window.archive(batch.first_offset, batch.last_offset, RecordState.ACQUIRED)
    return without(acquired, archived)


def _limits(window: Window, settings: ShareSettings, request: AcquireRequest) -> tuple[int, int]:
    """Return the most records to acquire, and the last offset; if the limit is reached, only records in flight."""
    last_offset = request.batches[-1].last_offset
    max_records = min(request.max_records, max(settings.max_in_flight_records, 1) - window.records)
    if max_records > 0 or request.fetch_offset > window.end_offset:
        return max_records, last_offset
    max_records = min(request.max_records, window.end_offset - request.fetch_offset + 1)
    return max_records, min(last_offset, window.end_offset)


@dataclass(slots=True)
class _Acquisition:
    """One fetch: what may be acquired, and what was."""

    window: Window
    settings: ShareSettings
    request: AcquireRequest
    lock_expires_ms: int
    max_records: int
    last_offset: int

    def run(self) -> list[AcquiredRecords]:
        """Acquire records in flight, records of gaps between them, and records after them."""
        window, fetched_first = self.window, self.request.batches[0].first_offset
        first_offset = fetched_first
        floor = window.floor(first_offset)
        if floor is None:
            first_offset = max(first_offset, window.start_offset)
        elif floor.last_offset >= first_offset:
            first_offset = floor.first_offset
        batches = window.beginning_in(min(fetched_first, first_offset), self.last_offset)
        if not batches:
            return self._acquire_new(first_offset, self.last_offset, self.max_records)
        acquired, remaining = self._acquire_within(batches, first_offset)
        last_offset = batches[-1].last_offset
        if remaining > 0 and last_offset < self.last_offset:
            acquired += self._acquire_new(last_offset + 1, self.last_offset, remaining)
        if acquired:
            window.fetched_until(acquired[-1].last_offset + 1)
        return acquired

    def _acquire_within(self, batches: list[InFlightBatch], first_offset: int) -> tuple[list[AcquiredRecords], int]:
        """Acquire records of batches in flight and of gaps before them; return the rest of the limit, too."""
        acquired: list[AcquiredRecords] = []
        remaining = self.max_records
        for batch in batches:
            if remaining <= 0:
                break
            if self.window.gap_start is not None:
                if first_offset < batch.first_offset:
                    acquired += self._acquire_new(first_offset, batch.first_offset - 1, remaining)
                first_offset = batch.last_offset + 1
                remaining = self.max_records - _count(acquired)
            if remaining <= 0:
                break
            is_throttled = self._is_throttled(batch)
            if not (is_throttled and acquired):
                acquired += self._acquire_again(batch, remaining, is_throttled)
                remaining = self.max_records - _count(acquired)
            if is_throttled and acquired:
                return acquired, 0
        return acquired, remaining

    @property
    def _is_exact(self) -> bool:
        return self.request.mode is AcquireMode.RECORD_LIMIT

    def _acquired(self, delivery_count: int) -> RecordStatus:
        return RecordStatus(RecordState.ACQUIRED, delivery_count, self.request.member_id, self.lock_expires_ms)

    def _acquire_new(self, first_offset: int, last_offset: int, max_records: int) -> list[AcquiredRecords]:
        """Acquire records that are not in flight yet."""
        window = self.window
        if not window.batches:
            first_offset = max(first_offset, window.end_offset)
        if max_records < last_offset - first_offset + 1:
            wanted = self._last_of_fetched_batch(first_offset + max_records - 1)
            last_offset = wanted if window.gap_start is None else min(wanted, last_offset)
        if self._is_exact:
            records = [self._add_exactly(first_offset, last_offset, max_records)]
        else:
            records = self._divided(first_offset, last_offset)
            status = self._acquired(1)
            for each in records:
                window.insert(InFlightBatch(each.first_offset, each.last_offset, status))
        if window.batches[0].first_offset == first_offset:
            window.start_offset = first_offset
        window.fetched_until(records[-1].last_offset + 1)
        return records

    def _last_of_fetched_batch(self, offset: int) -> int:
        for batch in self.request.batches:
            if batch.first_offset <= offset <= batch.last_offset:
                return batch.last_offset
        return offset

    def _add_exactly(self, first_offset: int, last_offset: int, max_records: int) -> AcquiredRecords:
        """Add one batch, of which the records after the limit stay available."""
        last_acquired = min(last_offset, first_offset + max_records - 1)
        batch = InFlightBatch(first_offset, last_offset, self._acquired(1))
        if last_acquired < last_offset:
            batch.is_divided = True
            batch.put(last_acquired + 1, last_offset, settled(RecordState.AVAILABLE, 0))
        self.window.insert(batch)
        return AcquiredRecords(first_offset, last_acquired, 1)

    def _divided(self, first_offset: int, last_offset: int) -> list[AcquiredRecords]:
        """Return the range as batches of at least the batch size, which end where fetched batches do."""
        records: list[AcquiredRecords] = []
        if last_offset - first_offset + 1 > self.request.batch_size:
            for batch in self.request.batches:
                if batch.first_offset > last_offset:
                    break
                if batch.first_offset > first_offset and batch.first_offset - first_offset >= self.request.batch_size:
                    records.append(AcquiredRecords(first_offset, batch.first_offset - 1, 1))
                    first_offset = batch.first_offset
        return [*records, AcquiredRecords(first_offset, last_offset, 1)]

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        first_offset = self.request.batches[0].first_offset if batch.is_divided else batch.first_offset
        last_offset = self.last_offset if batch.is_divided else batch.last_offset
        return any(
            span.status.is_available and span.status.delivery_count >= self.settings.throttled_delivery_count
            for span in batch.spans(first_offset, last_offset)
        )

    def _acquire_again(self, batch: InFlightBatch, remaining: int, is_throttled: bool) -> list[AcquiredRecords]:
        """Acquire what is available of a batch in flight."""
        if not batch.is_divided:
            if not batch.status.is_available:
                return []
            is_part = not batch.is_within(self.request.batches[0].first_offset, self.last_offset)
            batch.is_divided = is_part or is_throttled or (self._is_exact and batch.records > remaining)
        if batch.is_divided:
            return self._acquire_some(batch, remaining)
        [span] = batch.spans(batch.first_offset, batch.last_offset)
        delivery_count = batch.status.delivery_count + 1
        self.window.put(batch, span, self._acquired(delivery_count))
        return [AcquiredRecords(batch.first_offset, batch.last_offset, delivery_count)]

    def _acquire_some(self, batch: InFlightBatch, remaining: int) -> list[AcquiredRecords]:
        """Acquire available records of a divided batch up to the limits of the request and of throttled records."""
        max_delivery_count = self.settings.max_delivery_count
        first_offset = self.request.batches[0].first_offset
        count = 0
        limit = remaining if self._is_exact else NO_LIMIT
        throttled_limit = NO_LIMIT
        acquired: list[AcquiredRecords] = []
        for span in [*batch.spans(first_offset, self.last_offset)]:
            if not span.status.is_available:
                continue
            delivery_count = span.status.delivery_count
            is_last_delivery = max_delivery_count > 2 and delivery_count == max_delivery_count - 1
            if is_last_delivery and count > 0:
                break
            if throttled_limit == NO_LIMIT and delivery_count >= self.settings.throttled_delivery_count:
                halvings = delivery_count - self.settings.throttled_delivery_count + 1
                throttled_limit = max(1, batch.records >> halvings)
            most = min(
                1 if is_last_delivery else span.records,
                *(each - count for each in (limit, throttled_limit) if each > count),
            )
            taken = span._replace(last_offset=min(span.last_offset, span.first_offset + most - 1))
            self.window.put(batch, taken, self._acquired(delivery_count + 1))
            _append(acquired, AcquiredRecords(taken.first_offset, taken.last_offset, delivery_count + 1))
            count += taken.records
            if is_last_delivery or count in (limit, throttled_limit):
                break
        return acquired


def _count(acquired: list[AcquiredRecords]) -> int:
    return sum(records.records for records in acquired)


def _append(acquired: list[AcquiredRecords], records: AcquiredRecords) -> None:
    last = acquired[-1] if acquired else None
    if last and last.last_offset + 1 == records.first_offset and last.delivery_count == records.delivery_count:
        acquired[-1] = last._replace(last_offset=records.last_offset)
    else:
        acquired.append(records)
