"""What is written reaches the disk before anything counts on it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FULL = {errno.ENOSPC, errno.EDQUOT}


def to_disk(path: Path) -> None:
    """Return when a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def suppress_full() -> Iterator[None]:
    """Pass over what fails because a disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise


def temporary_of(path: Path) -> Path:
    """Give where the file that is to take the place of one is written."""
    return path.with_name(f".{path.name}.tmp")


def real_path(path: Path) -> Path:
    """Return the file that a path leads to through symbolic links; raises OSError if it can be no regular file."""
    try:
        real = path.resolve()
    except RuntimeError as error:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error
    if real.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if real.exists() and not real.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return real


def _make(file: Path, mode: int) -> None:
    """Make a new file: what a kill or somebody else left in its place has another mode, or leads elsewhere."""
    new = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    try:
        os.close(os.open(file, new, mode))
    except FileExistsError:
        file.unlink()
        os.close(os.open(file, new, mode))


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """Give the file to write, made with a mode, that takes the place of `path` behind the block.

    A kill leaves the old one or the new one; so does OSError, and what else the block raises. Symbolic links stay: the
    file that they lead to is replaced.
    """
    path = real_path(path)
    temporary = temporary_of(path)
    try:
        _make(temporary, mode)
        yield temporary
        to_disk(temporary)
        temporary.replace(path)
        to_disk(path.parent)
    except BaseException:
        with suppress(OSError):  # what has failed is told, not what could not be tidied up
            temporary.unlink()
        raise
