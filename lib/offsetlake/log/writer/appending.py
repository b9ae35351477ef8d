"""Opens a log in a folder for writing: takes ownership and truncates what a crash left incomplete."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import google_crc32c

from offsetlake.log.disk.folder import end_of
from offsetlake.log.disk.segments import segments_of
from offsetlake.log.positions import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC, LogPartition
from offsetlake.log.writer.appender import Appender
from offsetlake.log.writer.ownership import disk_errors, owned, refuse_cluster_folder
from offsetlake.util.atomic_files import to_disk

_WRITTEN_TOPICS = (OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC)


@contextmanager
def appending(folder: Path, owner: str) -> Iterator[Appender]:
    """Own the log in a folder, truncate incomplete batches (`truncate_torn`), and yield its appender.

    Raises:
        LogBusy: Another process owns the log, or the folder belongs to a broker.
        LogUnavailable: The log cannot be written.
    """
    refuse_cluster_folder(folder)
    with owned(folder, owner):
        truncate_torn(folder)
        appender = Appender(folder, lambda segment: end_of(segment)[0])
        try:
            yield appender
        finally:
            appender.close()


def truncate_torn(folder: Path) -> dict[LogPartition, int]:
    """Truncate the last segment of each partition after its last whole batch; return the bytes removed by partition.

    Only the owner of the log may call this. The bytes, most likely a write that was never acknowledged, are kept for
    inspection in a file next to the segment: `<base>.<end>.<CRC-32C>.torn`.
    """
    torn_bytes = {}
    for path in sorted(path for topic in _WRITTEN_TOPICS for path in folder.glob(f"{topic}-*")):
        segments = segments_of(path)
        end, torn = end_of(segments[-1]) if segments else (0, 0)
        if torn:
            segment = segments[-1].path
            with disk_errors(path):
                _keep_and_truncate(segment, end, segment.stat().st_size - torn)
            topic, _, number = path.name.rpartition("-")
            torn_bytes[LogPartition(topic, int(number))] = torn
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
