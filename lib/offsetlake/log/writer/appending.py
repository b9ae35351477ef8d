"""The one writer of a log folder: it owns the folder, cuts off what a crash has torn, and appends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import google_crc32c

from offsetlake.log.disk.folder import end_of
from offsetlake.log.disk.segments import segments_of
from offsetlake.log.positions import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, LogPartition
from offsetlake.log.writer.appender import Appender
from offsetlake.log.writer.ownership import disk_errors, owned
from offsetlake.util.atomic_files import to_disk


@contextmanager
def appending(folder: Path, owner: str) -> Iterator[Appender]:
    """Own the log in `folder` and write to its end; torn ends are cut off first, as `truncate_torn` does.

    Raises LogBusy where another process writes to it or it is a broker's own, LogUnavailable where it cannot be
    written.
    """
    with owned(folder, owner):
        truncate_torn(folder)
        appender = Appender(folder, lambda segment: end_of(segment)[0])
        try:
            yield appender
        finally:
            appender.close()


def truncate_torn(folder: Path) -> dict[LogPartition, int]:
    """Cut every partition's last segment behind its last whole batch; gives the bytes cut, by partition.

    For the owner of the log only. The bytes are kept in a file beside the segment, `<base>.<end>.<CRC-32C>.torn`: a
    write that was never acknowledged most likely, but a person may look.
    """
    cut = {}
    for path in sorted(path for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) for path in folder.glob(f"{topic}-*")):
        segments = segments_of(path)
        end, torn = end_of(segments[-1]) if segments else (0, 0)
        if torn:
            segment = segments[-1].path
            with disk_errors(path):
                _keep_and_truncate(segment, end, segment.stat().st_size - torn)
            topic, _, number = path.name.rpartition("-")
            cut[LogPartition(topic, int(number))] = torn
    return cut


def _keep_and_truncate(segment: Path, end: int, size: int) -> None:
    with segment.open("rb+") as file:
        file.seek(size)
        torn = file.read()
        # Torn again at the same offset it is another file; cut short here and done again it is the same.
        with segment.with_suffix(f".{end}.{google_crc32c.value(torn):08x}.torn").open("wb") as kept:
            kept.write(torn)
            kept.flush()
            os.fsync(kept.fileno())
        to_disk(segment.parent)
        file.truncate(size)
        os.fsync(file.fileno())
