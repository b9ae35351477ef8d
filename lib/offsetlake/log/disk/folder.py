"""A log on disk: a folder laid out as a broker's data folder, its own or a copy of it.

Where a stretch of it begins and ends is said in bytes: in a damaged segment the offsets of a single batch may lie.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path

import google_crc32c
import numpy as np

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches import kernels
from offsetlake.kafka.batches.framing import (
    batches_of_segment,
    damage_between,
    end_of_last_valid,
    find_batch,
    has_valid_checksum,
    headers,
)
from offsetlake.kafka.batches.kernels import Bytes, Ints
from offsetlake.kafka.batches.reader import CorruptRegion
from offsetlake.log.disk.segments import Segment, entries, segments_of
from offsetlake.log.positions import LOG_TOPICS, LogExtent, LogPartition, OffsetRange

CHUNK = 8 << 20  # bytes read at a time: the memory of a reader is a small multiple of this
SLICE = 64 << 20  # a longer stretch of a segment is read by several tasks
REGION_PIECE = 1 << 20  # corrupt bytes are handed on in pieces of this size

_DELETE_HORIZON = 0x40  # attribute bit
_PARTITION_FOLDER = re.compile(rf"({'|'.join(LOG_TOPICS)})-(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class FolderSlice:
    """A stretch of one partition for one reader: offsets, and the `size` bytes of one segment that hold them."""

    log_partition: LogPartition
    offsets: OffsetRange
    path: str
    from_byte: int
    size: int


def describe(folder: Path) -> LogExtent:
    """Say what the log in `folder` holds: every partition from its first segment to its last whole batch.

    Raises LogUnavailable where the folder is missing, empty or no log.
    """
    partitions = _partitions(folder)
    ranges, notes = {}, []
    for log_partition, path in sorted(partitions.items()):
        segments = segments_of(path)
        if not segments:
            continue
        end, torn = end_of(segments[-1])
        ranges[log_partition] = OffsetRange(segments[0].base_offset, end)
        if torn:
            notes.append(
                f"{log_partition}: the last {torn} bytes of {segments[-1].path.name} are no whole batch; "
                f"read up to offset {end}, the rest follows when it is complete"
            )
    return LogExtent(_cluster_id(folder), ranges, notes)


def _partitions(folder: Path) -> dict[LogPartition, Path]:
    if not folder.is_dir():
        raise LogUnavailable(f"no folder {folder}: --log wants a broker's data folder or a copy of it")
    found = {
        LogPartition(match[1], int(match[2])): path
        for path in entries(folder)
        if (match := _PARTITION_FOLDER.fullmatch(path.name)) and path.is_dir()
    }
    if not found:
        inside = _PARTITION_FOLDER.fullmatch(folder.name)
        what = "is one partition of a log; name the folder above it" if inside else "holds no log"
        raise LogUnavailable(f"{folder} {what}: a log is folders such as __consumer_offsets-0/ with .log files in them")
    return found


def _cluster_id(folder: Path) -> str | None:
    """Read the cluster id a broker writes beside its partitions; a bare copy of partitions has none."""
    properties = folder / "meta.properties"
    if not properties.is_file():
        return None
    with _readable(properties):
        text = properties.read_text(encoding="latin-1")  # as Java reads it
    lines = (line.partition("=") for line in text.splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == "cluster.id"), None)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise LogUnavailable(
            f"{path} vanished while the log was read: a live broker cleans its folder; "
            "read a copy of it, or the live topic with --bootstrap"
        ) from error
    except OSError as error:
        raise LogUnavailable(f"{path} cannot be read: {error.strerror}") from error


def _map(path: Path) -> Bytes:
    with _readable(path):
        return np.asarray(np.memmap(path, np.uint8, "r")) if path.stat().st_size else np.empty(0, np.uint8)


def end_of(segment: Segment) -> tuple[int, int]:
    """Find the offset behind the last true batch of a partition's last segment, and how many bytes follow it.

    A last batch that fails its checksum is one still being written, as far as anyone can tell.
    """
    buffer = _map(segment.path)
    positions = batches_of_segment(buffer, segment.base_offset)
    if not len(positions):
        return segment.base_offset, len(buffer)
    at = int(positions[-1])
    end = int(kernels.spans(buffer, positions[-1:])[1, 0]) + 1
    return end, len(buffer) - at - int(kernels.batch_size(buffer, at))


def tail_checksum(folder: Path, log_partition: LogPartition, end: int) -> int | None:
    """Give the CRC-32C of the batch that ends just before offset `end`, to know the log again.

    None where it is gone, or may have changed since it was written: compaction has been at it, or its format is older
    than 0.11. The partition leader epoch is left out: it is no part of what was written.
    """
    path = folder / str(log_partition)
    before = [segment for segment in segments_of(path) if segment.base_offset < end] if path.is_dir() else []
    if not before:
        return None
    buffer = _map(before[-1].path)
    positions = batches_of_segment(buffer, before[-1].base_offset)
    found = positions[kernels.spans(buffer, positions)[1] == end - 1]
    if not len(found):
        return None
    (header,) = headers(buffer, found)
    compacted = header["record_count"] <= header["last_offset_delta"] or header["attributes"] & _DELETE_HORIZON
    if header["magic"] < 2 or compacted:
        return None
    stop = found[0] + kernels.BATCH_OVERHEAD + header["length"]
    return int(google_crc32c.value(buffer[found[0] + kernels.MAGIC_AT : stop].tobytes()))


def slices(folder: Path, log_partition: LogPartition, wanted: OffsetRange) -> list[FolderSlice]:
    """Cut the offsets wanted of one partition into stretches that can be read side by side.

    Bytes that are no batch belong to the offset behind the batch before them.
    """
    segments = segments_of(folder / str(log_partition))
    cut: list[FolderSlice] = []
    for segment, following in zip_longest(segments, segments[1:]):
        end = following.base_offset if following else wanted.end
        offsets = OffsetRange(max(segment.base_offset, wanted.start), min(end, wanted.end))
        if offsets.start >= offsets.end:
            continue
        buffer = _map(segment.path)
        if not len(buffer):
            continue
        if following and offsets == (segment.base_offset, end) and len(buffer) <= SLICE:
            cut.append(FolderSlice(log_partition, offsets, str(segment.path), 0, len(buffer)))
        else:
            to_end = following is not None and offsets.end == end
            cut += _segment_slices(segment, buffer, log_partition, offsets, to_end=to_end)
    return cut


def _segment_slices(
    segment: Segment, buffer: Bytes, log_partition: LogPartition, offsets: OffsetRange, *, to_end: bool
) -> list[FolderSlice]:
    """Cut the offsets of one segment; `to_end` says that no offset behind them is in it."""
    positions = batches_of_segment(buffer, segment.base_offset)
    firsts, lasts = kernels.spans(buffer, positions)
    lasts = np.maximum.accumulate(lasts)  # in a damaged segment neighbours may overlap
    behind = np.append(segment.base_offset, lasts + 1)  # the offset behind the batch before each, and behind the last
    # Below magic 2 a batch names its last offset only: its first may be any behind the batch before.
    old = buffer[positions + kernels.MAGIC_AT] < 2
    firsts = np.minimum(firsts, np.where(old, behind[:-1], firsts))
    firsts = np.minimum.accumulate(firsts[::-1])[::-1]
    starts = np.append(positions, len(buffer))

    def stop_before(batch: int) -> int:
        return int(starts[batch - 1] + kernels.batch_size(buffer, starts[batch - 1])) if batch else 0

    first = int(np.searchsorted(lasts, offsets.start))
    if first < len(firsts) and firsts[first] < offsets.start and not has_valid_checksum(buffer, int(starts[first])):
        first += 1  # a damaged batch across the start belongs to the stretch before
    stop = int(np.searchsorted(firsts, offsets.end))
    begin = stop_before(first) if behind[first] == offsets.start else int(starts[first])
    end = int(starts[stop]) if behind[stop] < offsets.end or (to_end and stop == len(firsts)) else stop_before(stop)
    cuts = np.unique(np.searchsorted(positions, np.arange(begin + SLICE, end, SLICE)))
    inner = [cut for cut in cuts.tolist() if first < cut < stop and behind[cut] <= firsts[cut]]
    edges = [(offsets.start, begin), *((int(behind[cut]), int(starts[cut])) for cut in inner), (offsets.end, end)]
    return [
        FolderSlice(log_partition, OffsetRange(low, high), str(segment.path), at, to - at)
        for (low, at), (high, to) in pairwise(edges)
        if at < to
    ]


def fetch(piece: FolderSlice) -> Iterator[bytes | CorruptRegion]:
    """Read a slice: whole batches in chunks of about CHUNK bytes, and the bytes between them that are no batch.

    The first and last batch may hold offsets outside the slice; the caller drops them. Every chunk begins and ends with
    a batch of true checksum; what is damaged in between, reading the batches tells. Raises LogUnavailable where the
    segment is gone or shorter than it was.
    """
    path = Path(piece.path)
    buffer = _map(path)
    at, stop = piece.from_byte, piece.from_byte + piece.size
    if len(buffer) < stop:
        raise LogUnavailable(f"{path} was cut from {stop} to {len(buffer)} bytes while it was read: read a copy of it")
    expected, wanted = piece.offsets.start, CHUNK
    with _readable(path), path.open("rb") as file:
        while at < stop:
            file.seek(at)
            data = file.read(min(wanted, stop - at))
            chunk = np.frombuffer(data, np.uint8)
            positions = _usable(chunk, piece.offsets)
            if len(positions):
                last = positions[-1:]
                expected = int(kernels.spans(chunk, last)[1, 0]) + 1
                size = int(last[0] + kernels.batch_size(chunk, last[0]))
                yield data[:size]
                at, wanted = at + size, CHUNK
            elif len(data) < (needed := int(kernels.batch_size(chunk, 0))) <= stop - at:
                wanted = needed
            else:
                found = find_batch(buffer[:stop], at, piece.offsets.start)
                until = stop if found is None else found
                yield from _corrupt(path, buffer, at, until, OffsetRange(expected, piece.offsets.end))
                at, wanted = until, CHUNK


def _usable(chunk: Bytes, offsets: OffsetRange) -> Ints:
    """Find the batches at the head of a chunk of which first and last are true, and none is outside the offsets."""
    positions: Ints = kernels.walk_batches(chunk)[0]
    firsts, lasts = kernels.spans(chunk, positions)
    modern = chunk[positions + kernels.MAGIC_AT] == 2
    outside = (lasts < offsets.start) | (firsts >= offsets.end) & modern
    if outside.any():
        positions = positions[: int(np.argmax(outside))]
    whole = len(positions) and has_valid_checksum(chunk, 0)
    return positions[positions < end_of_last_valid(chunk, positions)] if whole else positions[:0]


def _corrupt(path: Path, buffer: Bytes, start: int, stop: int, between: OffsetRange) -> Iterator[CorruptRegion]:
    for damage in damage_between(buffer, start, stop, *between):
        for at in range(damage.start, damage.stop, REGION_PIECE):
            to = min(at + REGION_PIECE, damage.stop)
            where = f"bytes {at} to {to} of {path.parent.name}/{path.name}"
            yield CorruptRegion(damage.log_offset, buffer[at:to].tobytes(), f"{where}: {damage.reason}")
