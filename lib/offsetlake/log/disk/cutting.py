"""Deletes the oldest segments of a partition on disk, like a broker's log retention.

Segments are deleted in log order, and each deletion is on disk before the next one starts, so an interruption never
leaves a gap in the log. The caller must own the log (`offsetlake.log.writer.ownership`).
"""

from dataclasses import dataclass
from pathlib import Path

from offsetlake.errors import LogUnavailable
from offsetlake.log.disk.segments import Segment, segments_of
from offsetlake.log.positions import LogPartition
from offsetlake.util.atomic_files import to_disk

_INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex", ".snapshot")  # a broker's files for a segment


@dataclass(frozen=True, slots=True)
class Cut:
    """The segments of a log partition that can be deleted.

    Attributes:
        log_partition: The partition.
        obsolete: The segments whose log offsets are all less than the lowest one still needed, oldest first.
        size: The size of their files in bytes.
        remaining: The number of other segments, among them always the active one.
    """

    log_partition: LogPartition
    obsolete: tuple[Segment, ...]
    size: int
    remaining: int


def plan_cut(folder: Path, log_partition: LogPartition, needed: int) -> Cut:
    """Return the segments of a partition that end at or before log offset `needed`.

    A segment ends where the next one begins.

    Raises:
        LogUnavailable: The folder of the partition cannot be read.
    """
    segments = segments_of(folder / str(log_partition))
    ends = [following.base_offset for following in segments[1:]]
    obsolete = tuple(segment for segment, end in zip(segments, ends, strict=False) if end <= needed)
    size = sum(path.stat().st_size for segment in obsolete for path in _files(segment))
    return Cut(log_partition, obsolete, size, len(segments) - len(obsolete))


def delete(cut: Cut) -> None:
    """Delete the obsolete segments.

    Raises:
        LogUnavailable: A file cannot be deleted.
    """
    for segment in cut.obsolete:
        try:
            for path in _files(segment):
                path.unlink()
            to_disk(segment.path.parent)
        except OSError as error:
            raise LogUnavailable(
                f"Segment {segment.path} cannot be deleted: {error.strerror}. Older segments were deleted, and the log "
                "has no gap. Fix the cause and run the command again."
            ) from error


def _files(segment: Segment) -> list[Path]:
    """Return the files of a segment; the log file is last, so a partly deleted segment is still found."""
    indexes = (segment.path.with_suffix(suffix) for suffix in _INDEX_SUFFIXES)
    return [*(path for path in indexes if path.exists()), segment.path]
