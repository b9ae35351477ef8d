"""The loops over every batch and every record, compiled: the only ones a log of millions of commits goes through.

Each takes whole arrays and fills whole arrays. `buffer` is always the uint8 view of record-batch bytes. The compiler's
cache sees changes of a function's own file only: what other files call from here is kept to what never changes.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

BATCH_OVERHEAD = 12  # base offset and batch length, which the length does not count
BATCH_HEADER = 61
LEGACY_HEADER = 26  # magic 0: offset, size, CRC, magic, attributes, key length, value length
MAGIC_AT = 16

WALKED_ALL, WALKED_TO_PARTIAL, WALKED_TO_INVALID = 0, 1, 2


@njit(cache=True, nogil=True)
def int16_at(buffer, at):  # type: ignore[no-untyped-def]
    """Big-endian int16."""
    return np.int64(np.int16((np.uint16(buffer[at]) << np.uint16(8)) | np.uint16(buffer[at + 1])))


@njit(cache=True, nogil=True)
def int32_at(buffer, at):  # type: ignore[no-untyped-def]
    """Big-endian int32."""
    value = np.uint32(0)
    for i in range(4):
        value = (value << np.uint32(8)) | np.uint32(buffer[at + i])
    return np.int64(np.int32(value))


@njit(cache=True, nogil=True)
def int64_at(buffer, at):  # type: ignore[no-untyped-def]
    """Big-endian int64."""
    value = np.uint64(0)
    for i in range(8):
        value = (value << np.uint64(8)) | np.uint64(buffer[at + i])
    return np.int64(value)


@njit(cache=True, nogil=True)
def batch_size(buffer, at):  # type: ignore[no-untyped-def]
    """Size in bytes that a batch at `at` says it has, be it there or not; 0 where no batch can begin."""
    if len(buffer) - at <= MAGIC_AT:
        return np.int64(0)
    magic = buffer[at + MAGIC_AT]
    size = BATCH_OVERHEAD + int32_at(buffer, at + 8)
    smallest = BATCH_HEADER if magic == 2 else LEGACY_HEADER
    return size if magic <= 2 and size >= smallest and int64_at(buffer, at) >= 0 else np.int64(0)


@njit(cache=True, nogil=True)
def walk_batches(buffer):  # type: ignore[no-untyped-def]
    """Find the whole batches that stand one behind the other from byte 0.

    Returns their positions, the byte behind the last, and why the walk ended there: all walked, a batch that is
    cut off by the end of the buffer, or bytes that cannot begin a batch.
    """
    positions = np.empty(len(buffer) // LEGACY_HEADER + 1, np.int64)
    count = 0
    at = 0
    left = len(buffer)
    why = WALKED_ALL
    while left > 0:
        size = batch_size(buffer, at)
        if size == 0 and left > MAGIC_AT:
            why = WALKED_TO_INVALID
            break
        if size == 0 or size > left:
            why = WALKED_TO_PARTIAL
            break
        positions[count] = at
        count += 1
        at += size
        left -= size
    return positions[:count].copy(), at, why


@njit(cache=True, nogil=True)
def spans(buffer, positions):  # type: ignore[no-untyped-def]
    """First and last offset (2, n) of the batches at `positions`; below magic 2 a batch states its last offset only."""
    out = np.empty((2, len(positions)), np.int64)
    for i in range(len(positions)):
        at = positions[i]
        out[0, i] = out[1, i] = int64_at(buffer, at)
        if buffer[at + MAGIC_AT] == 2:
            out[1, i] += int32_at(buffer, at + 23)
    return out


@njit(cache=True, nogil=True)
def header_bytes(buffer, positions):  # type: ignore[no-untyped-def]
    """Copy the 61 bytes from each of `positions` on into rows; zeros where the buffer ends before."""
    out = np.zeros((len(positions), BATCH_HEADER), np.uint8)
    for i in range(len(positions)):
        at = positions[i]
        for byte in range(min(BATCH_HEADER, len(buffer) - at)):
            out[i, byte] = buffer[at + byte]
    return out


@njit(cache=True, nogil=True)
def is_message(buffer, at, size):  # type: ignore[no-untyped-def]
    """Whether key and value of a message of magic 0 or 1 fill just its size."""
    key_at = at + 18 + 8 * np.int64(buffer[at + MAGIC_AT])
    if key_at + 8 > at + size:
        return False
    key_length = int32_at(buffer, key_at)
    value_at = key_at + 4 + max(key_length, 0)
    if key_length < -1 or value_at + 4 > at + size:
        return False
    value_length = int32_at(buffer, value_at)
    return value_length >= -1 and value_at + 4 + max(value_length, 0) == at + size


@njit(cache=True, nogil=True)
def next_header(buffer, at, floor):  # type: ignore[no-untyped-def]
    """Find the next position behind `at` that could begin a whole batch with an offset from `floor` on, or -1."""
    for start in range(at + 1, len(buffer) - LEGACY_HEADER + 1):
        size = batch_size(buffer, start)
        if size == 0 or size > len(buffer) - start:
            continue
        last = int64_at(buffer, start)
        if buffer[start + MAGIC_AT] < 2:
            if last >= floor and is_message(buffer, start, size):
                return start
            continue
        attributes, last_delta, count = (
            int16_at(buffer, start + 21),
            int32_at(buffer, start + 23),
            int32_at(buffer, start + 57),
        )
        if 0 <= attributes < 0x80 and last_delta >= 0 and 0 <= count <= last_delta + 1 and last + last_delta >= floor:
            return start
    return -1


@njit(cache=True, nogil=True)
def unsigned_varint(buffer, at, end):  # type: ignore[no-untyped-def]
    """LEB128 of at most 10 bytes; the position returned is -1 where it runs past `end`."""
    value = np.uint64(0)
    shift = np.uint64(0)
    for _ in range(10):
        if at >= end:
            return np.uint64(0), np.int64(-1)
        byte = np.uint64(buffer[at])
        at += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return value, np.int64(at)
        shift += np.uint64(7)
    return np.uint64(0), np.int64(-1)


@njit(cache=True, nogil=True)
def varint(buffer, at, end):  # type: ignore[no-untyped-def]
    """Zigzag varint or varlong."""
    raw, at = unsigned_varint(buffer, at, end)
    return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), at


@njit(cache=True, nogil=True)
def sized(buffer, at, end):  # type: ignore[no-untyped-def]
    """Bytes behind their length (-1 = null): position, length and the byte behind; the last -1 where malformed."""
    if at < 0:
        return np.int64(0), np.int64(0), np.int64(-1)
    size, at = varint(buffer, at, end)
    if at < 0 or size < -1 or size > end - at:
        return np.int64(0), np.int64(0), np.int64(-1)
    return at, size, np.int64(at + max(size, 0))


@njit(cache=True, nogil=True)
def is_text(buffer, at, length, text):  # type: ignore[no-untyped-def]
    """Whether the bytes at `at`, so many, are these."""
    if length != len(text):
        return False
    for i in range(length):  # noqa: SIM110 - compiled
        if buffer[at + i] != text[i]:
            return False
    return True


@njit(cache=True, nogil=True)
def record_layout(buffer, at, end, out):  # type: ignore[no-untyped-def]
    """Read one record of a magic-2 batch; returns the byte behind it, or -1 where it is malformed.

    `out` takes timestamp delta, offset delta, key position, key length, value position, value length (-1 = null), and
    the position of the headers, which begin with their number (-1 = no header).
    """
    length, at = varint(buffer, at, end)
    if at < 0 or length < 6 or length > end - at:
        return np.int64(-1)
    end = at + length
    at += 1  # attributes, unused
    out[0], at = varint(buffer, at, end)
    if at >= 0:
        out[1], at = varint(buffer, at, end)
    out[2], out[3], at = sized(buffer, at, end)
    out[4], out[5], at = sized(buffer, at, end)
    headers, headers_at = np.int64(0), at
    if at >= 0:
        headers, at = varint(buffer, at, end)
    out[6] = headers_at if headers > 0 else -1
    while at >= 0 and headers > 0:
        _, name, at = sized(buffer, at, end)
        _, _, at = sized(buffer, at, end)
        headers -= 1 if name >= 0 else headers + 1
    return end if at == end and headers == 0 else np.int64(-1)


@njit(cache=True, nogil=True)
def walk_records(buffer, starts, ends, counts, last_deltas, columns):  # type: ignore[no-untyped-def]
    """Lay out the records of each batch `i`, whose records fill bytes `starts[i]` to `ends[i]`.

    `columns` (8, sum of counts) takes batch number, then what `record_layout` gives. Returns how many records of each
    batch were laid out, and the rows filled. All of `counts[i]`, and no byte more, with offsets that grow up to
    `last_deltas[i]`, make a batch; of another no row is filled, and -1 stands for bytes behind the records.
    """
    found = np.zeros(len(starts), np.int64)
    out = np.empty(7, np.int64)
    row = 0
    for batch in range(len(starts)):
        at = starts[batch]
        first = row
        delta = np.int64(-1)
        for _ in range(counts[batch]):
            at = record_layout(buffer, at, ends[batch], out)
            if at < 0 or out[1] <= delta or out[1] > last_deltas[batch]:
                break
            delta = out[1]
            columns[0, row] = batch
            for i in range(7):
                columns[i + 1, row] = out[i]
            row += 1
        found[batch] = row - first
        if found[batch] == counts[batch] and at != ends[batch]:
            found[batch] = -1
        if found[batch] != counts[batch]:
            row = first
    return found, row


@njit(cache=True, nogil=True)
def gather(buffer, positions, offsets, out):  # type: ignore[no-untyped-def]
    """Copy the strings that begin at `positions` one behind the other, as Arrow lays them out by `offsets`."""
    for row in range(len(positions)):
        at = positions[row]
        to = offsets[row]
        for i in range(offsets[row + 1] - to):
            out[to + i] = buffer[at + i]
