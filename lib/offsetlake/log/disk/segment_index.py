"""Indexes a segment by log offset and by timestamp, from the headers of its batches.

Like a broker's, the index is sparse: it has an entry every INTERVAL_BYTES, from which the headers are read again.
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

INTERVAL_BYTES = 4096  # approximate distance of entries: the default of index.interval.bytes
NO_TIMESTAMP, NO_EPOCH = -1, -1

_HEADER = struct.Struct(">qiib4xhi8xqqh")  # with magic 2, up to the producer epoch
_TIMESTAMP = struct.Struct(">18xq")  # with magic 1
_OVERHEAD, _MAGIC_AT, _MAGIC = 12, 16, 2
_MIN_BYTES, _MIN_LEGACY_BYTES = 61, 26
_NO_PRODUCER = -1, -1


class BatchHeader(NamedTuple):
    """The fields of a batch header that the index needs.

    Attributes:
        size: The size of the whole batch in bytes.
        first: The first log offset; with magic 0 and 1 the last one.
        last: The last log offset.
        epoch: The epoch of the leader that wrote the batch; -1 with magic 0 and 1.
        attributes: The attribute bits; 0 with magic 0 and 1.
        max_timestamp: The maximum timestamp in milliseconds since the epoch; -1 if there is none.
        producer_id, producer_epoch: The producer ID and epoch; -1 if there is none.
    """

    size: int
    first: int
    last: int
    epoch: int
    attributes: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int


class RecordPosition(NamedTuple):
    """The timestamp (ms since the epoch) and log offset of a record, and the leader epoch of its batch (-1 = none)."""

    timestamp: int
    offset: int
    epoch: int


def header(data: bytes, position: int = 0) -> BatchHeader | None:
    """Return the header of the batch at a position; None if no batch can begin there or the header is incomplete."""
    if len(data) - position < _MIN_BYTES:
        # A batch with magic 0 or 1 may be shorter; with magic 2, the size will be wrong.
        data, position = data[position:] + bytes(_MIN_BYTES), 0
    fields = _HEADER.unpack_from(data, position)
    first, length, epoch, magic, attributes, delta, max_timestamp, *producer = fields
    size = length + _OVERHEAD
    if magic == _MAGIC:
        if size < _MIN_BYTES or delta < 0 or first < 0:
            return None
        return BatchHeader(size, first, first + delta, epoch, attributes, max_timestamp, *producer)
    if not 0 <= magic < _MAGIC or size < _MIN_LEGACY_BYTES or first < 0:
        return None
    max_timestamp = _TIMESTAMP.unpack_from(data, position)[0] if magic else NO_TIMESTAMP
    return BatchHeader(size, first, first, NO_EPOCH, 0, max_timestamp, *_NO_PRODUCER)


def headers(data: bytes) -> Iterator[BatchHeader]:
    """Yield the headers of consecutive whole batches from the start of `data`."""
    position = 0
    while len(data) - position > _MAGIC_AT:
        batch = header(data, position)
        if batch is None or position + batch.size > len(data):
            return
        yield batch
        position += batch.size


class SegmentIndex:
    """The index of a segment, up to the last batch whose header was read.

    Attributes:
        path: The file of the segment.
        base_offset: The base offset of the segment.
        end: The log offset after the last batch.
        size: The position after the last batch, in bytes.
        epoch: The leader epoch of the first batch.
        max_timestamp: The maximum timestamp.
        damaged: Whether the bytes at `size` are not a batch.
    """

    def __init__(self, segment: Segment) -> None:
        self.path, self.base_offset = segment.path, segment.base_offset
        self.end, self.size, self.epoch, self.max_timestamp = segment.base_offset, 0, NO_EPOCH, NO_TIMESTAMP
        self.damaged = False
        # For each entry: the minimum log offset, the position in bytes, and the maximum timestamp before it.
        self._offsets, self._positions = array("q", [self.end]), array("q", [0])
        self._max_timestamps = array("q", [self.max_timestamp])

    def add(self, batch: BatchHeader) -> None:
        """Add the header of the next batch."""
        if self.size == 0:
            self.epoch = batch.epoch
        elif self.size - self._positions[-1] >= INTERVAL_BYTES:
            self._offsets.append(self.end)
            self._positions.append(self.size)
            self._max_timestamps.append(self.max_timestamp)
        self.size += batch.size
        self.end = batch.last + 1
        self.max_timestamp = max(self.max_timestamp, batch.max_timestamp)

    def read(self, handle: int, offset: int, end: int, max_bytes: int) -> tuple[bytes, int]:
        """Return at most `max_bytes` of whole batches from log offset `offset` to `end`, and the log offset after them.

        The first batch is the one that ends at or after `offset`.
        """
        start, stop = self._position_of(handle, offset), self._position_of(handle, end)
        data = os.pread(handle, min(stop - start, max_bytes), start)
        entry = bisect_right(self._positions, start + len(data)) - 1
        size = max(self._positions[entry] - start, 0)
        next_offset = max(self._offsets[entry], offset)
        for batch in headers(data[size:]):
            size, next_offset = size + batch.size, batch.last + 1
        return data[:size], next_offset

    def size_at(self, handle: int, offset: int) -> int:
        """Return the size of the first batch that ends at or after a log offset; 0 if there is none."""
        batch = header(os.pread(handle, _MIN_BYTES, self._position_of(handle, offset)))
        return batch.size if batch else 0

    def first_since(self, handle: int, timestamp: int) -> RecordPosition | None:
        """Return the first record whose timestamp (ms since the epoch) is at or after `timestamp`, which is at least 0.

        Raises:
            CorruptBatch: A batch cannot be read.
        """
        for entry in range(bisect_left(self._max_timestamps, timestamp) - 1, len(self._max_timestamps)):
            data, position = self._read_entry(handle, entry), 0
            for batch in headers(data):
                if batch.max_timestamp >= timestamp:
                    for record in records(data[position : position + batch.size]):
                        if record.timestamp >= timestamp:
                            return RecordPosition(record.timestamp, record.offset, batch.epoch)
                position += batch.size
        return None

    def _position_of(self, handle: int, offset: int) -> int:
        """Return the position of the first batch that ends at or after a log offset."""
        if offset >= self.end:
            return self.size
        entry = max(bisect_right(self._offsets, offset) - 1, 0)
        position: int = self._positions[entry]
        if offset > self._offsets[entry]:
            for batch in headers(self._read_entry(handle, entry)):
                if batch.last >= offset:
                    break
                position += batch.size
        return position

    def _read_entry(self, handle: int, entry: int) -> bytes:
        """Return the batches from an entry of the index to the next one."""
        stop = self._positions[entry + 1] if entry + 1 < len(self._positions) else self.size
        return os.pread(handle, stop - self._positions[entry], self._positions[entry])


def records(batch: bytes) -> Iterator[Any]:
    """Yield the records of a batch, as aiokafka's objects.

    Raises:
        CorruptBatch: The batch cannot be read.
    """
    try:
        yield from MemoryRecords(batch).next_batch() or ()
    except Exception as error:  # each codec raises its own types, which all mean the same here
        raise CorruptBatch(f"A record batch cannot be read: {error}") from error
