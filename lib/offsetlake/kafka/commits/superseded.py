"""Which offset records are followed by a newer one of their key in the same chunk of the log.

A first cut of the reduction to the latest, where it costs least: compaction need not look at such records at all. A
commit counts as superseded by a commit only, since even one that a tombstone removed has made its group. Commits of
transactions and commits in parts are no matter of a chunk: they neither are superseded nor supersede.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from offsetlake.kafka.batches.reader import Records

_FNV_BASIS, _FNV_PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)


def superseded(records: Records, decided: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Mark decided commits that a decided commit of their key follows, and tombstones any decided record follows.

    `records` are offset commits in log order, `decided` a bool a record. Keys are compared byte for byte.
    """
    slots = np.full(1 << max(4, int(len(records) * 2).bit_length()), -1, np.int64)
    marked = np.zeros(len(records), np.bool_)
    _mark(records.buffer, records.key_at, records.key_length, records.value_length >= 0, decided, slots, marked)
    return marked


@njit(cache=True, nogil=True)
def _mark(buffer, key_at, key_length, is_commit, decided, slots, marked):  # type: ignore[no-untyped-def]
    """Go through the records from the last; `slots` is an empty hash table of row numbers, a power of two long."""
    mask = np.uint64(len(slots) - 1)
    for row in range(len(key_at) - 1, -1, -1):
        if not decided[row]:
            continue
        start, length = key_at[row] + 2, key_length[row] - 2  # behind the record type, 0 or 1
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
    """Compare a key with that of another row."""
    if key_length[row] - 2 != length:
        return False
    other = key_at[row] + 2
    for i in range(length - 1, -1, -1):  # noqa: SIM110 - compiled; from the end, as partitions differ most often
        if buffer[start + i] != buffer[other + i]:
            return False
    return True
