"""Ensures that only one process writes to the folder of a log, and none to the folder of a broker."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from offsetlake.errors import LogBusy, LogUnavailable
from offsetlake.log.disk.segments import LOCK_FILE, entries, partition_folders
from offsetlake.log.positions import LOG_TOPICS
from offsetlake.util.atomic_files import suppress_full

_BROKER_FILE = "meta.properties"
CLUSTER_FILE = "offsetlake-broker.json"
"""In the folder of a log that belongs to a cluster whose broker the serving process is."""


@contextmanager
def owned(folder: Path, owner: str) -> Iterator[None]:
    """Own the log in a folder for the duration of the context; `owner` names this process to others.

    The kernel releases the lock when the process ends for any reason.

    Raises:
        LogBusy: Another process owns the log, or the folder belongs to a broker.
        LogUnavailable: The folder does not exist or cannot be written; before the first write, also as `describe`.
        LogMismatch: Before the first write, as `describe`.
    """
    refuse_broker_folder(folder)
    if _is_of_others(folder):
        from offsetlake.log.writer.first_write import record_lacking  # noqa: PLC0415 - it imports NumPy

        with disk_errors(folder):
            record_lacking(folder)
    with _opened(folder) as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = (folder / LOCK_FILE).read_text(encoding="utf-8") or "another process"
            raise LogBusy(f"{holder} writes to the log {folder}. Wait until it ends, or stop it.") from error
        with disk_errors(folder), suppress_full():  # the name only serves error messages
            file.truncate(0)
            file.write(f"{owner} (process {os.getpid()})".encode())
        yield


def _is_of_others(folder: Path) -> bool:
    """Return whether a folder contains a log that offsetlake has not written to; a new one has no files."""
    if (folder / LOCK_FILE).exists() or not folder.is_dir():
        return False
    return any(entries(path) for path in partition_folders(folder, *LOG_TOPICS).values())


def refuse_broker_folder(folder: Path) -> None:
    """Raise LogBusy if the folder belongs to a broker, because only that broker may write to it."""
    if (folder / _BROKER_FILE).exists():
        raise LogBusy(
            f"{folder} belongs to a broker (it contains {_BROKER_FILE}), and only the broker may write to it. "
            "Use the cluster with --bootstrap, or a copy of the folder without that file."
        )


def refuse_cluster_folder(folder: Path) -> None:
    """Raise LogBusy if only the serving process of a cluster may write to the log in a folder."""
    if (folder / CLUSTER_FILE).exists():
        raise LogBusy(
            f"{folder} is the log of __consumer_offsets of a cluster (it contains {CLUSTER_FILE}): only `offsetlake "
            "serve --cluster` may write to it. Start it, then run this command again."
        )


def _opened(folder: Path) -> FileIO:
    with disk_errors(folder):
        return FileIO(folder / LOCK_FILE, "a+")


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Convert OSError to LogUnavailable, which says that the log cannot be written and why."""
    try:
        yield
    except OSError as error:
        raise LogUnavailable(f"The log {folder} cannot be written: {error.strerror}.") from error
