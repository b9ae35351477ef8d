"""Record batches as a broker returned them: located by their headers, and passed on unchanged in parts."""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from offsetlake.coordinator.share_partition.requests import FetchedAbortedTransaction, FetchedBatch

_HEADER = struct.Struct(">qiibIhiqqq")  # up to the producer id
_LENGTH_FROM = 12  # the field `length` counts the bytes after itself
_RECORDS_FROM = 61
_INT16 = struct.Struct(">h")
_LAST_MAGIC = 2
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_ABORT = 0


class _Abort(NamedTuple):
    """An aborted transaction, and the offset of its marker, None if that was not fetched."""

    transaction: FetchedAbortedTransaction
    marker: int | None


class FetchedRecords:
    """The record batches of one response to Fetch, without the incomplete one at its end.

    Attributes:
        start: The offset that was requested.
        end: The offset after the last batch, `start` if there is none.
        batches: The headers of the batches.
    """

    def __init__(self, start: int, records: bytes, aborted: Sequence[FetchedAbortedTransaction] = ()) -> None:
        self.start = self.end = start
        self.batches: list[FetchedBatch] = []
        self._records, self._positions = records, [0]
        position, size = 0, len(records)
        while size - position >= _RECORDS_FROM:
            base, length, _, magic, _, attributes, delta, _, _, producer_id = _HEADER.unpack_from(records, position)
            stop = position + _LENGTH_FROM + length
            if stop > size or stop <= position:
                break
            if magic == _LAST_MAGIC:
                is_control = bool(attributes & _CONTROL)
                has_records = stop > position + _RECORDS_FROM  # compaction keeps some batches without their records
                is_abort = is_control and has_records and _marker_type(records, position + _RECORDS_FROM) == _ABORT
                is_transactional = bool(attributes & _TRANSACTIONAL)
                batch = FetchedBatch(base, base + delta, producer_id, is_transactional, is_abort)
            else:  # the offset of an older message, or of the last one that it contains
                batch = FetchedBatch(self.end, base)
            self.batches.append(batch)
            self._positions.append(stop)
            self.end, position = batch.last_offset + 1, stop
        self._aborts = [_Abort(each, self._marker(each)) for each in aborted]

    def __len__(self) -> int:
        """Return the number of bytes."""
        return len(self._records)

    def bytes_from(self, offset: int) -> int:
        """Return the number of bytes of the batches from the one with an offset on."""
        return self._positions[-1] - self._positions[self._index(offset)]

    def batches_from(
        self, offset: int, max_bytes: int
    ) -> tuple[Sequence[FetchedBatch], Sequence[FetchedAbortedTransaction]]:
        """Return the batches from the one with an offset on, up to a size but at least one, and what was aborted there.

        A transaction whose marker is before them is omitted: later batches of its producer belong to others.
        """
        first = self._index(offset)
        stop = max(first + 1, bisect_right(self._positions, self._positions[first] + max_bytes) - 1)
        batches = self.batches[first:stop]
        begin = batches[0].first_offset if batches else offset
        return batches, [each.transaction for each in self._aborts if each.marker is None or each.marker >= begin]

    def slice(self, first_offset: int, last_offset: int) -> bytes:
        """Return the batches that contain the records from one offset to another."""
        first, last = self._index(first_offset), self._index(last_offset)
        return self._records[self._positions[first] : self._positions[last + 1]]

    def _index(self, offset: int) -> int:
        """Return the number of the first batch that ends at or after an offset."""
        index = bisect_right(self.batches, offset, key=_first_offset) - 1
        if index < 0 or (self.batches[index].last_offset < offset and index + 1 < len(self.batches)):
            index += 1
        return index

    def _marker(self, transaction: FetchedAbortedTransaction) -> int | None:
        for batch in self.batches:
            ends = batch.is_abort_marker and batch.producer_id == transaction.producer_id
            if ends and batch.first_offset >= transaction.first_offset:
                return batch.first_offset
        return None


def _first_offset(batch: FetchedBatch) -> int:
    return batch.first_offset


def _marker_type(records: bytes, position: int) -> int:
    """Return the type of the control record at a position: the second field of its key."""
    position = _after_varint(records, position) + 1  # the length and the attributes
    for _ in range(3):  # the deltas of timestamp and offset, and the size of the key
        position = _after_varint(records, position)
    number: int = _INT16.unpack_from(records, position + _INT16.size)[0]
    return number


def _after_varint(data: bytes, position: int) -> int:
    while data[position] & 0x80:
        position += 1
    return position + 1
