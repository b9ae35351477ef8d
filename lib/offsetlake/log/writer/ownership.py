"""Who may write to the folder of a log: one process at a time, and never beside a broker."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from offsetlake.errors import LogBusy, LogUnavailable
from offsetlake.util.atomic_files import suppress_full

_LOCK = "offsetlake.lock"
_BROKERS_OWN = "meta.properties"


@contextmanager
def owned(folder: Path, owner: str) -> Iterator[None]:
    """Be the one process that writes to the log in `folder`, for as long as the context lasts.

    The kernel frees the lock when the process ends, however it ends. Raises LogBusy where another process holds it, or
    the folder is a broker's own; LogUnavailable where there is no such folder or it cannot be written.
    """
    refuse_brokers_own(folder)
    with _opened(folder) as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = (folder / _LOCK).read_text(encoding="utf-8") or "another process"
            raise LogBusy(f"{holder} writes to the log {folder}: wait for it to end, or stop it") from error
        with disk_errors(folder), suppress_full():  # the name is only for others to read
            file.truncate(0)
            file.write(f"{owner} (process {os.getpid()})".encode())
        yield


def refuse_brokers_own(folder: Path) -> None:
    """Raise LogBusy where the folder is a broker's own: nothing but that broker may write there."""
    if (folder / _BROKERS_OWN).exists():
        raise LogBusy(
            f"{folder} is a broker's own folder ({_BROKERS_OWN} is in it): nothing but that broker may write there; "
            "act through the cluster with --bootstrap, or on a copy without that file"
        )


def _opened(folder: Path) -> FileIO:
    with disk_errors(folder):
        return FileIO(folder / _LOCK, "a+")


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Say of the log in `folder` that it cannot be written, and why: LogUnavailable for what the disk says."""
    try:
        yield
    except OSError as error:
        raise LogUnavailable(f"the log {folder} cannot be written: {error.strerror}") from error
