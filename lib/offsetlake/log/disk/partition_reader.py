"""Raw record batches of one log partition on disk, read while another appends to it and cuts it.

The headers of all batches are read once: when somebody first looks those of the whole partition, and from then on those
of what was appended since. Which transactions are open or were aborted is taken from them, whoever has written them.
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
    Found,
    SegmentIndex,
    header,
    headers,
    records,
)
from offsetlake.log.disk.segments import segments_of

CHUNK = 64 << 10  # bytes of which headers are read in one go
PAUSE = 0.0002  # seconds after it: whoever answers meanwhile comes first

_TRANSACTIONAL, _CONTROL = 0x10, 0x20  # attribute bits
_ABORT = bytes(2)  # the type of a marker, in its key behind the version


class OffsetOutOfRange(Exception):
    """A log offset before the first one of a log, or behind its end."""


class Aborted(NamedTuple):
    """An aborted transaction: its first log offset, that of its marker, and the last stable offset behind that."""

    producer_id: int
    first: int
    last: int
    stable: int


class PartitionReader:
    """Reads the log partition in `folder`, for one thread. Raises OSError or LogUnavailable where the disk does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segments: list[SegmentIndex] = []
        self._open: dict[int, int] = {}  # first log offset of the open transaction, by producer id
        self._aborted: list[Aborted] = []  # in the order of their markers
        self.end = 0
        """The log offset up to which there is something to read."""
        self.epoch = NO_EPOCH
        """Of the leader that wrote the last batch."""

    @property
    def start(self) -> int:
        """The first log offset there is."""
        return self._segments[0].base_offset if self._segments else self.end

    @property
    def start_epoch(self) -> int:
        """Of the leader that wrote the first batch."""
        return self._segments[0].epoch if self._segments else NO_EPOCH

    @property
    def top(self) -> int:
        """The greatest timestamp in ms; -1 without any."""
        return max((segment.top for segment in self._segments), default=NO_TIMESTAMP)

    def stable_end(self, *, committed: bool) -> int:
        """Give the log offset up to which there is something to read; `committed`: no transaction below is open."""
        return max(self.start, min(self._open.values(), default=self.end)) if committed else self.end

    def look(self, end: int) -> None:
        """Take in what was cut off, and what was appended up to log offset `end`: all below it is there, and whole."""
        while self._segments and not self._segments[0].path.exists():
            del self._segments[0]
        if not self._segments:
            self._open.clear()  # may have ended in what came and went unseen; what goes on is known by its next batch
        if end > self.end:
            if self._segments:
                self._look_on(self._segments[-1], end)
            if not self._segments or self._segments[-1].behind < end:
                self._look_for_segments(end)
            self.end = end
        if self._aborted and self._aborted[0].last < self.start:
            self._aborted = [each for each in self._aborted if each.last >= self.start]

    def read(self, offset: int, most: int, *, committed: bool, at_least_one: bool) -> tuple[bytes, int]:
        """Read whole batches of one segment, from the one that holds a log offset on, up to `most` bytes.

        `at_least_one`: a larger batch too. Gives them with the log offset behind them. Raises OffsetOutOfRange, and
        CorruptBatch where the log goes on with no batch.
        """
        if not self.start <= offset <= self.end:
            raise OffsetOutOfRange
        end = self.stable_end(committed=committed)
        if offset >= end:
            return b"", offset
        segment = self._segment_of(offset)
        with FileIO(segment.path) as file:
            data, behind = segment.read(file.fileno(), offset, end, most)
            if not data and at_least_one:
                data, behind = segment.read(file.fileno(), offset, end, segment.size_at(file.fileno(), offset))
        return data, behind

    def aborted(self, offset: int, behind: int) -> list[Aborted]:
        """Give the aborted transactions that have records from log offset `offset` on and before `behind`."""
        found = []
        for number in range(bisect_left(self._aborted, offset, key=lambda of: of.last), len(self._aborted)):
            each = self._aborted[number]
            if each.first < behind:
                found.append(each)
            if each.stable >= behind:  # those that ended later began there or later
                break
        return found

    def first_since(self, timestamp: int, *, committed: bool) -> Found | None:
        """Find the first record that is as young as a timestamp in ms, 0 or later; None where there is none."""
        for segment in self._segments:
            if segment.top >= timestamp:
                with FileIO(segment.path) as file:
                    found = segment.first_since(file.fileno(), timestamp)
                if found:
                    return found if found.offset < self.stable_end(committed=committed) else None
        return None

    def _segment_of(self, offset: int) -> SegmentIndex:
        """Find the segment that holds a log offset, or else the next one behind it."""
        number = bisect_right(self._segments, offset, key=lambda of: of.base_offset) - 1
        while offset >= self._segments[number].behind:
            if self._segments[number].damaged or number + 1 == len(self._segments):
                where = self._segments[number]
                raise CorruptBatch(f"{where.path} goes on with no record batch at byte {where.size}")
            number += 1
        return self._segments[number]

    def _look_for_segments(self, end: int) -> None:
        known = self._segments[-1].base_offset if self._segments else -1
        for segment in segments_of(self._folder) if self._folder.exists() else ():
            if known < segment.base_offset < end:
                self._segments.append(SegmentIndex(segment))
                self._look_on(self._segments[-1], end)

    def _look_on(self, segment: SegmentIndex, end: int) -> None:
        """Read the headers of a segment that were not read yet, up to log offset `end`."""
        wanted = CHUNK
        with FileIO(segment.path) as file:
            while segment.behind < end and not segment.damaged:
                data = os.pread(file.fileno(), wanted, segment.size)
                if not data:
                    return
                if self._take_in(segment, data, end):
                    wanted = CHUNK
                    time.sleep(PAUSE if len(data) >= CHUNK else 0)
                elif segment.behind < end:
                    following = header(data)
                    left = os.fstat(file.fileno()).st_size - segment.size
                    if following is None or not len(data) < following.size <= left:
                        segment.damaged = True
                    else:
                        wanted = following.size

    def _take_in(self, segment: SegmentIndex, data: bytes, end: int) -> int:
        """Take in the whole batches at the head of `data`; gives their bytes."""
        at = 0
        for batch in headers(data):
            if segment.behind >= end:
                break
            if not segment.behind <= batch.last < end:
                segment.damaged = True
                break
            if batch.attributes & _TRANSACTIONAL:
                self._take_in_transaction(batch, data[at : at + batch.size])
            segment.add(batch)
            self.epoch = batch.epoch
            at += batch.size
        return at

    def _take_in_transaction(self, batch: BatchHeader, data: bytes) -> None:
        if not batch.attributes & _CONTROL:
            self._open.setdefault(batch.producer_id, batch.first)
            return
        aborts = any(record.key[2:4] == _ABORT for record in records(data))
        first = self._open.pop(batch.producer_id, None)
        if aborts and first is not None:
            stable = min(self._open.values(), default=batch.last + 1)
            self._aborted.append(Aborted(batch.producer_id, first, batch.last, stable))
