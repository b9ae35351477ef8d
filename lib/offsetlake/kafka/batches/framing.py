"""Locates record batches in intact and in damaged logs.

After damage, the next batch is recognized by its checksum. The checksum excludes the base offset and the length. A
wrong length still makes the checksum fail; a wrong base offset contradicts the offsets of the adjacent batches, since
offsets increase along the log.
"""

import zlib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import google_crc32c
import numpy as np
import numpy.typing as npt

from offsetlake.kafka.batches import kernels
from offsetlake.kafka.batches.kernels import Bytes, Ints

HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
CRC_FROM = 21  # with magic 2; the CRC-32 of magic 0 and 1 covers everything from the magic byte


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a buffer that are not a valid batch.

    Attributes:
        start: The position of the first byte.
        stop: The position after the last byte.
        log_offset: The log offset at which the bytes are reported.
        reason: Why the bytes are not a valid batch.
    """

    start: int
    stop: int
    log_offset: int
    reason: str


def headers(buffer: Bytes, positions: Ints) -> npt.NDArray[np.void]:
    """Return the headers of some batches as an array of HEADER; with magic 0 and 1 it is valid up to `magic`."""
    rows: npt.NDArray[np.uint8] = kernels.header_bytes(buffer, positions)
    return rows.view(HEADER).reshape(len(positions))


def has_valid_checksum(buffer: Bytes, position: int) -> bool:
    """Return whether the checksum of the whole batch at a position is correct."""
    end = position + int(kernels.batch_size(buffer, position))
    if buffer[position + kernels.MAGIC_AT] == 2:
        return int(google_crc32c.value(buffer[position + CRC_FROM : end].tobytes())) == _uint32(buffer, position + 17)
    return zlib.crc32(buffer[position + kernels.MAGIC_AT : end].tobytes()) == _uint32(buffer, position + 12)


def _uint32(buffer: Bytes, position: int) -> int:
    return int.from_bytes(buffer[position : position + 4].tobytes())


def find_batch(buffer: Bytes, position: int, floor: int = 0) -> int | None:
    """Return the next position after `position` of a whole, valid batch with an offset of at least `floor`."""
    while (position := int(kernels.next_header(buffer, position, floor))) >= 0:
        if has_valid_checksum(buffer, position):
            return position
    return None


def end_of_last_valid(buffer: Bytes, positions: Ints) -> int:
    """Return the position after the last batch of `positions` whose checksum is correct; 0 if there is none."""
    for position in map(int, positions[::-1]):
        if has_valid_checksum(buffer, position):
            return position + int(kernels.batch_size(buffer, position))
    return 0


def consistent(spans: Ints) -> npt.NDArray[np.bool_]:
    """Mark the batches that belong to a longest sequence of increasing offsets.

    Thus one wrong base offset does not cost other batches. If either of two adjacent batches may be the wrong one, both
    are marked. `spans`, shape (2, n), contains the first and the last offsets in log order.
    """
    firsts, lasts = spans
    if _increase(spans):
        return np.ones(len(firsts), np.bool_)
    up_to = _longest_runs(firsts.tolist(), lasts.tolist())
    onwards = _longest_runs((-lasts[::-1]).tolist(), (-firsts[::-1]).tolist())[::-1]
    return np.array(up_to + onwards == up_to.max(initial=0) + 1)


def _increase(spans: Ints) -> bool:
    firsts, lasts = spans
    return bool((firsts[1:] > lasts[:-1]).all() and (firsts <= lasts).all())


def _longest_runs(firsts: list[int], lasts: list[int]) -> Ints:
    """Return, for each span, the length of the longest increasing sequence that ends with it; 0 for an invalid span."""
    best: list[int] = []  # by length: the smallest last offset of a sequence
    length = np.zeros(len(firsts), np.int64)
    for i, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
        if first <= last:
            run = bisect_left(best, first)
            length[i] = run + 1
            best[run : run + 1] = [min([last, *best[run : run + 1]])]
    return length


def batches_of_segment(buffer: Bytes, floor: int) -> Ints:
    """Return the positions of the batches of a segment, up to the last one with a correct checksum.

    Offsets below `floor` are not searched for after damage. For speed, only the checksums of the last batch and of the
    batches before gaps in the offsets, which a wrong length leaves, are verified. If one of them fails, all are.
    """
    positions: Ints = kernels.walk_batches(buffer)[0]
    stop = end_of_last_valid(buffer, positions)
    positions = positions[positions < stop]
    spans = kernels.spans(buffer, positions)
    gap = spans[0, 1:] > spans[1, :-1] + 1
    before_gap = positions[:-1][gap]
    whole = stop == len(buffer) or find_batch(buffer, stop, floor) is None
    if whole and _increase(spans) and _have_valid_checksums(buffer, buffer, before_gap):
        return positions
    return _valid_batches(buffer, floor)


def survey(data: bytes) -> tuple[Ints, list[Damage]]:
    """Return the positions of all whole batches with correct checksums and increasing offsets, and the damage.

    A last batch that is incomplete belongs to neither.
    """
    buffer = np.frombuffer(data, np.uint8)
    positions, _, stop_reason = kernels.walk_batches(buffer)
    in_order = _increase(kernels.spans(buffer, positions))
    if stop_reason == kernels.WALKED_ALL and in_order and _have_valid_checksums(data, buffer, positions):
        return positions, []
    positions = _valid_batches(buffer, 0)
    return positions, [*_damage_around(buffer, positions)]


def _valid_batches(buffer: Bytes, floor: int) -> Ints:
    valid: list[int] = []
    position: int | None = 0
    while position is not None and position < len(buffer):
        size = int(kernels.batch_size(buffer, position))
        if 0 < size <= len(buffer) - position and has_valid_checksum(buffer, position):
            valid.append(position)
            position += size
        else:
            position = find_batch(buffer, position, floor)
    positions = np.array(valid, np.int64)
    return positions[consistent(kernels.spans(buffer, positions))]


def _have_valid_checksums(data: bytes | Bytes, buffer: Bytes, positions: Ints) -> bool:
    """Return whether the checksums of all batches at some positions are correct.

    `data` has the content of `buffer`; slices of `bytes` are faster.
    """
    modern = buffer[positions + kernels.MAGIC_AT] == 2
    header = headers(buffer, positions[modern])
    starts = (positions[modern] + CRC_FROM).tolist()
    stops = (positions[modern] + kernels.BATCH_OVERHEAD + header["length"]).tolist()
    crcs = [google_crc32c.value(data[start:stop]) for start, stop in zip(starts, stops, strict=True)]
    legacy = positions[~modern].tolist()
    return bool((np.array(crcs, np.int64) == header["crc"]).all()) and all(
        has_valid_checksum(buffer, position) for position in legacy
    )


def _damage_around(buffer: Bytes, positions: Ints) -> Iterator[Damage]:
    """Yield the damage before, between and after valid batches, except a last batch that is incomplete."""
    firsts, lasts = kernels.spans(buffer, positions).tolist()
    starts = [*positions.tolist(), len(buffer)]
    stops = [0, *(start + int(kernels.batch_size(buffer, start)) for start in starts[:-1])]
    for i, (start, stop) in enumerate(zip(stops, starts, strict=True)):
        if stop < len(buffer) or not _is_incomplete(buffer, start):
            next_offset = firsts[i] if i < len(firsts) else None
            yield from damage_between(buffer, start, stop, lasts[i - 1] + 1 if i else None, next_offset)


def damage_between(buffer: Bytes, start: int, stop: int, low: int | None, high: int | None) -> Iterator[Damage]:
    """Yield bytes that contain no valid batch, split into damaged batches as far as their headers permit.

    `low` and `high` (exclusive) limit the log offsets of the bytes where they are known: the offset in a damaged header
    is used only within these limits.
    """
    while start < stop:
        size = int(kernels.batch_size(buffer[:stop], start))
        whole = 0 < size <= stop - start
        stated_offset = int(kernels.int64_at(buffer, start)) if size else -1
        plausible = stated_offset >= (low or 0) and (high is None or stated_offset < high)
        log_offset = stated_offset if plausible else (low if low is not None else high or 0)
        end = start + size if whole else stop
        yield Damage(start, end, log_offset, _reason(buffer[:stop], start, size))
        start = end


def _reason(buffer: Bytes, position: int, size: int) -> str:
    if size == 0:
        return "no record batch begins here"
    if size > len(buffer) - position:
        return f"the batch header states {size} bytes, but only {len(buffer) - position} are present"
    if not has_valid_checksum(buffer, position):
        algorithm = "CRC-32C" if buffer[position + kernels.MAGIC_AT] == 2 else "CRC-32"
        return f"the {algorithm} checksum of the batch is wrong"
    first, last = kernels.spans(buffer, np.array([position]))[:, 0]
    return f"the batch header states offsets {first} to {last}, which contradict the adjacent batches"


def _is_incomplete(buffer: Bytes, position: int) -> bool:
    available = len(buffer) - position
    return available <= kernels.MAGIC_AT or int(kernels.batch_size(buffer, position)) > available
