"""Repairs a log after a crash: what the journal contains is brought to the segments, and torn ends are truncated."""

import os
import struct
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import google_crc32c

from offsetlake.errors import LogUnavailable
from offsetlake.log.disk.segment_bytes import end_of
from offsetlake.log.disk.segments import partition_folders, segment_files, segments_of
from offsetlake.log.positions import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC, LogPartition
from offsetlake.log.writer import journal
from offsetlake.log.writer.journal import JOURNAL, JournalEntry
from offsetlake.log.writer.ownership import disk_errors
from offsetlake.util.atomic_files import to_disk

_WRITTEN_TOPICS = (OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC)
_BATCH_SIZE, _BATCH_CRC = struct.Struct(">i"), struct.Struct(">I")  # fields of a record batch
_SIZE_POSITION, _MAGIC_POSITION, _CRC_POSITION, _CHECKED_POSITION, _MAGIC = 8, 16, 17, 21, 2
_OVERHEAD = 12  # bytes of a batch that its size does not count


def recover(folder: Path) -> dict[LogPartition, int]:
    """Repair the log in a folder; return the bytes that were removed from torn ends, by partition.

    Only the owner of the log may call this. Each batch of the journal that is not at its position in its segment is
    written there again. Before that, a swap of segments that the log cleaner of a broker has begun is completed: the
    segments that are replaced get the suffix `.deleted`, as in a broker, and the swap files their final names. Then the
    last segment of each partition is truncated after its last whole batch. The bytes
    after it, most likely a write that was never acknowledged, are kept for inspection in a file next to the segment:
    `<base>.<end>.<CRC-32C>.torn`. Then the journal is removed. Repeating an interrupted call has the same result.

    Raises:
        LogUnavailable: The journal cannot be used, or another program has changed the log since the crash.
    """
    for path in partition_folders(folder, *_WRITTEN_TOPICS).values():
        with disk_errors(path):
            _complete_swap(path)
    entries = journal.entries(folder)
    by_segment = sorted(entries, key=lambda entry: entry[:2])  # keeps the order within a segment
    for (partition, segment), of_segment in groupby(by_segment, key=lambda entry: entry[:2]):
        path = folder / partition / f"{segment:020}.log"
        with disk_errors(folder):
            _restore(path, [*of_segment])
    torn = _truncate_torn(folder)
    with disk_errors(folder):
        if (folder / JOURNAL).exists():
            journal.remove(folder)
    return torn


def _complete_swap(partition: Path) -> None:
    files = segment_files(partition)
    for path in files.replaced:
        path.rename(f"{path}.deleted")
    if files.swaps:
        to_disk(partition)  # the replaced segments must not appear again beside those that replace them
        for path in files.swaps:
            path.rename(path.with_suffix(""))
        to_disk(partition)


def _restore(path: Path, entries: list[JournalEntry]) -> None:
    """Write those batches to a segment that are not in it, and bring it to the disk."""
    if not path.exists():
        if path.parent.is_dir() and any(segment.path > path for segment in segments_of(path.parent)):
            return  # it was deleted because the lake contains it
        raise _changed(path, "it is missing")
    with path.open("r+b", buffering=0) as file:
        handle = file.fileno()
        for position, batch in _batches(entries):
            found = os.pread(handle, len(batch), position)
            if _without_epoch(found) == _without_epoch(batch):
                continue
            if position > os.fstat(handle).st_size:
                raise _changed(path, f"it ends before byte {position}")
            if _checked(found) != _checked(batch) and _is_whole(handle, position):
                raise _changed(path, f"another record batch is at byte {position}")
            file.seek(position)
            data = memoryview(batch)
            while data:
                data = data[file.write(data) :]
        os.fdatasync(handle)


def _batches(entries: list[JournalEntry]) -> Iterator[tuple[int, bytes]]:
    """Yield each record batch of the entries with its position."""
    for entry in entries:
        begin = 0
        while begin < len(entry.batches):
            size = _OVERHEAD + _BATCH_SIZE.unpack_from(entry.batches, begin + _SIZE_POSITION)[0]
            yield entry.position + begin, entry.batches[begin : begin + size]
            begin += size


def _without_epoch(batch: bytes) -> tuple[bytes, bytes]:
    """Return a batch without its leader epoch, which a broker may change."""
    return batch[:_OVERHEAD], batch[_MAGIC_POSITION:]


def _checked(batch: bytes) -> bytes:
    """Return the part of a batch that its checksum covers, and the checksum; the base offset is not in it."""
    return batch[_CRC_POSITION:]


def _is_whole(handle: int, position: int) -> bool:
    """Return whether a whole record batch with a correct checksum is at a position of a file."""
    head = os.pread(handle, _CHECKED_POSITION, position)
    if len(head) < _CHECKED_POSITION or head[_MAGIC_POSITION] != _MAGIC:
        return False
    size = _OVERHEAD + _BATCH_SIZE.unpack_from(head, _SIZE_POSITION)[0]
    if not _CHECKED_POSITION < size <= os.fstat(handle).st_size - position:
        return False
    checked = os.pread(handle, size - _CHECKED_POSITION, position + _CHECKED_POSITION)
    return bool(_BATCH_CRC.unpack_from(head, _CRC_POSITION)[0] == google_crc32c.value(checked))


def _changed(path: Path, how: str) -> LogUnavailable:
    journal_path = path.parent.parent / JOURNAL
    return LogUnavailable(
        f"The segment {path} was changed since the server that wrote it ended: {how}. The journal {journal_path} has "
        "commits that belong there and were acknowledged. Restore the folder from a copy, or remove the journal to go "
        "on with what is in the segments."
    )


def _truncate_torn(folder: Path) -> dict[LogPartition, int]:
    """Truncate the last segment of each partition after its last whole batch; return the bytes removed by partition."""
    torn_bytes = {}
    for partition, path in partition_folders(folder, *_WRITTEN_TOPICS).items():
        segments = segments_of(path)
        end, torn = end_of(segments[-1].path, segments[-1].base_offset) if segments else (0, 0)
        if torn:
            segment = segments[-1].path
            with disk_errors(path):
                _keep_and_truncate(segment, end, segment.stat().st_size - torn)
            torn_bytes[partition] = torn
    return torn_bytes


def _keep_and_truncate(segment: Path, end: int, size: int) -> None:
    with segment.open("rb+") as file:
        file.seek(size)
        torn = file.read()
        # Different bytes at the same offset get another file; a repetition after an interruption gets the same.
        with segment.with_suffix(f".{end}.{google_crc32c.value(torn):08x}.torn").open("wb") as kept:
            kept.write(torn)
            kept.flush()
            os.fsync(kept.fileno())
        to_disk(segment.parent)
        file.truncate(size)
        os.fsync(file.fileno())
