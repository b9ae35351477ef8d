"""Where one record batch ends and the next begins, in whole logs and in damaged ones.

A batch is found again behind damage by its checksum. Base offset and length stand outside the checksum: a wrong length
breaks it all the same, and a wrong base offset is seen by the batches around it, since offsets only grow.
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
CRC_FROM = 21  # magic 2; the older CRC-32 is over all from the magic on


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes `start` to `stop` of a buffer that hold no true batch: `log_offset` is where they stand, `reason` why."""

    start: int
    stop: int
    log_offset: int
    reason: str


def headers(buffer: Bytes, positions: Ints) -> npt.NDArray[np.void]:
    """Read the headers of the batches at `positions` as one array (dtype HEADER, true up to `magic` for magic 0, 1)."""
    rows: npt.NDArray[np.uint8] = kernels.header_bytes(buffer, positions)
    return rows.view(HEADER).reshape(len(positions))


def checksum_holds(buffer: Bytes, at: int) -> bool:
    """Say whether the whole batch at byte `at` is as it was written."""
    end = at + int(kernels.batch_size(buffer, at))
    if buffer[at + kernels.MAGIC_AT] == 2:
        return int(google_crc32c.value(buffer[at + CRC_FROM : end].tobytes())) == _uint32(buffer, at + 17)
    return zlib.crc32(buffer[at + kernels.MAGIC_AT : end].tobytes()) == _uint32(buffer, at + 12)


def _uint32(buffer: Bytes, at: int) -> int:
    return int.from_bytes(buffer[at : at + 4].tobytes())


def find_batch(buffer: Bytes, at: int, floor: int = 0) -> int | None:
    """Find where, behind byte `at`, the next whole batch with a true checksum and an offset from `floor` on begins."""
    while (at := int(kernels.next_header(buffer, at, floor))) >= 0:
        if checksum_holds(buffer, at):
            return at
    return None


def true_end(buffer: Bytes, positions: Ints) -> int:
    """Give the byte behind the last batch of `positions` with a true checksum, 0 where none has one."""
    for at in map(int, positions[::-1]):
        if checksum_holds(buffer, at):
            return at + int(kernels.batch_size(buffer, at))
    return 0


def consistent(spans: Ints) -> npt.NDArray[np.bool_]:
    """Mark the batches that are in some longest run of growing offsets, so that one wrong offset costs no other batch.

    `spans` (2, n) are first and last offsets in log order. Two neighbours of which either may be wrong are both marked.
    """
    firsts, lasts = spans
    if _grow(spans):
        return np.ones(len(firsts), np.bool_)
    up_to = _longest_runs(firsts.tolist(), lasts.tolist())
    onwards = _longest_runs((-lasts[::-1]).tolist(), (-firsts[::-1]).tolist())[::-1]
    return np.array(up_to + onwards == up_to.max(initial=0) + 1)


def _grow(spans: Ints) -> bool:
    firsts, lasts = spans
    return bool((firsts[1:] > lasts[:-1]).all() and (firsts <= lasts).all())


def _longest_runs(firsts: list[int], lasts: list[int]) -> Ints:
    """Give the length of the longest run of growing spans that ends with each; 0 for one that shrinks by itself."""
    best: list[int] = []  # the smallest last offset that ends a run of each length
    length = np.zeros(len(firsts), np.int64)
    for i, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
        if first <= last:
            run = bisect_left(best, first)
            length[i] = run + 1
            best[run : run + 1] = [min([last, *best[run : run + 1]])]
    return length


def batches_of_segment(buffer: Bytes, floor: int) -> Ints:
    """Find all batches of a segment with offsets from `floor` on, up to the last of true checksum.

    Checksums are tried where the walk ends and before every gap between offsets, which is what a wrong length leaves;
    where one fails, everywhere.
    """
    positions: Ints = kernels.walk_batches(buffer)[0]
    stop = true_end(buffer, positions)
    positions = positions[positions < stop]
    spans = kernels.spans(buffer, positions)
    gap = spans[0, 1:] > spans[1, :-1] + 1
    before_gap = positions[:-1][gap]
    whole = stop == len(buffer) or find_batch(buffer, stop, floor) is None
    if whole and _grow(spans) and _checksums_hold(buffer, buffer, before_gap):
        return positions
    return _true_batches(buffer, floor)


def survey(data: bytes) -> tuple[Ints, list[Damage]]:
    """Find all whole batches with true checksums and growing offsets, and the damage between them.

    A last batch that the end of `data` cuts off is in neither.
    """
    buffer = np.frombuffer(data, np.uint8)
    positions, _, why = kernels.walk_batches(buffer)
    in_order = _grow(kernels.spans(buffer, positions))
    if why == kernels.WALKED_ALL and in_order and _checksums_hold(data, buffer, positions):
        return positions, []
    positions = _true_batches(buffer, 0)
    return positions, [*_damage_around(buffer, positions)]


def _true_batches(buffer: Bytes, floor: int) -> Ints:
    found: list[int] = []
    at: int | None = 0
    while at is not None and at < len(buffer):
        size = int(kernels.batch_size(buffer, at))
        if 0 < size <= len(buffer) - at and checksum_holds(buffer, at):
            found.append(at)
            at += size
        else:
            at = find_batch(buffer, at, floor)
    positions = np.array(found, np.int64)
    return positions[consistent(kernels.spans(buffer, positions))]


def _checksums_hold(data: bytes | Bytes, buffer: Bytes, positions: Ints) -> bool:
    """Say whether all batches at `positions` are true; `data` is the buffer, faster to cut as bytes."""
    modern = buffer[positions + kernels.MAGIC_AT] == 2
    header = headers(buffer, positions[modern])
    starts = (positions[modern] + CRC_FROM).tolist()
    stops = (positions[modern] + kernels.BATCH_OVERHEAD + header["length"]).tolist()
    crcs = [google_crc32c.value(data[start:stop]) for start, stop in zip(starts, stops, strict=True)]
    old = positions[~modern].tolist()
    return bool((np.array(crcs, np.int64) == header["crc"]).all()) and all(checksum_holds(buffer, at) for at in old)


def _damage_around(buffer: Bytes, positions: Ints) -> Iterator[Damage]:
    """Tell what stands before, between and behind true batches, but for a last batch that is cut off."""
    firsts, lasts = kernels.spans(buffer, positions).tolist()
    starts = [*positions.tolist(), len(buffer)]
    stops = [0, *(at + int(kernels.batch_size(buffer, at)) for at in starts[:-1])]
    for i, (start, stop) in enumerate(zip(stops, starts, strict=True)):
        if stop < len(buffer) or not _is_cut_off(buffer, start):
            behind = firsts[i] if i < len(firsts) else None
            yield from damage_between(buffer, start, stop, lasts[i - 1] + 1 if i else None, behind)


def damage_between(buffer: Bytes, start: int, stop: int, low: int | None, high: int | None) -> Iterator[Damage]:
    """Cut bytes that hold no batch to be read into damaged batches, as far as their headers tell.

    `low` and `high` are the offsets they can stand at, as far as known; a damaged header is believed within them only.
    """
    while start < stop:
        size = int(kernels.batch_size(buffer[:stop], start))
        whole = 0 < size <= stop - start
        claimed = int(kernels.int64_at(buffer, start)) if size else -1
        inside = claimed >= (low or 0) and (high is None or claimed < high)
        log_offset = claimed if inside else (low if low is not None else high or 0)
        end = start + size if whole else stop
        yield Damage(start, end, log_offset, _reason(buffer[:stop], start, size))
        start = end


def _reason(buffer: Bytes, at: int, size: int) -> str:
    if size == 0:
        return "no record batch begins here"
    if size > len(buffer) - at:
        return f"the batch counts {size} bytes, but {len(buffer) - at} are there"
    if not checksum_holds(buffer, at):
        return f"the batch fails its {'CRC-32C' if buffer[at + kernels.MAGIC_AT] == 2 else 'CRC-32'} checksum"
    first, last = kernels.spans(buffer, np.array([at]))[:, 0]
    return f"the batch says it holds offsets {first} to {last}, which cannot stand between those around it"


def _is_cut_off(buffer: Bytes, at: int) -> bool:
    return len(buffer) - at <= kernels.MAGIC_AT or int(kernels.batch_size(buffer, at)) > len(buffer) - at
