"""Replaces files atomically and brings writes to the disk."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FULL = {errno.ENOSPC, errno.EDQUOT}


def to_disk(path: Path) -> None:
    """Fsync a file, or a folder after its entries changed."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def suppress_full() -> Iterator[None]:
    """Suppress an OSError that means that the disk or the quota is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise


def temporary_of(path: Path) -> Path:
    """Return the path of the temporary file for a replacement."""
    return path.with_name(f".{path.name}.tmp")


def real_path(path: Path) -> Path:
    """Return the path after resolving symbolic links.

    Raises:
        OSError: The path cannot be that of a regular file.
    """
    try:
        real = path.resolve()
    except RuntimeError as error:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error
    if real.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if real.exists() and not real.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return real


def _create(file: Path, mode: int) -> None:
    """Create a new file; an existing one is replaced, because it may have another mode or be a symbolic link."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    try:
        os.close(os.open(file, flags, mode))
    except FileExistsError:
        file.unlink()
        os.close(os.open(file, flags, mode))


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """Yield a temporary file with a mode, which replaces `path` at the end of the block.

    If the process is killed or the block raises, `path` is either the old or the new file. If it is a symbolic link,
    the target is replaced.
    """
    path = real_path(path)
    temporary = temporary_of(path)
    try:
        _create(temporary, mode)
        yield temporary
        to_disk(temporary)
        temporary.replace(path)
        to_disk(path.parent)
    except BaseException:
        with suppress(OSError):  # the original error is more important
            temporary.unlink()
        raise
