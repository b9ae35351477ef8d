"""Compiled functions that copy and compare bytes eight at a time; as those of `kernels`, they never change."""

import numpy as np

from offsetlake.kafka.compiled import compiled

WORD_BYTES = np.uint64(8)


@compiled(nogil=True, inline="always")
def word(buffer, position):  # type: ignore[no-untyped-def]
    """Return 8 bytes of a buffer as a number, in one load: the index has no sign, so it is not checked for one."""
    value = np.uint64(0)
    for i in range(8):
        value |= np.uint64(buffer[position + np.uint64(i)]) << np.uint64(8 * i)
    return value


@compiled(cache=True, nogil=True)
def gather(buffer, positions, offsets, out):  # type: ignore[no-untyped-def]
    """Copy the strings that begin at `positions` to `out`, without gaps, at the offsets of an Arrow string array."""
    for row in range(len(positions)):
        source, target, end = np.uint64(positions[row]), np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        while target + WORD_BYTES <= end:
            value = word(buffer, source)
            for i in range(8):
                out[target + np.uint64(i)] = np.uint8(value >> np.uint64(8 * i))
            source, target = source + WORD_BYTES, target + WORD_BYTES
        while target < end:
            out[target] = buffer[source]
            source, target = source + np.uint64(1), target + np.uint64(1)
