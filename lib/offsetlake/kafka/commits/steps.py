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

from offsetlake.kafka.batches.reader import Records
from offsetlake.kafka.batches.words import WORD_BYTES, word
from offsetlake.kafka.compiled import compiled

_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio
UNKNOWN = -1
"""The repeats of a commit that is not known to increase or to repeat the offset before it."""

_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]


class Steps(NamedTuple):
    """The records of a chunk and what is known about them, an array each; compiled functions fill the arrays.

    Compiled loops use the arrays by local names, because each access to a field would count a reference.

    | field                       | description |
    |-----------------------------|-------------|
    | buffer, keys                | by row: the positions of the first and the last 8 bytes of the key in the buffer, and its hash |
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
    keys: npt.NDArray[np.uint64]
    is_commit: _Bools
    offsets: _Ints
    times: _Ints
    last: _Ints
    slots: npt.NDArray[np.int32]
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
        _keys(records.buffer, records.key_at, records.key_length),
        is_commit=records.value_length >= 0,
        offsets=offsets,
        times=records.log_timestamp,
        last=np.zeros(count, np.int64),
        slots=np.full(1 << max(4, int(count * 2).bit_length()), -1, np.int32),
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


@compiled(cache=True, nogil=True)
def _keys(buffer, key_at, key_length):  # type: ignore[no-untyped-def]
    """Return the keys as in `Steps`, without the record type, which is 0 or 1.

    What follows it has 8 bytes at least: the lengths of two names, and the partition.
    """
    keys = np.empty((len(key_at), 3), np.uint64)
    for row in range(len(key_at)):
        start = np.uint64(key_at[row])
        position, last = start + np.uint64(2), start + np.uint64(key_length[row]) - WORD_BYTES
        keys[row, 0], keys[row, 1] = position, last
        code = _mixed(np.uint64(key_length[row]), word(buffer, last))
        while position < last:
            code = _mixed(code, word(buffer, position))
            position += WORD_BYTES
        keys[row, 2] = code
    return keys


@compiled(cache=True, nogil=True)
def _mark_superseded(steps, final):  # type: ignore[no-untyped-def]
    """Mark superseded records, from the last to the first, and find the last row of each key."""
    buffer, keys, slots, last, is_commit = steps.buffer, steps.keys, steps.slots, steps.last, steps.is_commit
    undecided, survivors, superseded = steps.undecided, steps.survivor, steps.superseded
    for row in range(len(keys) - 1, -1, -1):
        slot = _slot(buffer, keys, row, buffer, keys, slots)
        if slots[slot] < 0:
            slots[slot] = row
        key = slots[slot]
        last[row] = key
        survivor = survivors[key]
        if not final[row]:
            undecided[key] = True
        elif survivor >= 0 and (is_commit[survivor] or not is_commit[row]):
            superseded[row] = True
        else:
            survivors[key] = row


@compiled(cache=True, nogil=True)
def _find_former(before, steps, former):  # type: ignore[no-untyped-def]
    """Find for the first row of each key the last row of the chunk before; mark what the first row supersedes."""
    buffer, keys, old_buffer, old_keys, slots = steps.buffer, steps.keys, before.buffer, before.keys, before.slots
    last, undecided, is_commit, old_undecided = steps.last, steps.undecided, steps.is_commit, before.undecided
    survivors, superseded = before.survivor, before.superseded
    seen = np.zeros(len(keys), np.bool_)
    for row in range(len(keys)):
        key = last[row]
        if seen[key] or undecided[key]:
            continue
        seen[key] = True
        old_key = slots[_slot(buffer, keys, row, old_buffer, old_keys, slots)]
        if old_key >= 0 and not old_undecided[old_key]:
            former[row] = old_key
            if is_commit[row]:
                superseded[survivors[old_key]] = True


@compiled(cache=True, nogil=True)
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


@compiled(inline="always")
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


@compiled(inline="always")
def _slot(buffer, keys, row, other_buffer, other_keys, slots):  # type: ignore[no-untyped-def]
    """Return the slot of the key of a row in the hash table of other records, or the empty one where it belongs."""
    mask = np.uint64(len(slots) - 1)
    slot = keys[row, 2] & mask
    while slots[slot] >= 0 and not _same(buffer, keys, row, other_buffer, other_keys, slots[slot]):
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled(inline="always")
def _same(buffer, keys, row, other_buffer, other_keys, other):  # type: ignore[no-untyped-def]
    """Return whether the key of a row equals that of a row of other records."""
    first, last = keys[row, 0], keys[row, 1]
    other_first, other_last = other_keys[other, 0], other_keys[other, 1]
    if keys[row, 2] != other_keys[other, 2] or last - first != other_last - other_first:
        return False
    same = word(buffer, last) == word(other_buffer, other_last)
    while same and first < last:
        same = word(buffer, first) == word(other_buffer, other_first)
        first += WORD_BYTES
        other_first += WORD_BYTES
    return same


@compiled(inline="always")
def _mixed(code, number):  # type: ignore[no-untyped-def]
    """Return the hash of a number and, by their hash, of those before it."""
    code = (code ^ number) * _HASH_FACTOR
    return code ^ (code >> np.uint64(32))
