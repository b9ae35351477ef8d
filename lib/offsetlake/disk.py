"""What is written reaches the disk before anything counts on it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def to_disk(path: Path) -> None:
    """Return when a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def temporary_of(path: Path) -> Path:
    """Give where the file that is to take the place of one is written."""
    return path.with_name(f".{path.name}.tmp")


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

    A kill leaves the old one or the new one; so does OSError, and what else the block raises.
    """
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
