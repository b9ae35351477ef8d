"""Opens a log in a folder for writing: takes ownership, and repairs what a crash left incomplete."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from offsetlake.log.disk.segment_bytes import end_of
from offsetlake.log.writer.appender import Appender
from offsetlake.log.writer.ownership import owned, refuse_cluster_folder
from offsetlake.log.writer.recovery import recover


@contextmanager
def appending(folder: Path, owner: str) -> Iterator[Appender]:
    """Own the log in a folder, repair it after a crash (`recover`), and yield its appender.

    Raises:
        LogBusy: Another process owns the log, or the folder belongs to a broker.
        LogUnavailable: The log cannot be written.
    """
    refuse_cluster_folder(folder)
    with owned(folder, owner):
        recover(folder)
        appender = Appender(folder, lambda segment: end_of(segment.path, segment.base_offset)[0])
        try:
            yield appender
        finally:
            appender.close()
