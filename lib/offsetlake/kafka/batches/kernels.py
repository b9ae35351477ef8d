"""Compiled functions that parse record batches.

Every record of a log passes through these loops and through no loop in Python. The functions take and fill whole
arrays; `buffer` is always the uint8 view of bytes that contain record batches. Numba's cache detects changes only in
the file of the compiled function, so other files call only functions from here that never change.
"""

import numpy as np
import numpy.typing as npt

from offsetlake.kafka.compiled import compiled

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

BATCH_OVERHEAD = 12  # bytes of the base offset and the batch length, which the length excludes
BATCH_HEADER = 61  # bytes
LEGACY_HEADER = 26  # bytes with magic 0: offset, size, CRC, magic, attributes, key length, value length
MAGIC_AT = 16

WALKED_ALL, WALKED_TO_PARTIAL, WALKED_TO_INVALID = 0, 1, 2
"""Why `walk_batches` stopped: at the end, at a batch that the buffer contains in part, or at bytes that begin none."""


@compiled(cache=True, nogil=True)
def int16_at(buffer, position):  # type: ignore[no-untyped-def]
    """Return the big-endian int16 at a position."""
    return np.int64(np.int16((np.uint16(buffer[position]) << np.uint16(8)) | np.uint16(buffer[position + 1])))


@compiled(cache=True, nogil=True)
def int32_at(buffer, position):  # type: ignore[no-untyped-def]
    """Return the big-endian int32 at a position."""
    value = np.uint32(0)
    for i in range(4):
        value = (value << np.uint32(8)) | np.uint32(buffer[position + i])
    return np.int64(np.int32(value))


@compiled(cache=True, nogil=True)
def int64_at(buffer, position):  # type: ignore[no-untyped-def]
    """Return the big-endian int64 at a position."""
    value = np.uint64(0)
    for i in range(8):
        value = (value << np.uint64(8)) | np.uint64(buffer[position + i])
    return np.int64(value)


@compiled(cache=True, nogil=True)
def batch_size(buffer, position):  # type: ignore[no-untyped-def]
    """Return the size in bytes that the batch header at a position states; 0 if no batch can begin there.

    The buffer may end before the batch does.
    """
    if len(buffer) - position <= MAGIC_AT:
        return np.int64(0)
    magic = buffer[position + MAGIC_AT]
    size = BATCH_OVERHEAD + int32_at(buffer, position + 8)
    smallest = BATCH_HEADER if magic == 2 else LEGACY_HEADER
    return size if magic <= 2 and size >= smallest and int64_at(buffer, position) >= 0 else np.int64(0)


@compiled(cache=True, nogil=True)
def walk_batches(buffer):  # type: ignore[no-untyped-def]
    """Find the consecutive whole batches from byte 0.

    Returns:
        The positions of the batches, the position after the last one, and why the walk stopped there (WALKED_...).
    """
    positions = np.empty(len(buffer) // LEGACY_HEADER + 1, np.int64)
    count = 0
    position = 0
    remaining = len(buffer)
    stop_reason = WALKED_ALL
    while remaining > 0:
        size = batch_size(buffer, position)
        if size == 0 and remaining > MAGIC_AT:
            stop_reason = WALKED_TO_INVALID
            break
        if size == 0 or size > remaining:
            stop_reason = WALKED_TO_PARTIAL
            break
        positions[count] = position
        count += 1
        position += size
        remaining -= size
    return positions[:count].copy(), position, stop_reason


@compiled(cache=True, nogil=True)
def spans(buffer, positions):  # type: ignore[no-untyped-def]
    """Return the first and last offsets, shape (2, n), of the batches at some positions.

    A batch with magic 0 or 1 states only its last offset, which is returned for both.
    """
    out = np.empty((2, len(positions)), np.int64)
    for i in range(len(positions)):
        position = positions[i]
        out[0, i] = out[1, i] = int64_at(buffer, position)
        if buffer[position + MAGIC_AT] == 2:
            out[1, i] += int32_at(buffer, position + 23)
    return out


@compiled(cache=True, nogil=True)
def header_bytes(buffer, positions):  # type: ignore[no-untyped-def]
    """Return the 61 bytes at each position as a row, padded with zeros where the buffer ends earlier."""
    out = np.zeros((len(positions), BATCH_HEADER), np.uint8)
    for i in range(len(positions)):
        position = positions[i]
        for byte in range(min(BATCH_HEADER, len(buffer) - position)):
            out[i, byte] = buffer[position + byte]
    return out


@compiled(cache=True, nogil=True)
def is_message(buffer, position, size):  # type: ignore[no-untyped-def]
    """Return whether the key and the value of a message with magic 0 or 1 end exactly where the message does."""
    key_at = position + 18 + 8 * np.int64(buffer[position + MAGIC_AT])
    if key_at + 8 > position + size:
        return False
    key_length = int32_at(buffer, key_at)
    value_at = key_at + 4 + max(key_length, 0)
    if key_length < -1 or value_at + 4 > position + size:
        return False
    value_length = int32_at(buffer, value_at)
    return value_length >= -1 and value_at + 4 + max(value_length, 0) == position + size


@compiled(cache=True, nogil=True)
def next_header(buffer, position, floor):  # type: ignore[no-untyped-def]
    """Return the next position, or -1, where a whole batch with an offset of at least `floor` can begin."""
    for start in range(position + 1, len(buffer) - LEGACY_HEADER + 1):
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


@compiled(cache=True, nogil=True)
def _long_varint(buffer, position, end):  # type: ignore[no-untyped-def]
    """Return what `unsigned_varint` does, for values of any length."""
    value = np.uint64(0)
    shift = np.uint64(0)
    for _ in range(10):
        if position >= end:
            return np.uint64(0), np.int64(-1)
        byte = np.uint64(buffer[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return value, np.int64(position)
        shift += np.uint64(7)
    return np.uint64(0), np.int64(-1)


@compiled(nogil=True, inline="always")
def unsigned_varint(buffer, position, end):  # type: ignore[no-untyped-def]
    """Return an unsigned varint of at most 10 bytes and the position after it; -1 if it does not end before `end`."""
    if position < end and buffer[position] < np.uint8(0x80):
        return np.uint64(buffer[position]), np.int64(position + 1)
    return _long_varint(buffer, position, end)


@compiled(nogil=True, inline="always")
def varint(buffer, position, end):  # type: ignore[no-untyped-def]
    """Return a zigzag varint or varlong and the position after it; -1 if it is malformed."""
    raw, after = unsigned_varint(buffer, position, end)
    return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), after


@compiled(nogil=True, inline="always")
def sized(buffer, position, end):  # type: ignore[no-untyped-def]
    """Return the position and length (-1 = null) of bytes that follow their length, and the position after them.

    The last is -1 if they are malformed.
    """
    if position < 0:
        return np.int64(0), np.int64(0), np.int64(-1)
    size, position = varint(buffer, position, end)
    if position < 0 or size < -1 or size > end - position:
        return np.int64(0), np.int64(0), np.int64(-1)
    return position, size, np.int64(position + max(size, 0))


@compiled(cache=True, nogil=True)
def is_text(buffer, position, length, text):  # type: ignore[no-untyped-def]
    """Return whether the `length` bytes at a position equal `text`."""
    if length != len(text):
        return False
    for i in range(length):  # noqa: SIM110 - compiled
        if buffer[position + i] != text[i]:
            return False
    return True


@compiled(cache=True, nogil=True)
def _after_headers(buffer, position, end, headers):  # type: ignore[no-untyped-def]
    """Return the position after the headers of a record, -1 if they are malformed."""
    while position >= 0 and headers > 0:
        _, name_length, position = sized(buffer, position, end)
        _, _, position = sized(buffer, position, end)
        headers -= 1 if name_length >= 0 else headers + 1
    return position if headers == 0 else np.int64(-1)


@compiled(nogil=True, inline="always")
def record_layout(buffer, position, end):  # type: ignore[no-untyped-def]
    """Parse one record of a batch with magic 2.

    Returns:
        The position after it (-1 = malformed), the timestamp delta, the offset delta, the positions and lengths of the
        key and the value (length -1 = null), and the position of the header count, which the headers follow (-1 = no
        headers).
    """
    length, position = varint(buffer, position, end)
    after = np.int64(-1)
    if position >= 0 and length >= 6 and length <= end - position:
        after = position + length
    time, position = varint(buffer, position + 1, after)  # after the attributes, which are unused
    if position >= 0:
        offset, position = varint(buffer, position, after)
    else:
        offset = np.int64(-1)
    key_at, key_length, position = sized(buffer, position, after)
    value_at, value_length, position = sized(buffer, position, after)
    headers, headers_at = np.int64(0), position
    if position >= 0:
        headers, position = varint(buffer, position, after)
    if headers > 0:
        position = _after_headers(buffer, position, after, headers)
    else:
        headers_at = np.int64(-1)
    if position != after or headers < 0:
        after = np.int64(-1)
    return after, time, offset, key_at, key_length, value_at, value_length, headers_at


@compiled(cache=True, nogil=True)
def walk_records(buffer, starts, ends, counts, last_deltas, columns):  # type: ignore[no-untyped-def]
    """Parse the records of each batch `i`, which occupy the bytes from `starts[i]` to `ends[i]`.

    A batch is valid if it contains exactly `counts[i]` records, their offsets increase and do not exceed
    `last_deltas[i]`, and no bytes follow the last record. Only valid batches fill rows of `columns`, shape (8, sum of
    `counts`): the batch number, then the output of `record_layout` after the position.

    Returns:
        The number of records that were parsed in each batch, or -1 if bytes follow the last one; and the number of
        rows filled.
    """
    parsed = np.zeros(len(starts), np.int64)
    row = 0
    for batch in range(len(starts)):
        position = starts[batch]
        first_row = row
        delta = np.int64(-1)
        for _ in range(counts[batch]):
            position, time, offset, key_at, key_length, value_at, value_length, headers_at = record_layout(
                buffer, position, ends[batch]
            )
            if position < 0 or offset <= delta or offset > last_deltas[batch]:
                break
            delta = offset
            columns[0, row] = batch
            columns[1, row] = time
            columns[2, row] = offset
            columns[3, row] = key_at
            columns[4, row] = key_length
            columns[5, row] = value_at
            columns[6, row] = value_length
            columns[7, row] = headers_at
            row += 1
        parsed[batch] = row - first_row
        if parsed[batch] == counts[batch] and position != ends[batch]:
            parsed[batch] = -1
        if parsed[batch] != counts[batch]:
            row = first_row
    return parsed, row
