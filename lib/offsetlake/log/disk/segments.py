"""Partitions on disk: the folders `<topic>-<partition>` of a log, and their segments `<base offset>.log`."""

import re
from dataclasses import dataclass
from pathlib import Path

from offsetlake.errors import LogUnavailable
from offsetlake.log.positions import LogPartition

_SEGMENT = re.compile(r"([0-9]{20})\.log")
_PARTITION = re.compile(r"(.+)-(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment, which is a file `<base offset>.log`."""

    base_offset: int
    path: Path


def partition_folders(folder: Path, *topics: str) -> dict[LogPartition, Path]:
    """Return the folders of the partitions of some topics, in the order of the topics' names and the partitions.

    What has another name, such as a copy `__consumer_offsets-3.bak`, is no partition and is ignored.

    Raises:
        LogUnavailable: The folder cannot be read.
    """
    named = ((partition_of(path), path) for path in entries(folder))
    found = ((partition, path) for partition, path in named if partition is not None and partition.topic in topics)
    return {partition: path for partition, path in sorted(found) if path.is_dir()}


def partition_of(path: Path) -> LogPartition | None:
    """Return the partition with a folder, None if its name is not that of a partition."""
    match = _PARTITION.fullmatch(path.name)
    return None if match is None else LogPartition(match[1], int(match[2]))


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
