"""Temporary folders, which hold copies of parts of a lake; those of killed processes are removed by the next one."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MIN_AGE_SECONDS = 60  # of a folder that is removed: a younger one may not be locked yet


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Yield a folder in the system's folder for temporary files; it is removed after the block.

    It is locked during the block: a folder of the same prefix that nobody has locked belonged to a killed process.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # another process uses it, has removed it, or belongs to another user
            _remove_abandoned(folder)
    with tempfile.TemporaryDirectory(prefix=prefix) as name, _locked(Path(name)):
        yield Path(name)


def _remove_abandoned(folder: Path) -> None:
    """Remove a folder; raise BlockingIOError if a process has locked it."""
    if time.time() - folder.stat().st_mtime > _MIN_AGE_SECONDS:
        with _locked(folder):
            shutil.rmtree(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
