"""Scratch copies of a lake, for plans: a copy can be brought up to date with the log without changing the lake."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from offsetlake.errors import OffsetlakeError
from offsetlake.lake.lake import LOCK, Lake, disk_errors

_LAST_CHECKPOINT = "_last_checkpoint"  # the only file of a table that Delta overwrites

_State = tuple[dict[str, int], dict[str, tuple[int, int]]]


@contextmanager
def scratch(lake: Lake) -> Iterator[Lake]:
    """Yield a copy of a lake to write to; it is removed after the block. The lake is neither locked nor written to.

    The files of the tables, which never change, are symbolic links; the few others are copied. What is written to the
    copy therefore stays in it. A job that is writing to the lake looks as if it had been killed: the copy finishes its
    run. Errors raised in the block name the lake instead of the copy.
    """
    with TemporaryDirectory(prefix="offsetlake-plan-") as folder:
        with disk_errors(Path(folder)):
            path = _linked(lake, Path(folder))
        try:
            yield Lake.create(path)
        except OffsetlakeError as error:
            raise type(error)(str(error).replace(str(path), str(lake.path))) from error


def _linked(lake: Lake, folder: Path) -> Path:
    """Link a consistent state of all files of a lake into a new folder."""
    for attempt in count():
        state_before, path = _state(lake), folder / str(attempt)
        for root, _, names in os.walk(lake.path):
            copy = path / Path(root).relative_to(lake.path)
            copy.mkdir(parents=True)
            for name in names:
                if Path(root) != lake.path and name != _LAST_CHECKPOINT:
                    (copy / name).symlink_to(Path(root) / name)
                elif name != LOCK:
                    with suppress(FileNotFoundError):  # removed after it was listed
                        shutil.copy2(Path(root) / name, copy / name)
        if _state(lake) == state_before:
            break
    return path


def _state(lake: Lake) -> _State:
    """Return what changes whenever a job writes: the versions of the tables, and the identity of the other files."""
    files = {}
    for entry in lake.path.iterdir():
        with suppress(FileNotFoundError):  # removed after it was listed
            stat = entry.stat()
            if entry.is_file() and entry.name != LOCK:
                files[entry.name] = (stat.st_ino, stat.st_mtime_ns)
    return lake.versions(), files
