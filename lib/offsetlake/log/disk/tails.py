"""The tails of log partitions in a folder."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from offsetlake.kafka.batches import kernels
from offsetlake.kafka.batches.framing import batches_of_segment
from offsetlake.kafka.batches.kernels import Bytes, Ints
from offsetlake.log.disk.segment_bytes import map_segment, readable
from offsetlake.log.disk.segments import Segment, segments_of
from offsetlake.log.tails import Tail, TailQuery, leader_epoch, tail_of

_EPOCHS = "leader-epoch-checkpoint"
_EPOCH = re.compile(r"([0-9]+) ([0-9]+)")


def read_tails(folder: Path, queries: Iterable[TailQuery]) -> list[Tail]:
    """Return the tail for each query.

    Raises:
        LogUnavailable: A segment cannot be read.
    """
    return [_tail(folder / str(query.log_partition), query) for query in queries]


def _tail(path: Path, query: TailQuery) -> Tail:
    segments = segments_of(path) if path.is_dir() else []
    tail = Tail()
    for segment in reversed([segment for segment in segments if segment.base_offset < query.offset]):
        buffer, positions = _batches(segment)
        following = tail.next_epoch
        tail = tail_of(buffer, positions, query.offset)
        tail = tail if following is None else replace(tail, next_epoch=following)
        if len(positions) and kernels.spans(buffer, positions[:1])[0, 0] < query.offset:
            break
    after = next((segment for segment in segments if segment.base_offset >= query.offset), None)
    if tail.next_epoch is None and after is not None:
        tail = replace(tail, next_epoch=leader_epoch(*_batches(after)))
    if tail.checksum is None and query.leader_epoch is not None:
        tail = replace(tail, epoch_end=_epoch_end(path / _EPOCHS, query.leader_epoch))
    return tail


def _batches(segment: Segment) -> tuple[Bytes, Ints]:
    buffer = map_segment(segment.path)
    return buffer, batches_of_segment(buffer, segment.base_offset)


def _epoch_end(checkpoint: Path, epoch: int) -> int | None:
    """Return where the next leader epoch starts, according to the checkpoint of a broker, if it knows one.

    A copy of the file can be older than that of the segments, so it does not show that an epoch is missing.
    """
    if not checkpoint.is_file():
        return None
    with readable(checkpoint):
        lines = checkpoint.read_text(encoding="latin-1").splitlines()
    entries = [(int(match[1]), int(match[2])) for line in lines if (match := _EPOCH.fullmatch(line.strip()))]
    return min((start for later, start in entries if later > epoch), default=None)
