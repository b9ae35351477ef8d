"""The records in flight of a share partition: from its start offset to its end offset."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from operator import attrgetter

from offsetlake.coordinator.share_partition.batch import InFlightBatch, RecordState, RecordStatus, Span, settled
from offsetlake.rules.share_state import StateBatch

_FIRST_OFFSET = attrgetter("first_offset")


class InvalidShareState(Exception):
    """The state that the persister returned is not one of a share partition."""


class Window:
    """The batches in flight in the order of offsets, and what is derived from them.

    Offsets between batches have no records in the log, except for those from `gap_start` until all of them are fetched:
    they were in flight when the state was persisted, but no change of them was.

    Attributes:
        batches: The batches; they do not overlap. The first one may begin before the start offset.
        start_offset: The start offset (SPSO).
        end_offset: The last offset in flight, or the start offset if there are no batches, as in Kafka.
        delivery_complete_count: The number of records from the start offset on that are acknowledged or archived.
    """

    def __init__(self, start_offset: int, batches: Iterable[StateBatch]) -> None:
        """Load a persisted state.

        Raises:
            InvalidShareState: Batches overlap, begin before the start offset, or have an unknown state.
        """
        self.batches: list[InFlightBatch] = []
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.delivery_complete_count = 0
        self._gap_start: int | None = None
        self._may_be_available = False
        next_offset = start_offset
        for batch in batches:
            if not next_offset <= batch.first_offset <= batch.last_offset:
                raise InvalidShareState(f"Invalid {batch}: expected offsets in ascending order from {next_offset}.")
            if self._gap_start is None and batch.first_offset > next_offset:
                self._gap_start = next_offset
            status = settled(_persisted_state(batch), batch.delivery_count)
            self.insert(InFlightBatch(batch.first_offset, batch.last_offset, status))
            self.delivery_complete_count += batch.records if status.is_terminal else 0
            next_offset = batch.last_offset + 1
        self._gap_end = self.end_offset
        self.advance()

    @property
    def records(self) -> int:
        """The number of offsets in flight, of which some may have no record."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    @property
    def gap_start(self) -> int | None:
        """The first offset that may have to be fetched although there are batches after it; None if there is none."""
        if self._gap_start is None or self._gap_end != self.end_offset:
            return None
        return max(self._gap_start, self.start_offset)

    def fetched_until(self, offset: int) -> None:
        """Note that all records before `offset` were fetched."""
        if self._gap_start is not None:
            is_active = self._gap_end == self.end_offset and offset <= self._gap_end
            self._gap_start = max(self._gap_start, offset) if is_active else None

    def floor(self, offset: int) -> InFlightBatch | None:
        """Return the last batch that does not begin after the offset, None if all do."""
        index = bisect_right(self.batches, offset, key=_FIRST_OFFSET)
        return self.batches[index - 1] if index else None

    def beginning_in(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches whose first offset is in the range."""
        first = bisect_left(self.batches, first_offset, key=_FIRST_OFFSET)
        return self.batches[first : bisect_right(self.batches, last_offset, key=_FIRST_OFFSET)]

    def insert(self, batch: InFlightBatch) -> None:
        """Add a batch that does not overlap another."""
        insort(self.batches, batch, key=_FIRST_OFFSET)
        self.end_offset = max(self.end_offset, batch.last_offset)
        self._may_be_available = True

    def put(self, batch: InFlightBatch, span: Span, status: RecordStatus) -> None:
        """Replace the status of a run, or a part of it, of a batch."""
        self._count(span, status)
        batch.put(span.first_offset, span.last_offset, status)

    def replace(self, batch: InFlightBatch, spans: list[Span], statuses: list[RecordStatus]) -> None:
        """Replace the statuses of consecutive runs of a batch, in one pass."""
        for span, status in zip(spans, statuses, strict=True):
            self._count(span, status)
        ends = (span.last_offset for span in spans)
        batch.replace(spans[0].first_offset, [*zip(ends, statuses, strict=True)])

    def _count(self, span: Span, status: RecordStatus) -> None:
        complete = status.is_terminal - span.status.is_terminal
        if complete:
            self.delivery_complete_count += complete * self.in_flight(span.first_offset, span.last_offset)
        self._may_be_available |= status.is_available

    def in_flight(self, first_offset: int, last_offset: int) -> int:
        """Return the number of offsets of the range that are not before the start offset."""
        return max(last_offset - max(first_offset, self.start_offset) + 1, 0)

    def has_start_within(self, first_offset: int, last_offset: int) -> bool:
        """Return whether the start offset is in the range, but not its first offset."""
        return first_offset < self.start_offset <= last_offset

    def archive(self, first_offset: int, last_offset: int, state: RecordState) -> bool:
        """Archive the records of a range that have the given state; return whether there are any.

        Batches are divided if only a part of them has the state and is in the range.
        """
        is_any = False
        floor = self.floor(first_offset)
        first_key = floor.first_offset if floor is not None else first_offset
        for batch in self.beginning_in(first_key, last_offset):
            if batch.last_offset < first_offset:
                continue
            if not batch.is_divided and batch.status.state is state:
                batch.is_divided = not batch.is_within(first_offset, last_offset)
            for span in [*batch.spans(first_offset, last_offset)]:
                if span.status.state is state:
                    self.put(batch, span, span.status.archived())
                    is_any = True
        return is_any

    def next_fetch_offset(self) -> int:
        """Return the first offset that is available, or else the offset after the records in flight."""
        if not self.batches or self.start_offset > self.batches[-1].last_offset:
            self._may_be_available = False
            return self.end_offset
        if self._may_be_available:
            offset = self._first_available()
            if offset is not None:
                return offset
            self._may_be_available = False
        return self.end_offset + 1

    def _first_available(self) -> int | None:
        gap_start = self.gap_start
        for batch in self.batches:
            if gap_start is not None:
                if batch.first_offset > gap_start:
                    return gap_start
                gap_start = max(batch.last_offset + 1, gap_start)
            for span in batch.spans(batch.first_offset, batch.last_offset):
                if span.status.is_available:
                    return span.first_offset
        return None

    def advance(self) -> bool:
        """Move the start offset past acknowledged and archived records, and remove these; return whether it moved."""
        last = self._last_complete()
        if last is None:
            return False
        former_start = self.start_offset
        if last == self.batches[-1].last_offset:
            self.start_offset = self.end_offset = max(last + 1, former_start)
            self.batches = []
            self.delivery_complete_count = 0
            return True
        index = bisect_right(self.batches, last, key=_FIRST_OFFSET) - 1
        if last == self.batches[index].last_offset:
            index += 1
            start = max(self.batches[index].first_offset, self.start_offset)
            start = start if self.gap_start is None else min(start, max(self.gap_start, last + 1))
        else:
            start = max(last + 1, self.start_offset)
        self._move_start(start)
        del self.batches[:index]
        return start > former_start

    def _last_complete(self) -> int | None:
        """Return the last offset before which all records are acknowledged or archived, None if there is none."""
        last = None
        gap_start = self.gap_start
        for batch in self.batches:
            if gap_start is not None:
                if batch.first_offset > gap_start:
                    return last
                gap_start = max(batch.last_offset + 1, gap_start)
            for span in batch.spans(batch.first_offset, batch.last_offset):
                if not span.status.is_complete:
                    return last
                last = span.last_offset
        return last

    def _move_start(self, start_offset: int) -> None:
        self.delivery_complete_count -= sum(
            span.records
            for batch in self.batches
            for span in batch.spans(self.start_offset, start_offset - 1)
            if span.status.is_terminal
        )
        self.start_offset = start_offset

    def log_start_moved(self, log_start_offset: int) -> None:
        """Move the start offset to a later log start offset; records that members have acquired stay acquired."""
        if log_start_offset <= self.start_offset:
            return
        if not self.batches:
            self.start_offset = self.end_offset = log_start_offset
            return
        former_start = self.start_offset
        self._move_start(log_start_offset)
        self.archive(former_start, log_start_offset - 1, RecordState.AVAILABLE)
        self.end_offset = max(self.end_offset, log_start_offset)

    def spans(self) -> Iterator[Span]:
        """Yield the records by status in the order of offsets; some may be before the start offset."""
        for batch in self.batches:
            yield from batch.spans(batch.first_offset, batch.last_offset)


def _persisted_state(batch: StateBatch) -> RecordState:
    if batch.delivery_state in (RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED):
        return RecordState(batch.delivery_state)
    raise InvalidShareState(f"Invalid {batch}: unknown delivery state.")
