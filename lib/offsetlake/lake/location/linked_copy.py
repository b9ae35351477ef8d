"""Copies a folder with a lake cheaply, for changes that do not affect the lake."""

import os
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path

from offsetlake.lake.location.location import LOCK

_LAST_CHECKPOINT = "_last_checkpoint"  # the only file of a table that Delta overwrites

_State = tuple[dict[str, str], dict[str, tuple[int, int]]]


def linked_copy(lake: Path, folder: Path) -> Path:
    """Make a copy of a lake in a new folder, in a consistent state, and return its path.

    The files of the tables, which never change, are symbolic links; the few others are copied.
    """
    for attempt in count():
        state_before, path = _state(lake), folder / str(attempt)
        for root, _, names in os.walk(lake):
            copy = path / Path(root).relative_to(lake)
            copy.mkdir(parents=True)
            for name in names:
                if Path(root) != lake and name != _LAST_CHECKPOINT:
                    (copy / name).symlink_to(Path(root) / name)
                elif name != LOCK:
                    with suppress(FileNotFoundError):  # removed after it was listed
                        shutil.copy2(Path(root) / name, copy / name)
        if _state(lake) == state_before:
            break
    return path


def _state(lake: Path) -> _State:
    """Return what changes whenever a job writes: the newest entries of Delta logs, the identity of the other files."""
    entries, files = {}, {}
    for entry in lake.iterdir():
        if entry.is_dir():
            log = entry / "_delta_log"
            entries[entry.name] = max((file.name for file in log.glob("*.json")), default="") if log.is_dir() else ""
        with suppress(FileNotFoundError):  # removed after it was listed
            stat = entry.stat()
            if entry.is_file() and entry.name != LOCK:
                files[entry.name] = (stat.st_ino, stat.st_mtime_ns)
    return entries, files
