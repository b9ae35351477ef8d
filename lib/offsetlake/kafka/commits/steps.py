"""Compares each offset commit with the one of the same key before it, in a part of the log that is read in chunks.

This is the cheapest step of two computations. Compaction skips commits that a later one supersedes. Queries about
changes of offsets skip routine commits, of which they need only the number. Only a commit supersedes a commit, because
a commit that a tombstone deletes has still created its group. Whether transactional commits and commits in parts take
effect depends on records outside the chunk, so they supersede nothing, and a chunk with one of a key says nothing about
the steps of this key.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from offsetlake.kafka.batches.reader import Records

_FNV_BASIS, _FNV_PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)
UNKNOWN = -1
"""The repeats of a commit that is not known to increase or to repeat the offset before it."""

_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]


class Steps(NamedTuple):
    """The records of a chunk and what is known about them, an array each; compiled functions fill the arrays.

    | field                       | description |
    |-----------------------------|-------------|
    | buffer, key_at, key_length  | the keys |
    | is_commit, offsets, times   | whether it is no tombstone; the committed offset; the timestamp, negative if there is none |
    | last                        | the last row with the key of each row; the arrays by key have its values there |
    | slots                       | a hash table of the last row of each key, whose size is a power of two |
    | undecided                   | by key: whether a record is not final |
    | survivor                    | by key: the first final record that is not superseded |
    | superseded                  | whether a later record supersedes the record |
    | repeats                     | number of commits of the key directly before it with its offset; 0 if that before it is lower; or UNKNOWN |
    | settled                     | whether this step and the one before it are known, and the timestamp does not decrease |
    | routine                     | whether it is settled and the step after it is known, except the commit that the last ones of its key repeat |
    """  # noqa: E501 - a table

    buffer: npt.NDArray[np.uint8]
    key_at: _Ints
    key_length: _Ints
    is_commit: _Bools
    offsets: _Ints
    times: _Ints
    last: _Ints
    slots: _Ints
    undecided: _Bools
    survivor: _Ints
    superseded: _Bools
    repeats: npt.NDArray[np.int32]
    settled: _Bools
    routine: _Bools


def find_steps(records: Records, final: _Bools, offsets: _Ints, before: Steps | None = None) -> Steps:
    """Return the steps of offset commits; update those of the chunk before, which is complete then.

    Keys are compared byte by byte. A final commit is superseded by a later final commit with its key, a final tombstone
    by any later final record of the chunk.

    Args:
        records: Decodable offset commits in log order.
        final: Whether the effect of each record is known from the record alone.
        offsets: The committed offset of each record; any number for a tombstone.
        before: The steps of the records directly before these in the log, if they are read by the same task.
    """
    count = len(records)
    steps = Steps(
        records.buffer,
        records.key_at,
        records.key_length,
        is_commit=records.value_length >= 0,
        offsets=offsets,
        times=records.log_timestamp,
        last=np.zeros(count, np.int64),
        slots=np.full(1 << max(4, int(count * 2).bit_length()), -1, np.int64),
        undecided=np.zeros(count, np.bool_),
        survivor=np.full(count, -1, np.int64),
        superseded=np.zeros(count, np.bool_),
        repeats=np.full(count, UNKNOWN, np.int32),
        settled=np.zeros(count, np.bool_),
        routine=np.zeros(count, np.bool_),
    )
    _mark_superseded(steps, final)
    former = np.full(count, -1, np.int64)
    if before is not None:
        _find_former(before, steps, former)
    _compare(steps if before is None else before, steps, former)
    return steps


@njit(cache=True, nogil=True)
def _mark_superseded(steps, final):  # type: ignore[no-untyped-def]
    """Mark superseded records, from the last to the first, and find the last row of each key."""
    for row in range(len(steps.key_at) - 1, -1, -1):
        slot = _slot(steps, row, steps)
        if steps.slots[slot] < 0:
            steps.slots[slot] = row
        key = steps.slots[slot]
        steps.last[row] = key
        survivor = steps.survivor[key]
        if not final[row]:
            steps.undecided[key] = True
        elif survivor >= 0 and (steps.is_commit[survivor] or not steps.is_commit[row]):
            steps.superseded[row] = True
        else:
            steps.survivor[key] = row


@njit(cache=True, nogil=True)
def _find_former(before, steps, former):  # type: ignore[no-untyped-def]
    """Find for the first row of each key the last row of the chunk before; mark what the first row supersedes."""
    seen = np.zeros(len(steps.key_at), np.bool_)
    for row in range(len(steps.key_at)):
        key = steps.last[row]
        if seen[key] or steps.undecided[key]:
            continue
        seen[key] = True
        old_key = before.slots[_slot(steps, row, before)]
        if old_key >= 0 and not before.undecided[old_key]:
            former[row] = old_key
            if steps.is_commit[row]:
                before.superseded[before.survivor[old_key]] = True


@njit(cache=True, nogil=True)
def _compare(before, steps, former):  # type: ignore[no-untyped-def]
    """Compare each row with the one of its key before it, from the first row to the last.

    `former` has for some rows the one of the chunk before.
    """
    count = len(steps.offsets)
    newest = np.full(count, -1, np.int64)
    repeated = np.full(count, -1, np.int64)  # the first row with the offset of a row; in the chunk before, -2 minus it
    for row in range(count):
        key = steps.last[row]
        if steps.undecided[key]:
            continue
        earlier = newest[key]
        newest[key] = row
        repeated[row] = row
        if earlier >= 0:
            if _compare_two(steps, earlier, steps, row):
                repeated[row] = repeated[earlier]
        elif former[row] >= 0 and _compare_two(before, former[row], steps, row):
            repeated[row] = -2 - former[row]
    for row in range(count):
        if steps.last[row] == row and steps.repeats[row] > 0:
            first = repeated[row]
            if first >= 0:
                steps.routine[first] = False
            elif before.repeats[-2 - first] <= 0:  # otherwise that of an earlier chunk is repeated
                before.routine[-2 - first] = False


@njit(inline="always")
def _compare_two(old, earlier, steps, row):  # type: ignore[no-untyped-def]
    """Compare two successive rows of a key; return whether the later one is known to repeat the offset."""
    if not (steps.is_commit[row] and old.is_commit[earlier] and steps.offsets[row] >= old.offsets[earlier]):
        return False
    repeats = steps.offsets[row] == old.offsets[earlier]
    in_time = old.times[earlier] <= steps.times[row] and (old.times[earlier] < 0) == (steps.times[row] < 0)
    steps.repeats[row] = max(old.repeats[earlier], 0) + 1 if repeats else 0
    steps.settled[row] = in_time and old.repeats[earlier] >= 0
    old.routine[earlier] = in_time and old.settled[earlier]
    return repeats


@njit(inline="always")
def _slot(steps, row, others):  # type: ignore[no-untyped-def]
    """Return the slot of the key of a row in the hash table of others, or the empty one where it belongs."""
    mask = np.uint64(len(others.slots) - 1)
    start, length = steps.key_at[row] + 2, steps.key_length[row] - 2  # after the record type, 0 or 1
    code = _FNV_BASIS
    for i in range(length):
        code = (code ^ np.uint64(steps.buffer[start + i])) * _FNV_PRIME
    slot = (code ^ (code >> np.uint64(32))) & mask
    while others.slots[slot] >= 0 and not _same(
        steps.buffer, start, length, others.buffer, others.key_at, others.key_length, others.slots[slot]
    ):
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(cache=True, nogil=True)
def _same(buffer, start, length, other_buffer, key_at, key_length, row):  # type: ignore[no-untyped-def]
    """Return whether a key equals that of a row of other records."""
    if key_length[row] - 2 != length:
        return False
    other = key_at[row] + 2
    for i in range(length - 1, -1, -1):  # noqa: SIM110 - compiled; from the end, where the partitions are
        if buffer[start + i] != other_buffer[other + i]:
            return False
    return True
