"""Where in a segment on disk a log offset or a time stands, by the headers of its batches.

One place every INTERVAL bytes is kept; from there on headers are read again.
"""

import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

from aiokafka.record.memory_records import MemoryRecords

from offsetlake.errors import CorruptBatch
from offsetlake.log.disk.segments import Segment

INTERVAL = 4096  # bytes between two places, about: index.interval.bytes of a broker
NO_TIMESTAMP, NO_EPOCH = -1, -1

_HEADER = struct.Struct(">qiib4xhi8xqq")  # of magic 2, up to the producer id
_TIMESTAMP = struct.Struct(">18xq")  # of magic 1
_OVERHEAD, _MAGIC_AT, _MAGIC = 12, 16, 2
_SMALLEST, _SMALLEST_LEGACY = 61, 26
_NO_PRODUCER = -1


class BatchHeader(NamedTuple):
    """What is asked of a batch.

    | field       | is |
    |-------------|----|
    | size        | all of its bytes |
    | first, last | log offsets; below magic 2 the last one for both |
    | epoch       | of the partition's leader that wrote it; -1 below magic 2 |
    | attributes  | bits; none below magic 2 |
    | top         | greatest timestamp in ms; -1 without |
    | producer_id | -1 without |
    """

    size: int
    first: int
    last: int
    epoch: int
    attributes: int
    top: int
    producer_id: int


class Found(NamedTuple):
    """A record: timestamp in ms, log offset, and the epoch of the leader that wrote it, -1 for none."""

    timestamp: int
    offset: int
    epoch: int


def header(data: bytes, at: int = 0) -> BatchHeader | None:
    """Read the header of the batch at `at`; None where no batch can begin, or bytes of the header are missing."""
    if len(data) - at < _SMALLEST:
        data, at = data[at:] + bytes(_SMALLEST), 0  # one of an older magic may be shorter; of others the size is wrong
    first, length, epoch, magic, attributes, delta, top, producer_id = _HEADER.unpack_from(data, at)
    size = length + _OVERHEAD
    if magic == _MAGIC:
        if size < _SMALLEST or delta < 0 or first < 0:
            return None
        return BatchHeader(size, first, first + delta, epoch, attributes, top, producer_id)
    if not 0 <= magic < _MAGIC or size < _SMALLEST_LEGACY or first < 0:
        return None
    top = _TIMESTAMP.unpack_from(data, at)[0] if magic else NO_TIMESTAMP
    return BatchHeader(size, first, first, NO_EPOCH, 0, top, _NO_PRODUCER)


def headers(data: bytes) -> Iterator[BatchHeader]:
    """Read the headers of the whole batches that stand one behind the other."""
    at = 0
    while len(data) - at > _MAGIC_AT:
        found = header(data, at)
        if found is None or at + found.size > len(data):
            return
        yield found
        at += found.size


class SegmentIndex:
    """A segment, as far as headers were read.

    | field        | is |
    |--------------|----|
    | behind, size | log offset and byte behind the last batch of which the header was read |
    | epoch        | of the first batch |
    | top          | greatest timestamp |
    | damaged      | what goes on at `size` is no batch |
    """

    def __init__(self, segment: Segment) -> None:
        self.path, self.base_offset = segment.path, segment.base_offset
        self.behind, self.size, self.epoch, self.top = segment.base_offset, 0, NO_EPOCH, NO_TIMESTAMP
        self.damaged = False
        # Of each place: the lowest log offset that can stand there, the byte, and the greatest timestamp before it.
        self._offsets, self._bytes, self._tops = array("q", [self.behind]), array("q", [0]), array("q", [self.top])

    def add(self, batch: BatchHeader) -> None:
        """Take in the header of the next batch."""
        if self.size == 0:
            self.epoch = batch.epoch
        elif self.size - self._bytes[-1] >= INTERVAL:
            self._offsets.append(self.behind)
            self._bytes.append(self.size)
            self._tops.append(self.top)
        self.size += batch.size
        self.behind = batch.last + 1
        self.top = max(self.top, batch.top)

    def read(self, handle: int, offset: int, end: int, most: int) -> tuple[bytes, int]:
        """Read whole batches from the one that reaches to log offset `offset` on, and below `end`.

        Up to `most` bytes; gives them with the log offset behind them.
        """
        start, stop = self._byte_of(handle, offset), self._byte_of(handle, end)
        data = os.pread(handle, min(stop - start, most), start)
        number = bisect_right(self._bytes, start + len(data)) - 1
        whole = max(self._bytes[number] - start, 0)
        behind = max(self._offsets[number], offset)
        for batch in headers(data[whole:]):
            whole, behind = whole + batch.size, batch.last + 1
        return data[:whole], behind

    def size_at(self, handle: int, offset: int) -> int:
        """Give how many bytes the batch has that reaches to a log offset; 0 where there is none."""
        found = header(os.pread(handle, _SMALLEST, self._byte_of(handle, offset)))
        return found.size if found else 0

    def first_since(self, handle: int, timestamp: int) -> Found | None:
        """Find the first record that is as young as a timestamp in ms, 0 or later; CorruptBatch as `records`."""
        for number in range(bisect_left(self._tops, timestamp) - 1, len(self._tops)):
            data, at = self._between(handle, number), 0
            for batch in headers(data):
                if batch.top >= timestamp:
                    for record in records(data[at : at + batch.size]):
                        if record.timestamp >= timestamp:
                            return Found(record.timestamp, record.offset, batch.epoch)
                at += batch.size
        return None

    def _byte_of(self, handle: int, offset: int) -> int:
        """Find where the first batch begins that reaches to a log offset."""
        if offset >= self.behind:
            return self.size
        number = max(bisect_right(self._offsets, offset) - 1, 0)
        at: int = self._bytes[number]
        if offset > self._offsets[number]:
            for batch in headers(self._between(handle, number)):
                if batch.last >= offset:
                    break
                at += batch.size
        return at

    def _between(self, handle: int, number: int) -> bytes:
        """Read the batches from one place to the next."""
        stop = self._bytes[number + 1] if number + 1 < len(self._bytes) else self.size
        return os.pread(handle, stop - self._bytes[number], self._bytes[number])


def records(batch: bytes) -> Iterator[Any]:
    """Give the records of a batch, as aiokafka has them; CorruptBatch where it cannot be read."""
    try:
        yield from MemoryRecords(batch).next_batch() or ()
    except Exception as error:  # each codec has its own errors, and all mean the same here
        raise CorruptBatch(f"a record batch cannot be read: {error}") from error
