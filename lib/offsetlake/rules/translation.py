"""Translates offsets of one cluster to those of a replica in another, from pairs of offsets of the same record.

MirrorMaker 2 writes such pairs as offset syncs (`org.apache.kafka.connect.mirror.OffsetSync`): the record with the
upstream offset was written at the downstream offset. It writes one of the first record after every start, and of some
others. After an interruption it begins at an earlier record, and records are in the target twice.

A translated offset must not be after the first copy of any record that is not before the source offset. The pair to
start from is therefore a `first copy`: its upstream offset exceeds those of all pairs before it. If downstream offsets
increased by more than upstream offsets, then records before the pair were written again, or the target contains other
records, such as markers of transactions. Such a pair counts only if the replicator has since passed all records that it
may have written before. A downstream offset that does not increase means that the topic at the target was created
again: all pairs before are void. `org.apache.kafka.connect.mirror.OffsetSyncStore` keeps at most 64 pairs of a
partition, and none from before an upstream offset decreased.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from offsetlake.util.row_codes import Ints, last_at_most

NONE = -1
"""No offset."""

_Flags = npt.NDArray[np.bool_]


class Bounds(NamedTuple):
    """Columns with an element for each offset to translate; NONE if unknown.

    | Column     | Description |
    |------------|-------------|
    | upstream   | Upstream offset of the last pair that is not after the offset |
    | downstream | Its downstream offset |
    | following  | Downstream offset of the first pair after the offset |
    | repeated   | Whether records before the offset were written again after the pair |
    """

    upstream: Ints
    downstream: Ints
    following: Ints
    repeated: _Flags


class _State(NamedTuple):
    """What is known of each partition; NONE without a pair.

    | Row      | Description |
    |----------|-------------|
    | up, down | The newest pair |
    | highest  | The highest upstream offset of all pairs |
    | written  | The highest upstream offset that may have been written before the newest pair |
    """

    up: Ints
    down: Ints
    highest: Ints
    written: Ints


class _Found(NamedTuple):
    """What is known for each offset: the last first copy, and the last one before which nothing was written again."""

    up: Ints
    down: Ints
    written: Ints
    sure_up: Ints
    sure_down: Ints
    following: Ints
    repeated: Ints


class PairSearch:
    """Finds the pairs next to given offsets, in any number of pairs, with memory for the given offsets only.

    Args:
        partitions: The partition of each offset, a number from 0 on.
        offsets: The offsets to translate.
    """

    def __init__(self, partitions: Ints, offsets: Ints) -> None:
        self._partitions, self._offsets = partitions, offsets
        self._found = _Found(*(np.full(len(offsets), NONE, np.int64) for _ in _Found._fields))
        self._found.repeated[:] = 0
        count = int(partitions.max(initial=-1)) + 1
        self._state = _State(*(np.full(count, NONE, np.int64) for _ in _State._fields))

    def add(self, partitions: Ints, upstream: Ints, downstream: Ints) -> None:
        """Add the next pairs, in the order of the log; their partitions are among those of the offsets."""
        order = np.argsort(partitions, kind="stable")
        partitions, upstream, downstream = partitions[order], upstream[order], downstream[order]
        up_before, down_before = self._before(partitions, upstream, downstream)
        voids = np.flatnonzero((downstream < down_before) | (downstream == down_before) & (upstream != up_before))
        if len(voids):
            valid = np.arange(len(partitions)) >= self._void(partitions, voids)[partitions]
            partitions, upstream, downstream = partitions[valid], upstream[valid], downstream[valid]
        if len(partitions):
            self._narrow(partitions, upstream, downstream)

    def result(self, ends: Ints) -> Bounds:
        """Return the bounds of each offset by all pairs so far; `ends` are the log end offsets at the target."""
        found, state = self._found, self._state
        up, down, highest, _ = (column[self._partitions] for column in state)
        passed = np.maximum(highest, up + ends - down) > found.written
        repeated = np.where(passed, found.repeated > 0, found.sure_up != found.up)
        return Bounds(
            np.where(passed, found.up, found.sure_up),
            np.where(passed, found.down, found.sure_down),
            found.following,
            repeated | (found.repeated > 0),
        )

    def _before(self, partitions: Ints, upstream: Ints, downstream: Ints) -> tuple[Ints, Ints]:
        """Return the pair before each pair of the same partition; the partitions are sorted."""
        first = np.append([True], partitions[1:] != partitions[:-1])[: len(partitions)]
        return (
            np.where(first, self._state.up[partitions], np.roll(upstream, 1)),
            np.where(first, self._state.down[partitions], np.roll(downstream, 1)),
        )

    def _void(self, partitions: Ints, voids: Ints) -> Ints:
        """Forget what is known of partitions that were created again; return the row since when, by partition."""
        since = np.full(len(self._state.up), NONE, np.int64)
        since[partitions[voids]] = voids  # the last one of a partition remains
        for column in self._state:
            column[since != NONE] = NONE
        chosen = (since != NONE)[self._partitions]
        for name, column in self._found._asdict().items():
            column[chosen] = 0 if name == "repeated" else NONE
        return since

    def _narrow(self, partitions: Ints, upstream: Ints, downstream: Ints) -> None:
        """Update what is known by pairs that are sorted by partition."""
        state, found = self._state, self._found
        up_before, down_before = self._before(partitions, upstream, downstream)
        reached = np.where(up_before == NONE, NONE, up_before + downstream - down_before - 1)
        written = np.maximum(_running_max(partitions, reached), state.written[partitions])
        highest = np.maximum(_running_max(partitions, up_before), state.highest[partitions])
        is_first, is_sure = upstream > highest, upstream > np.maximum(written, highest)
        firsts, sures = np.flatnonzero(is_first), np.flatnonzero(is_sure)

        last = self._last(partitions, upstream, firsts, self._offsets)
        hit = last != NONE
        found.up[hit], found.down[hit], found.written[hit] = (
            column[last[hit]] for column in (upstream, downstream, written)
        )
        sure = self._last(partitions, upstream, sures, self._offsets)
        known = sure != NONE
        found.sure_up[known], found.sure_down[known] = upstream[sure[known]], downstream[sure[known]]
        smaller = self._last(partitions, upstream, np.arange(len(partitions)), self._offsets - 1)
        found.repeated[:] = np.where(hit, smaller > last, (found.repeated > 0) | (smaller != NONE))

        # Upstream offsets of first copies increase, so the next one after the last that is not after is after.
        at = np.searchsorted(firsts, np.where(hit, last + 1, np.searchsorted(partitions, self._partitions)))
        row = np.append(firsts, [0])[at]
        after = (at < len(firsts)) & (partitions[row] == self._partitions) & (found.following == NONE)
        found.following[after] = downstream[row[after]]

        ends = np.flatnonzero(np.append(partitions[1:] != partitions[:-1], [True]))
        ended = partitions[ends]
        state.up[ended], state.down[ended], state.written[ended] = upstream[ends], downstream[ends], written[ends]
        state.highest[ended] = np.maximum(highest, upstream)[ends]

    def _last(self, partitions: Ints, upstream: Ints, rows: Ints, offsets: Ints) -> Ints:
        """Return, for each offset to translate, the last of some rows that does not exceed a limit; NONE for none."""
        if not len(rows):
            return np.full(len(offsets), NONE)
        last = last_at_most(partitions[rows], upstream[rows], self._partitions, offsets)
        return np.where(last < 0, NONE, rows[last])


def _running_max(partitions: Ints, values: Ints) -> Ints:
    """Return the maximum of the values up to each row in its partition; the partitions are sorted."""
    order = np.lexsort((values, partitions))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    highest: Ints = values[order[np.maximum.accumulate(ranks)]]
    return highest


class Translated(NamedTuple):
    """Columns with an element for each offset.

    | Column     | Description |
    |------------|-------------|
    | offset     | The offset at the target; NONE if it is unknown |
    | exact      | Whether no record before the offset follows it |
    | read_twice | The maximum number of records that follow it although they are before the offset; NONE if unknown |
    | latest     | An offset at the target that no record before the offset follows; NONE if unknown |
    """

    offset: Ints
    exact: _Flags
    read_twice: Ints
    latest: Ints


def by_syncs(offsets: Ints, bounds: Bounds, starts: Ints, ends: Ints) -> Translated:
    """Return the offsets at the target by offset syncs: never after the first record that is not before the offset.

    A record after that of a sync was written after it, but not necessarily at the next offset: the replicator may have
    written others twice or omitted some. Only the offset of a sync and the one after it are exact. An offset is unknown
    if the target does not contain it: the topic was created again, or its records were deleted.

    Args:
        offsets: The offsets at the source.
        bounds: Their bounds by offset syncs.
        starts: The log start offsets at the target.
        ends: The log end offsets at the target.
    """
    distance = offsets - bounds.upstream
    step = np.minimum(distance, 1)
    offset = bounds.downstream + step
    known = (bounds.upstream != NONE) & (offset >= starts) & (offset <= ends)
    exact = known & (distance <= 1) & ~bounds.repeated
    limit = np.where((bounds.following != NONE) & (bounds.following <= ends), bounds.following, ends)
    records = np.where(bounds.repeated, ends - offset, np.minimum(distance - step, limit - offset))
    latest = np.where(exact, offset, np.where(bounds.repeated, ends, limit))
    return Translated(
        np.where(known, offset, NONE),
        exact,
        np.where(known, np.where(exact, 0, np.maximum(records, 0)), NONE),
        np.where(known, latest, NONE),
    )


def by_checkpoints(bounds: Bounds, starts: Ints, ends: Ints) -> Translated:
    """Return the offsets at the target by checkpoints of the group, which are safe, but not exact.

    The downstream offset of a checkpoint is not that of a record, but the position of the group that MirrorMaker 2
    computed from its offset syncs at that time (`org.apache.kafka.connect.mirror.Checkpoint`).

    Args:
        bounds: The bounds of the offsets by the checkpoints of their groups.
        starts: The log start offsets at the target.
        ends: The log end offsets at the target.
    """
    offset = bounds.downstream
    known = (bounds.upstream != NONE) & (offset >= starts) & (offset <= ends)
    return Translated(
        np.where(known, offset, NONE),
        np.zeros(len(offset), np.bool_),
        np.where(known, ends - offset, NONE),
        np.where(known, ends, NONE),
    )
