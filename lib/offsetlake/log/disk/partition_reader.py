"""Reads record batches of a log partition on disk while another thread appends to it and deletes segments.

The header of each batch is read once: the first refresh reads the headers of the whole partition, later ones those of
appended batches. The headers also determine which transactions are open and which were aborted.
"""

import os
import time
from bisect import bisect_left, bisect_right
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from offsetlake.errors import CorruptBatch
from offsetlake.log.disk.segment_index import (
    NO_EPOCH,
    NO_TIMESTAMP,
    BatchHeader,
    RecordPosition,
    SegmentIndex,
    header,
    headers,
    records,
)
from offsetlake.log.disk.segments import segments_of

CHUNK_BYTES = 64 << 10  # whose headers are read at once
NO_OFFSET = -1
PAUSE_SECONDS = 0.0002  # after each chunk, so that other threads can answer requests

_TRANSACTIONAL, _CONTROL = 0x10, 0x20  # attribute bits
_ABORT = bytes(2)  # the type of a marker, which follows the version in its key


class OffsetOutOfRange(Exception):
    """The log offset is before the start or after the end of the log."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction.

    Attributes:
        producer_id: The producer ID.
        first: The log offset of its first batch.
        last: The log offset of its marker.
        stable: The last stable offset after the marker.
    """

    producer_id: int
    first: int
    last: int
    stable: int


class OpenTransaction(NamedTuple):
    """A transaction without a marker.

    Attributes:
        producer_id, producer_epoch: The producer.
        first: The log offset of its first batch.
        last_timestamp: The maximum timestamp of its last batch, in milliseconds since the epoch.
    """

    producer_id: int
    producer_epoch: int
    first: int
    last_timestamp: int


class PartitionReader:
    """Reads the log partition in a folder; not thread-safe.

    Raises:
        OSError, LogUnavailable: The folder or a segment cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segments: list[SegmentIndex] = []
        self._open: dict[int, OpenTransaction] = {}  # by producer ID
        self._epochs: list[tuple[int, int]] = []  # each leader epoch, with the log offset of its first batch
        self._aborted: list[AbortedTransaction] = []  # in the order of their markers
        self.end = 0
        """The log end offset of the last refresh."""
        self.epoch = NO_EPOCH
        """The leader epoch of the last batch."""

    @property
    def start(self) -> int:
        """The log start offset."""
        return self._segments[0].base_offset if self._segments else self.end

    @property
    def start_epoch(self) -> int:
        """The leader epoch of the first batch."""
        return self._segments[0].epoch if self._segments else NO_EPOCH

    @property
    def max_timestamp(self) -> int:
        """The maximum timestamp in milliseconds since the epoch; -1 if there is none."""
        return max((segment.max_timestamp for segment in self._segments), default=NO_TIMESTAMP)

    def stable_end(self, *, committed: bool) -> int:
        """Return the log end offset or, if `committed`, the last stable offset."""
        if not committed:
            return self.end
        return max(self.start, min((transaction.first for transaction in self._open.values()), default=self.end))

    def open_transactions(self) -> list[OpenTransaction]:
        """Return the transactions without a marker."""
        return [*self._open.values()]

    def end_of_epoch(self, epoch: int, current: int) -> tuple[int, int]:
        """Return the newest leader epoch up to `epoch`, and the log offset after it (`LeaderEpochFileCache`).

        Both are -1 if `epoch` is newer than the `current` epoch of the leader. If it is older than all epochs in the
        log, it is returned with the log offset of the first batch.
        """
        epochs = self._epochs if current <= self.epoch else [*self._epochs, (current, self.end)]
        if not epochs or not 0 <= epoch <= epochs[-1][0]:
            return NO_EPOCH, NO_OFFSET
        number = bisect_right(epochs, epoch, key=lambda known: known[0])
        end = epochs[number][1] if number < len(epochs) else self.end
        return (epochs[number - 1][0] if number else epoch), end

    def refresh(self, end: int) -> None:
        """Read the headers of batches that were appended before log offset `end`, and forget deleted segments.

        All batches before `end` must have been written completely.
        """
        while self._segments and not self._segments[0].path.exists():
            del self._segments[0]
        if not self._segments:
            self._open.clear()  # their markers may have been deleted; the next batch reopens them
        if end > self.end:
            if self._segments:
                self._read_headers(self._segments[-1], end)
            if not self._segments or self._segments[-1].end < end:
                self._add_segments(end)
            self.end = end
        if self._aborted and self._aborted[0].last < self.start:
            self._aborted = [aborted for aborted in self._aborted if aborted.last >= self.start]

    def read(self, offset: int, max_bytes: int, *, committed: bool, at_least_one: bool) -> tuple[bytes, int]:
        """Return whole batches of one segment from the one that contains a log offset, and the log offset after them.

        Args:
            offset: The log offset.
            max_bytes: The maximum size of the batches.
            committed: Whether to stop at the last stable offset.
            at_least_one: Whether to return the first batch even if it is larger than `max_bytes`.

        Raises:
            OffsetOutOfRange: The offset is not in the log.
            CorruptBatch: The bytes at the offset are not a batch.
        """
        if not self.start <= offset <= self.end:
            raise OffsetOutOfRange
        end = self.stable_end(committed=committed)
        if offset >= end:
            return b"", offset
        segment = self._segment_of(offset)
        with FileIO(segment.path) as file:
            data, next_offset = segment.read(file.fileno(), offset, end, max_bytes)
            if not data and at_least_one:
                size = segment.size_at(file.fileno(), offset)
                data, next_offset = segment.read(file.fileno(), offset, end, size)
        return data, next_offset

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records from log offset `start` (inclusive) to `end` (exclusive)."""
        found = []
        first = bisect_left(self._aborted, start, key=lambda aborted: aborted.last)
        for number in range(first, len(self._aborted)):
            aborted = self._aborted[number]
            if aborted.first < end:
                found.append(aborted)
            if aborted.stable >= end:  # transactions that were aborted later began at `end` or after it
                break
        return found

    def first_since(self, timestamp: int, *, committed: bool) -> RecordPosition | None:
        """Return the first record whose timestamp (ms since the epoch) is at or after `timestamp`, which is at least 0.

        If `committed`, only records before the last stable offset are considered.
        """
        for segment in self._segments:
            if segment.max_timestamp >= timestamp:
                with FileIO(segment.path) as file:
                    record = segment.first_since(file.fileno(), timestamp)
                if record:
                    return record if record.offset < self.stable_end(committed=committed) else None
        return None

    def _segment_of(self, offset: int) -> SegmentIndex:
        """Return the segment that contains a log offset, or else the next segment."""
        number = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        while offset >= self._segments[number].end:
            if self._segments[number].damaged or number + 1 == len(self._segments):
                segment = self._segments[number]
                raise CorruptBatch(f"{segment.path}: no record batch begins at byte {segment.size}")
            number += 1
        return self._segments[number]

    def _add_segments(self, end: int) -> None:
        known = self._segments[-1].base_offset if self._segments else -1
        for segment in segments_of(self._folder) if self._folder.exists() else ():
            if known < segment.base_offset < end:
                self._segments.append(SegmentIndex(segment))
                self._read_headers(self._segments[-1], end)

    def _read_headers(self, segment: SegmentIndex, end: int) -> None:
        """Read the headers of a segment that have not been read, up to log offset `end`."""
        read_bytes = CHUNK_BYTES
        with FileIO(segment.path) as file:
            while segment.end < end and not segment.damaged:
                data = os.pread(file.fileno(), read_bytes, segment.size)
                if not data:
                    return
                if self._add_batches(segment, data, end):
                    read_bytes = CHUNK_BYTES
                    time.sleep(PAUSE_SECONDS if len(data) >= CHUNK_BYTES else 0)
                elif segment.end < end:
                    next_batch = header(data)
                    remaining = os.fstat(file.fileno()).st_size - segment.size
                    if next_batch is None or not len(data) < next_batch.size <= remaining:
                        segment.damaged = True
                    else:
                        read_bytes = next_batch.size

    def _add_batches(self, segment: SegmentIndex, data: bytes, end: int) -> int:
        """Add the whole batches at the start of `data` to the index, and return their size in bytes."""
        position = 0
        for batch in headers(data):
            if segment.end >= end:
                break
            if not segment.end <= batch.last < end:
                segment.damaged = True
                break
            if batch.attributes & _TRANSACTIONAL:
                self._update_transactions(batch, data[position : position + batch.size])
            segment.add(batch)
            if batch.epoch > self.epoch:
                self._epochs.append((batch.epoch, batch.first))
            self.epoch = batch.epoch
            position += batch.size
        return position

    def _update_transactions(self, batch: BatchHeader, data: bytes) -> None:
        if not batch.attributes & _CONTROL:
            before = self._open.get(batch.producer_id)
            first = batch.first if before is None else before.first
            self._open[batch.producer_id] = OpenTransaction(
                batch.producer_id, batch.producer_epoch, first, batch.max_timestamp
            )
            return
        aborts = any(record.key[2:4] == _ABORT for record in records(data))
        ended = self._open.pop(batch.producer_id, None)
        if aborts and ended is not None:
            stable = min((transaction.first for transaction in self._open.values()), default=batch.last + 1)
            self._aborted.append(AbortedTransaction(batch.producer_id, ended.first, batch.last, stable))
