"""The copy of a partition of `__consumer_offsets` that a follower keeps: the same bytes at the same log offsets."""

import os
import struct
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from offsetlake.errors import CorruptBatch
from offsetlake.log.disk.segments import segments_of
from offsetlake.log.writer.appender import SEGMENT_BYTES
from offsetlake.log.writer.ownership import disk_errors
from offsetlake.util.atomic_files import to_disk

NO_EPOCH = -1
_HEAD = struct.Struct(">qiibI")  # base offset, size, leader epoch, magic, checksum
_LAST_DELTA = struct.Struct(">i")
_SIZE_SINCE, _LAST_DELTA_POSITION = 12, 23
_MAGIC = 2


class _Batch(NamedTuple):
    base: int
    last: int
    epoch: int
    begin: int
    end: int


class PartitionCopy:
    """Appends record batches of the leader; `end` and `epoch` are the log end offset and the last leader epoch.

    The folder must not contain an incomplete last batch (`recover`).
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with disk_errors(folder):
            folder.mkdir(exist_ok=True)
        self.end, self.epoch = 0, NO_EPOCH
        for segment in reversed(segments_of(folder)):
            self.end = max(self.end, segment.base_offset)
            if batches := _batches(segment.path.read_bytes(), f"{segment.path}"):
                self.end, self.epoch = batches[-1].last + 1, batches[-1].epoch
                break

    @property
    def start(self) -> int:
        """The log start offset."""
        segments = segments_of(self._folder)
        return segments[0].base_offset if segments else self.end

    def append(self, data: bytes) -> int:
        """Append the complete batches of a response to Fetch, which are on disk afterwards; return their number.

        Raises:
            CorruptBatch: A batch has a wrong checksum, or its offset precedes the log end offset.
            LogUnavailable: The log cannot be written.
        """
        batches = _batches(data, f"{self._folder.name} at the leader")
        if not batches:
            return 0
        if batches[0].base < self.end:
            raise CorruptBatch(
                f"The leader returned offset {batches[0].base} of {self._folder.name}, which precedes {self.end}."
            )
        with disk_errors(self._folder):
            segments = segments_of(self._folder)
            is_new = not segments or segments[-1].path.stat().st_size >= SEGMENT_BYTES
            path = self._folder / f"{self.end:020}.log" if is_new else segments[-1].path
            with path.open("ab") as file:
                file.write(data[: batches[-1].end])
                file.flush()
                os.fdatasync(file.fileno())
            if is_new:
                to_disk(self._folder)
        self.end, self.epoch = batches[-1].last + 1, batches[-1].epoch
        return len(batches)

    def restart(self, start: int) -> None:
        """Delete the copy, which has diverged from the log of the leader, and begin again at an offset.

        An empty segment keeps the offset, because the leader may have no record after it.
        """
        with disk_errors(self._folder):
            for segment in reversed(segments_of(self._folder)):  # killed in between, the copy is a shorter one
                segment.path.unlink()
            (self._folder / f"{start:020}.log").touch()
            to_disk(self._folder)
        self.end, self.epoch = start, NO_EPOCH


def _batches(data: bytes, source: str) -> list[_Batch]:
    """Return the complete batches at the beginning of some bytes; raise CorruptBatch if a checksum is wrong."""
    found: list[_Batch] = []
    begin = 0
    view = memoryview(data)
    while begin + _LAST_DELTA_POSITION + _LAST_DELTA.size <= len(data):
        base, size, epoch, magic, checksum = _HEAD.unpack_from(data, begin)
        end = begin + _SIZE_SINCE + size
        if end > len(data):
            break
        if magic != _MAGIC or google_crc32c.value(bytes(view[begin + _HEAD.size : end])) != checksum:
            raise CorruptBatch(f"The record batch with offset {base} in {source} has a wrong checksum.")
        (delta,) = _LAST_DELTA.unpack_from(data, begin + _LAST_DELTA_POSITION)
        found.append(_Batch(base, base + delta, epoch, begin, end))
        begin = end
    return found
