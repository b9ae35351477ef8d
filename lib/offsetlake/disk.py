"""What is written reaches the disk before anything counts on it."""

import os
from pathlib import Path


def to_disk(path: Path) -> None:
    """Return when a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
