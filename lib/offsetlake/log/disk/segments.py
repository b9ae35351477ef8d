"""The segments of a partition on disk: `<base offset>.log` files."""

import re
from dataclasses import dataclass
from pathlib import Path

from offsetlake.errors import LogUnavailable

_SEGMENT = re.compile(r"([0-9]{20})\.log")


@dataclass(frozen=True, slots=True)
class Segment:
    """One `<base offset>.log` file."""

    base_offset: int
    path: Path


def segments_of(partition: Path) -> list[Segment]:
    """List the segments in the folder of a partition, in order; LogUnavailable where it cannot be read."""
    matches = [(_SEGMENT.fullmatch(path.name), path) for path in entries(partition)]
    return sorted((Segment(int(match[1]), path) for match, path in matches if match), key=lambda s: s.base_offset)


def entries(folder: Path) -> list[Path]:
    """List what is in a folder; LogUnavailable where it cannot be read."""
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise LogUnavailable(f"the folder {folder} cannot be read: {error.strerror}") from error
