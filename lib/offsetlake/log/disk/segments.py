"""Partitions on disk: the folders `<topic>-<partition>` of a log, and their segments `<base offset>.log`.

A broker that stops, or a copy that is made, while the log cleaner replaces segments leaves the new segment as
`<base offset>.log.swap`. Folders are read as a broker reads them when it starts (Kafka's `LogLoader`): a swap file is a
segment and replaces those that begin within it; `.cleaned` files are unfinished and `.deleted` files are replaced.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from offsetlake.errors import LogUnavailable
from offsetlake.log.positions import LogPartition

_FILE = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex|snapshot)(\.[a-z]+)?")
_INDEXES = frozenset({"index", "timeindex", "txnindex"})
_KINDS = _INDEXES | {"log"}
SWAP, _CLEANED, _DELETED = ".swap", ".cleaned", ".deleted"
LOCK_FILE = "offsetlake.lock"
"""The file of a folder whose log offsetlake writes, which creates the folder of a partition with its first record."""
_PARTITION = re.compile(r"(.+)-(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment, which is a file `<base offset>.log`, or `<base offset>.log.swap` that replaces others."""

    base_offset: int
    path: Path


@dataclass(frozen=True, slots=True)
class _SegmentFile:
    """A file of a segment, with the parts of its name."""

    path: Path
    base: str
    kind: str
    suffix: str | None

    @property
    def base_offset(self) -> int:
        return int(self.base)

    @property
    def segment(self) -> Segment:
        return Segment(self.base_offset, self.path)


def partition_folders(folder: Path, *topics: str) -> dict[LogPartition, Path]:
    """Return the folders of the partitions of some topics, in the order of the topics' names and the partitions.

    What has another name, such as a copy `__consumer_offsets-3.bak`, is no partition and is ignored.

    Raises:
        LogUnavailable: The folder cannot be read.
    """
    named = ((partition_of(path), path) for path in entries(folder))
    found = ((partition, path) for partition, path in named if partition is not None and partition.topic in topics)
    return {partition: path for partition, path in sorted(found) if _is_folder(path)}


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:
        raise LogUnavailable(f"The folder {path} cannot be read: {error.strerror}.") from error


def partition_of(path: Path) -> LogPartition | None:
    """Return the partition with a folder, None if its name is not that of a partition."""
    match = _PARTITION.fullmatch(path.name)
    return None if match is None else LogPartition(match[1], int(match[2]))


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of the segments of a partition, as a broker reads them when it starts.

    | field    | description |
    |----------|-------------|
    | segments | the segments, in log order |
    | swaps    | the files of segments that replace others, and of their indexes: `.swap` |
    | replaced | the files of the segments that they replace |
    | snapshots | the snapshots of the state of producers, whose names are log offsets |
    | without_log | the base offsets of segments of which only an index is there |
    """

    segments: list[Segment]
    swaps: list[Path]
    replaced: list[Path]
    snapshots: list[Path]
    without_log: list[int]


def segments_of(partition: Path) -> list[Segment]:
    """Return the segments in the folder of a partition, in log order, as a broker reads them when it starts.

    Raises:
        LogUnavailable: The folder cannot be read.
    """
    return segment_files(partition).segments


def segment_files(partition: Path) -> SegmentFiles:
    """Return the files of the segments in the folder of a partition.

    Raises:
        LogUnavailable: The folder or a swap file cannot be read.
    """
    files = [
        _SegmentFile(path, *match.groups()) for path in entries(partition) if (match := _FILE.fullmatch(path.name))
    ]
    present = [file for file in files if file.suffix is None]
    logs = [file.segment for file in present if file.kind == "log"]
    snapshots = [file.path for file in present if file.kind == "snapshot"]
    without_log = _without_log(files)
    if not any(file.suffix == SWAP for file in files):
        return SegmentFiles(sorted(logs, key=_base_offset), [], [], snapshots, without_log)
    # A swap file at or after a cleaned one is part of an unfinished split of a segment (KAFKA-6264).
    limit = min((file.base_offset for file in files if file.suffix == _CLEANED), default=1 << 63)
    swaps = [file for file in files if file.suffix == SWAP and file.base_offset < limit]
    new = [file.segment for file in swaps if file.kind == "log"]
    bases = {segment.base_offset for segment in new}
    first, end = (min(bases), max(map(_end, new))) if new else (0, 0)
    # An empty swap file covers no log offset, but still takes the place of the segment of its name.
    replaced = [file.path for file in present if first <= file.base_offset < end or file.base_offset in bases]
    kept = [segment for segment in logs if segment.path not in replaced]
    without_log = [base for base in without_log if not first <= base < end]
    segments = sorted([*kept, *new], key=_base_offset)
    return SegmentFiles(segments, [file.path for file in swaps], replaced, snapshots, without_log)


def _without_log(files: Sequence[_SegmentFile]) -> list[int]:
    """Return the base offsets of indexes without a segment, unless a broker was about to delete them with it."""
    with_log = {file.base_offset for file in files if file.kind == "log" and file.suffix in (None, SWAP)}
    deleted = {
        kind: {file.base_offset for file in files if file.kind == kind and file.suffix == _DELETED} for kind in _KINDS
    }
    being_deleted = deleted["log"].difference(*(deleted[kind] for kind in _INDEXES))  # a broker renames the log first
    bases = {file.base_offset for file in files if file.kind in _INDEXES and file.suffix is None}
    return sorted(bases - with_log - being_deleted)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _end(segment: Segment) -> int:
    from offsetlake.log.disk.segment_bytes import end_of  # noqa: PLC0415 - it loads compiled code, which only a swap needs

    return end_of(segment.path, segment.base_offset)[0]


def entries(folder: Path) -> list[Path]:
    """Return the paths in a folder.

    Raises:
        LogUnavailable: The folder cannot be read.
    """
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise LogUnavailable(f"The folder {folder} cannot be read: {error.strerror}.") from error
