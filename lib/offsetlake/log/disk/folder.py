"""Reads logs in folders with the layout of a broker's data folder: the broker's own or a copy.

Slices are limited by byte positions, because the offsets in a damaged batch may be wrong.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path

import numpy as np

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches import kernels
from offsetlake.kafka.batches.framing import (
    batches_of_segment,
    damage_between,
    end_of_last_valid,
    find_batch,
    has_valid_checksum,
)
from offsetlake.kafka.batches.kernels import Bytes, Ints
from offsetlake.kafka.batches.reader import CorruptRegion
from offsetlake.log.disk.absent_partitions import absent_partitions, check_topic_ids, is_written
from offsetlake.log.disk.completeness import Missing, log_start, missing_records, missing_segments, read_checkpoints
from offsetlake.log.disk.lacking import read_lacking
from offsetlake.log.disk.segment_bytes import end_of, map_segment, readable
from offsetlake.log.disk.segments import (
    SWAP,
    Segment,
    SegmentFiles,
    partition_folders,
    partition_of,
    segment_files,
    segments_of,
)
from offsetlake.log.positions import LOG_TOPICS, LogExtent, LogPartition, OffsetRange

CHUNK_BYTES = 8 << 20  # read at once; the memory of a reader is a small multiple of it
MAX_SLICE_BYTES = 64 << 20
MAX_REGION_BYTES = 1 << 20  # longer corrupt regions are split


@dataclass(frozen=True, slots=True)
class FolderSlice:
    """Offsets of a partition for one reader, and the bytes of one segment that contain them."""

    log_partition: LogPartition
    offsets: OffsetRange
    path: str
    from_byte: int
    size: int


def describe(folder: Path) -> LogExtent:
    """Return the extent of the log in a folder: each partition from its first segment to its last whole batch.

    A partition begins at the log start offset that its broker has recorded, if that is in a segment.

    Raises:
        LogUnavailable: The folder does not exist or does not contain a log.
        LogMismatch: It contains partitions of different topics of one name.
    """
    partitions, checkpoints = partitions_in(folder), read_checkpoints(folder)
    ranges, notes, missing = dict[LogPartition, OffsetRange](), list[str](), list[Missing]()
    for log_partition, path in partitions.items():
        files = segment_files(path)
        segments = files.segments
        notes += _swap_notes(log_partition, files)
        if not segments:
            missing += missing_segments(checkpoints, log_partition)
            continue
        end, torn = end_of(segments[-1].path, segments[-1].base_offset)
        start = max(segments[0].base_offset, log_start(checkpoints, log_partition) or 0)
        ranges[log_partition] = OffsetRange(min(start, end), end)
        missing += missing_records(checkpoints, log_partition, files, ranges[log_partition])
        if torn:
            notes.append(
                f"{log_partition}: the last {torn} bytes of {segments[-1].path.name} are not a complete batch; "
                f"the log is read up to offset {end}, and the rest in the next run after it is complete"
            )
    check_topic_ids(partitions)
    empty = [partition for partition in partitions if partition not in ranges]
    absent = absent_partitions(folder, partitions)
    notes += (each.note() for each in missing)
    lost = [(each.log_partition, each.offsets) for each in missing]
    lost += (part for part in read_lacking(folder).missing if part not in lost)
    return LogExtent(_cluster_id(folder), ranges, notes, empty, absent, lost, is_written(folder))


def _swap_notes(log_partition: LogPartition, files: SegmentFiles) -> Iterator[str]:
    swaps = [segment.path.name for segment in files.segments if segment.path.suffix == SWAP]
    if swaps:
        replaced = [path.name for path in sorted(files.replaced) if path.suffix == ".log"]
        yield (
            f"{log_partition}: {', '.join(swaps)} is read{' instead of ' if replaced else ''}{', '.join(replaced)}, as "
            "a broker does when it starts: the folder was copied, or its broker ended, while the log cleaner replaced "
            "segments"
        )


def partitions_in(folder: Path) -> dict[LogPartition, Path]:
    """Return the folder of each partition of a log, and raise LogUnavailable as `describe` does."""
    if not folder.is_dir():
        raise LogUnavailable(f"There is no folder {folder}: --log expects a broker's data folder or a copy of it.")
    partitions = partition_folders(folder, *LOG_TOPICS)
    if not partitions:
        named = partition_of(folder)
        is_partition = named is not None and named.topic in LOG_TOPICS
        problem = "is one partition of a log; specify its parent folder" if is_partition else "does not contain a log"
        raise LogUnavailable(
            f"{folder} {problem}: a log consists of folders such as __consumer_offsets-0/ with .log files."
        )
    return partitions


def _cluster_id(folder: Path) -> str | None:
    """Return the cluster ID in a broker's `meta.properties`; None in a copy that consists of partitions only."""
    properties = folder / "meta.properties"
    if not properties.is_file():
        return None
    with readable(properties):
        text = properties.read_text(encoding="latin-1")  # the encoding of java.util.Properties
    lines = (line.partition("=") for line in text.splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == "cluster.id"), None)


def ends_of(folder: Path, topic: str, partitions: int) -> dict[int, int]:
    """Return the offset after the last valid batch of each partition of a topic; 0 without a segment."""
    ends = {}
    for partition in range(partitions):
        path = folder / str(LogPartition(topic, partition))
        segments = segments_of(path) if path.exists() else []
        ends[partition] = end_of(segments[-1].path, segments[-1].base_offset)[0] if segments else 0
    return ends


def slices(folder: Path, log_partition: LogPartition, offsets: OffsetRange) -> list[FolderSlice]:
    """Split offsets of a partition into slices that can be read in parallel.

    Bytes that are not a batch belong to the offset after the previous batch.
    """
    segments = segments_of(folder / str(log_partition))
    partition_slices: list[FolderSlice] = []
    for segment, following in zip_longest(segments, segments[1:]):
        end = following.base_offset if following else offsets.end
        part = OffsetRange(max(segment.base_offset, offsets.start), min(end, offsets.end))
        if part.start >= part.end:
            continue
        buffer = map_segment(segment.path)
        if not len(buffer):
            continue
        if following and part == (segment.base_offset, end) and len(buffer) <= MAX_SLICE_BYTES:
            partition_slices.append(FolderSlice(log_partition, part, str(segment.path), 0, len(buffer)))
        else:
            to_end = following is not None and part.end == end
            partition_slices += _segment_slices(segment, buffer, log_partition, part, to_end=to_end)
    return partition_slices


def _segment_slices(
    segment: Segment, buffer: Bytes, log_partition: LogPartition, offsets: OffsetRange, *, to_end: bool
) -> list[FolderSlice]:
    """Split offsets of a segment into slices; `to_end` means that they include the last offset of the segment."""
    positions = batches_of_segment(buffer, segment.base_offset)
    firsts, lasts = kernels.spans(buffer, positions)
    lasts = np.maximum.accumulate(lasts)  # adjacent batches of a damaged segment may overlap
    after_previous = np.append(segment.base_offset, lasts + 1)  # one more than batches: the last is the end
    # A batch with magic 0 or 1 states only its last offset; its first may be any after the previous batch.
    legacy = buffer[positions + kernels.MAGIC_AT] < 2
    firsts = np.minimum(firsts, np.where(legacy, after_previous[:-1], firsts))
    firsts = np.minimum.accumulate(firsts[::-1])[::-1]
    starts = np.append(positions, len(buffer))

    def stop_before(batch: int) -> int:
        return int(starts[batch - 1] + kernels.batch_size(buffer, starts[batch - 1])) if batch else 0

    first = int(np.searchsorted(lasts, offsets.start))
    if first < len(firsts) and firsts[first] < offsets.start and not has_valid_checksum(buffer, int(starts[first])):
        first += 1  # a damaged batch that spans the start belongs to the previous slice
    stop = int(np.searchsorted(firsts, offsets.end))
    begin = stop_before(first) if after_previous[first] == offsets.start else int(starts[first])
    end = (
        int(starts[stop])
        if after_previous[stop] < offsets.end or (to_end and stop == len(firsts))
        else stop_before(stop)
    )
    cuts = np.unique(np.searchsorted(positions, np.arange(begin + MAX_SLICE_BYTES, end, MAX_SLICE_BYTES)))
    inner = [cut for cut in cuts.tolist() if first < cut < stop and after_previous[cut] <= firsts[cut]]
    inner_edges = ((int(after_previous[cut]), int(starts[cut])) for cut in inner)
    edges = [(offsets.start, begin), *inner_edges, (offsets.end, end)]
    return [
        FolderSlice(log_partition, OffsetRange(low, high), str(segment.path), from_byte, to_byte - from_byte)
        for (low, from_byte), (high, to_byte) in pairwise(edges)
        if from_byte < to_byte
    ]


def fetch(folder_slice: FolderSlice) -> Iterator[bytes | CorruptRegion]:
    """Yield the whole batches of a slice, in chunks of about CHUNK_BYTES, and the corrupt regions between them.

    The first and the last batch may contain offsets outside the slice. Each chunk begins and ends with a valid batch;
    damage inside a chunk is left to `read_batches`.

    Raises:
        LogUnavailable: The segment was deleted or truncated.
    """
    path = Path(folder_slice.path)
    buffer = map_segment(path)
    position, stop = folder_slice.from_byte, folder_slice.from_byte + folder_slice.size
    if len(buffer) < stop:
        raise LogUnavailable(
            f"{path} was truncated from {stop} to {len(buffer)} bytes while it was read. Read a copy of the folder."
        )
    next_offset, chunk_bytes = folder_slice.offsets.start, CHUNK_BYTES
    with readable(path), path.open("rb") as file:
        while position < stop:
            file.seek(position)
            data = file.read(min(chunk_bytes, stop - position))
            chunk = np.frombuffer(data, np.uint8)
            positions = _usable(chunk, folder_slice.offsets)
            if len(positions):
                last = positions[-1:]
                next_offset = int(kernels.spans(chunk, last)[1, 0]) + 1
                size = int(last[0] + kernels.batch_size(chunk, last[0]))
                yield data[:size]
                position, chunk_bytes = position + size, CHUNK_BYTES
            elif len(data) < (batch_bytes := int(kernels.batch_size(chunk, 0))) <= stop - position:
                chunk_bytes = batch_bytes
            else:
                next_batch = find_batch(buffer[:stop], position, folder_slice.offsets.start)
                region_end = stop if next_batch is None else next_batch
                region_offsets = OffsetRange(next_offset, folder_slice.offsets.end)
                yield from _corrupt(path, buffer, position, region_end, region_offsets)
                position, chunk_bytes = region_end, CHUNK_BYTES


def _usable(chunk: Bytes, offsets: OffsetRange) -> Ints:
    """Return the consecutive batches at the start of a chunk, within the offsets; the first and last are valid."""
    positions: Ints = kernels.walk_batches(chunk)[0]
    firsts, lasts = kernels.spans(chunk, positions)
    modern = chunk[positions + kernels.MAGIC_AT] == 2
    outside = (lasts < offsets.start) | (firsts >= offsets.end) & modern
    if outside.any():
        positions = positions[: int(np.argmax(outside))]
    starts_valid = len(positions) and has_valid_checksum(chunk, 0)
    return positions[positions < end_of_last_valid(chunk, positions)] if starts_valid else positions[:0]


def _corrupt(path: Path, buffer: Bytes, start: int, stop: int, offsets: OffsetRange) -> Iterator[CorruptRegion]:
    for damage in damage_between(buffer, start, stop, *offsets):
        for first in range(damage.start, damage.stop, MAX_REGION_BYTES):
            end = min(first + MAX_REGION_BYTES, damage.stop)
            reason = f"bytes {first} to {end} of {path.parent.name}/{path.name}: {damage.reason}"
            yield CorruptRegion(damage.log_offset, buffer[first:end].tobytes(), reason)
