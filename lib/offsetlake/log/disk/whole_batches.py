"""Reads all record batches of a segment, of a coordinator topic that a server loads when it starts."""

import struct
from collections.abc import Iterator
from pathlib import Path

from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords

from offsetlake.errors import LogUnavailable

_BATCH_LENGTH = struct.Struct(">8xi")  # the field after the base offset
_MIN_LENGTH = 14  # of a batch with magic 0


def whole_batches(segment: Path) -> Iterator[DefaultRecordBatch]:
    """Yield the record batches of a segment in log order, after their checksums are verified.

    Raises:
        LogUnavailable: The segment is corrupt, has a torn batch at its end or cannot be read.
    """
    try:
        data = segment.read_bytes()
    except OSError as error:
        raise LogUnavailable(f"The segment {segment} cannot be read: {error.strerror}.") from error
    corrupt = LogUnavailable(f"The segment {segment} is corrupt. Replace it by an intact copy.")
    if not _has_whole_batches(data):
        raise corrupt
    batches = MemoryRecords(data)
    while (batch := batches.next_batch()) is not None:
        if not batch.validate_crc():
            raise corrupt
        yield batch


def _has_whole_batches(data: bytes) -> bool:
    """Check by the length fields whether the data consists of whole batches."""
    position = 0
    while position <= len(data) - _BATCH_LENGTH.size:
        (length,) = _BATCH_LENGTH.unpack_from(data, position)
        if length < _MIN_LENGTH:
            return False
        position += _BATCH_LENGTH.size + length
    return position == len(data)
