"""Finds what a partition on disk must have contained, by the files that a broker keeps beside the segments."""

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from offsetlake.log.disk.absent_partitions import checkpoint_lines
from offsetlake.log.disk.segments import Segment, SegmentFiles
from offsetlake.log.positions import LogPartition, OffsetRange

_ENDS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")
_START = "log-start-offset-checkpoint"
_INDEX_ENTRY = struct.Struct(">ii")  # log offset relative to that of the segment, and position in bytes

Checkpoints = dict[str, dict[LogPartition, int]]
"""Log offsets by checkpoint file and partition."""


def read_checkpoints(folder: Path) -> Checkpoints:
    """Return the log offsets in the checkpoint files of a broker's data folder."""
    return {
        name: {LogPartition(topic, number): offset for topic, number, offset in checkpoint_lines(folder / name)}
        for name in (*_ENDS, _START)
    }


def log_start(checkpoints: Checkpoints, log_partition: LogPartition) -> int | None:
    """Return the log start offset that a broker has recorded: records before it are deleted, whatever a segment has."""
    return checkpoints[_START].get(log_partition)


class Missing(NamedTuple):
    """Records of a partition that are missing: their log offsets, and how that is known."""

    log_partition: LogPartition
    offsets: OffsetRange
    evidence: str

    def note(self) -> str:
        """Return the note for the operator."""
        return f"INCOMPLETE: {self.log_partition}{self.evidence}"


def missing_segments(checkpoints: Checkpoints, log_partition: LogPartition) -> Iterator[Missing]:
    """Yield what is missing of a partition without segments, of which there is always one, according to other files."""
    start = log_start(checkpoints, log_partition) or 0
    end = max(checkpoints[name].get(log_partition, 0) for name in _ENDS)
    if start < end:
        evidence = f" has no segment, but according to the files of its broker it had records up to {end}"
        yield Missing(log_partition, OffsetRange(start, end), evidence)


def missing_records(
    checkpoints: Checkpoints, log_partition: LogPartition, files: SegmentFiles, offsets: OffsetRange
) -> Iterator[Missing]:
    """Yield each part of a partition that is missing according to other files."""
    start = log_start(checkpoints, log_partition)
    ends = [start or 0, *(checkpoints[name].get(log_partition, 0) for name in _ENDS)]
    first = files.segments[0].base_offset
    if start is not None and start < first:
        yield Missing(
            log_partition,
            OffsetRange(start, first),
            f" begins at log offset {first}, but its log start offset in {_START} is {start}: its first segments are "
            "missing",
        )
    ends += _epoch_starts(files.segments[0].path.parent / "leader-epoch-checkpoint")
    ends += (int(path.stem) for path in files.snapshots)
    if max(ends) > offsets.end:
        yield Missing(
            log_partition,
            OffsetRange(offsets.end, max(ends)),
            f" ends at log offset {offsets.end}, but according to the files of its broker it had records up to "
            f"{max(ends)}: its last records are missing",
        )
    for offset in files.without_log:
        following = (segment.base_offset for segment in files.segments if segment.base_offset > offset)
        yield Missing(
            log_partition,
            OffsetRange(offset, next(following, max(offset, *ends))),
            f": the segment {offset:020}.log is missing, of which an index is there",
        )
    for segment, following_segment in pairwise(files.segments):  # of the active segment, the end of the log is compared
        if _is_cut(segment):
            yield Missing(
                log_partition,
                OffsetRange(segment.base_offset, following_segment.base_offset),
                f": {segment.path.name} is cut: its index refers to bytes after its end",
            )


def _epoch_starts(file: Path) -> Iterator[int]:
    """Yield the log offsets at which leader epochs begin."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    for line in lines[2:]:  # after the version and the number of lines
        fields = line.split()
        if len(fields) == 2 and fields[1].isdecimal():
            yield int(fields[1])


def _is_cut(segment: Segment) -> bool:
    index = segment.path.with_name(f"{segment.base_offset:020}.index")
    size = index.stat().st_size if index.is_file() else 0
    if size < _INDEX_ENTRY.size:
        return False
    with index.open("rb") as file:
        file.seek(size - size % _INDEX_ENTRY.size - _INDEX_ENTRY.size)
        _, position = _INDEX_ENTRY.unpack(file.read(_INDEX_ENTRY.size))
    return int(position) >= segment.path.stat().st_size and position > 0
