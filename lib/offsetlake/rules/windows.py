"""The newest commits of each group in each partition: what a consumer is judged by."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.rules.reduction import KEY
from offsetlake.util.row_codes import Ints, order_codes

WINDOW = 10
"""Commits looked at, at the most: Burrow's default."""

_PLAIN = pa.schema([("group_id", pa.string()), ("topic", pa.string()), ("partition", pa.int32())])


@dataclass(frozen=True, slots=True)
class Windows:
    """The newest commits of some keys, none without a commit.

    | field      | one an | is |
    |------------|--------|----|
    | keys       | window | table of group_id, topic, partition |
    | counts     | window | how many commits it has |
    | offsets    | commit | the offset committed; window by window, the oldest commit first |
    | timestamps | commit | when it was committed, ms since the epoch |
    """

    keys: pa.Table
    counts: Ints
    offsets: Ints
    timestamps: Ints

    @property
    def starts(self) -> Ints:
        """The first commit of each window."""
        return self.newest - self.counts + 1

    @property
    def newest(self) -> Ints:
        """The newest commit of each window."""
        return np.cumsum(self.counts) - 1

    @property
    def numbers(self) -> Ints:
        """The window of each commit."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


def newest_commits(decided: pa.Table, size: int = WINDOW) -> Windows:
    """Give of each key its newest commits, those alone that no tombstone of the key follows.

    `decided` are records that count, of whole log partitions. Columns: KEY, log_offset, kind, committed_offset and
    commit_timestamp; texts may be dictionaries. A key whose newest record is a tombstone has no window.
    """
    codes = order_codes(decided, KEY)
    order = np.lexsort((decided["log_offset"].to_numpy(), codes))
    codes, at = codes[order], np.arange(len(order))
    begins = np.ones(len(order), np.bool_)
    begins[1:] = codes[1:] != codes[:-1]
    starts = np.flatnonzero(begins)
    lengths = np.diff(np.append(starts, len(order)))
    is_tombstone = pc.equal(decided["kind"], "tombstone").to_numpy()[order]
    deleted = np.maximum.reduceat(np.where(is_tombstone, at, -1), starts) if len(starts) else starts
    first = np.maximum(deleted + 1, starts + lengths - size)
    kept = order[at >= np.repeat(first, lengths)]
    counts = starts + lengths - np.maximum(first, starts)
    some = counts > 0
    keys = decided.select(KEY).take(pa.array(order[starts[some]])).cast(_PLAIN)
    columns = (decided[name].take(pa.array(kept)).to_numpy() for name in ("committed_offset", "commit_timestamp"))
    return Windows(keys, counts[some], *columns)
