"""Marks offset records that a later record with the same key in the same chunk of the log supersedes.

This is the cheapest step of the reduction to the latest offsets: compaction skips the marked records. Only a commit
supersedes a commit, because a commit that a tombstone deletes has still created its group. Whether transactional
commits and commits in parts take effect depends on records outside the chunk, so they are never marked and mark none.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from offsetlake.kafka.batches.reader import Records

_FNV_BASIS, _FNV_PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)


def superseded(records: Records, final: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return a mask of the superseded records; keys are compared byte by byte.

    A final commit is superseded by a later final commit with its key, a final tombstone by any later final record.

    Args:
        records: Offset commits in log order.
        final: Whether the effect of each record is known from the chunk alone.
    """
    slots = np.full(1 << max(4, int(len(records) * 2).bit_length()), -1, np.int64)
    marked = np.zeros(len(records), np.bool_)
    _mark(records.buffer, records.key_at, records.key_length, records.value_length >= 0, final, slots, marked)
    return marked


@njit(cache=True, nogil=True)
def _mark(buffer, key_at, key_length, is_commit, final, slots, marked):  # type: ignore[no-untyped-def]
    """Mark records from the last to the first; `slots` is an empty hash table whose size is a power of two."""
    mask = np.uint64(len(slots) - 1)
    for row in range(len(key_at) - 1, -1, -1):
        if not final[row]:
            continue
        start, length = key_at[row] + 2, key_length[row] - 2  # after the record type, 0 or 1
        code = _FNV_BASIS
        for i in range(length):
            code = (code ^ np.uint64(buffer[start + i])) * _FNV_PRIME
        slot = (code ^ (code >> np.uint64(32))) & mask
        while slots[slot] >= 0 and not _same(buffer, start, length, key_at, key_length, slots[slot]):
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] >= 0 and (is_commit[slots[slot]] or not is_commit[row]):
            marked[row] = True
        else:
            slots[slot] = row


@njit(cache=True, nogil=True)
def _same(buffer, start, length, key_at, key_length, row):  # type: ignore[no-untyped-def]
    """Return whether a key equals that of another row."""
    if key_length[row] - 2 != length:
        return False
    other = key_at[row] + 2
    for i in range(length - 1, -1, -1):  # noqa: SIM110 - compiled; from the end, where the partitions are
        if buffer[start + i] != buffer[other + i]:
            return False
    return True
