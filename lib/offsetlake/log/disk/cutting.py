"""Cutting a log on disk: whole segments at the beginning of a partition that nobody needs any more.

The oldest goes first, and each is gone for good before the next one goes: cut short anywhere, a log without a hole is
left. Who cuts must own the log (`offsetlake.log.writer.ownership`).
"""

from dataclasses import dataclass
from pathlib import Path

from offsetlake.errors import LogUnavailable
from offsetlake.log.disk.segments import Segment, segments_of
from offsetlake.log.positions import LogPartition
from offsetlake.util.atomic_files import to_disk

_BESIDE = (".index", ".timeindex", ".txnindex", ".snapshot")  # what a broker keeps of a segment, under the same name


@dataclass(frozen=True, slots=True)
class Cut:
    """What can go of one log partition.

    | field         | is |
    |---------------|----|
    | log_partition | the partition |
    | going         | segments of which every log offset is below the one still needed, oldest first |
    | size          | bytes of their files |
    | staying       | number of segments that stay; the last of them, the active one, always does |
    """

    log_partition: LogPartition
    going: tuple[Segment, ...]
    size: int
    staying: int


def plan_cut(folder: Path, log_partition: LogPartition, needed: int) -> Cut:
    """Find the segments of a partition that end at or below log offset `needed`; LogUnavailable where none can be read.

    A segment ends where the next one begins.
    """
    segments = segments_of(folder / str(log_partition))
    ends = [following.base_offset for following in segments[1:]]
    going = tuple(segment for segment, end in zip(segments, ends, strict=False) if end <= needed)
    size = sum(path.stat().st_size for segment in going for path in _files(segment))
    return Cut(log_partition, going, size, len(segments) - len(going))


def delete(cut: Cut) -> None:
    """Delete what is going; LogUnavailable where the operating system does not let it."""
    for segment in cut.going:
        try:
            for path in _files(segment):
                path.unlink()
            to_disk(segment.path.parent)
        except OSError as error:
            raise LogUnavailable(
                f"{segment.path} cannot be deleted: {error.strerror}; those before it are gone, the log has no hole: "
                "see to it and run again"
            ) from error


def _files(segment: Segment) -> list[Path]:
    """Give the files there are of a segment, the log itself last: by it one half deleted is found again."""
    beside = (segment.path.with_suffix(suffix) for suffix in _BESIDE)
    return [*(path for path in beside if path.exists()), segment.path]
