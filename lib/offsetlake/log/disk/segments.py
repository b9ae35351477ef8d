"""Segments of a partition on disk: the files `<base offset>.log`."""

import re
from dataclasses import dataclass
from pathlib import Path

from offsetlake.errors import LogUnavailable

_SEGMENT = re.compile(r"([0-9]{20})\.log")


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment, which is a file `<base offset>.log`."""

    base_offset: int
    path: Path


def segments_of(partition: Path) -> list[Segment]:
    """Return the segments in the folder of a partition, in log order.

    Raises:
        LogUnavailable: The folder cannot be read.
    """
    matches = [(_SEGMENT.fullmatch(path.name), path) for path in entries(partition)]
    return sorted((Segment(int(match[1]), path) for match, path in matches if match), key=lambda s: s.base_offset)


def entries(folder: Path) -> list[Path]:
    """Return the paths in a folder.

    Raises:
        LogUnavailable: The folder cannot be read.
    """
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise LogUnavailable(f"The folder {folder} cannot be read: {error.strerror}.") from error
