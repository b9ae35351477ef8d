"""The windows that the status of consumers is evaluated on: the newest commits of each group in each partition."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.rules.reduction import KEY
from offsetlake.util.row_codes import Ints, order_codes

MAX_COMMITS = 10
"""The number of commits in a window: Burrow's default."""

_KEY_SCHEMA = pa.schema([("group_id", pa.string()), ("topic", pa.string()), ("partition", pa.int32())])


@dataclass(frozen=True, slots=True)
class Windows:
    """The newest commits of some keys; a key without commits has no window.

    The commits are ordered by window, the oldest commit of each window first.

    | Field      | Length  | Description |
    |------------|---------|-------------|
    | keys       | windows | a table with the columns group_id, topic and partition |
    | counts     | windows | the number of commits of the window |
    | offsets    | commits | the committed offset |
    | timestamps | commits | the commit timestamp, in ms since the epoch |
    """

    keys: pa.Table
    counts: Ints
    offsets: Ints
    timestamps: Ints

    @property
    def starts(self) -> Ints:
        """The index of the first commit of each window."""
        return self.newest - self.counts + 1

    @property
    def newest(self) -> Ints:
        """The index of the newest commit of each window."""
        return np.cumsum(self.counts) - 1

    @property
    def numbers(self) -> Ints:
        """The index of the window of each commit."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


def newest_commits(decided: pa.Table, size: int = MAX_COMMITS) -> Windows:
    """Return the window of each key: its newest commits after its last tombstone, at most `size` of them.

    Args:
        decided: Decided records of complete log partitions. Columns KEY, log_offset, kind, committed_offset and
            commit_timestamp; strings may be dictionary-encoded.
        size: The maximum number of commits in a window.
    """
    found = _windows(decided, size)
    index, ends = np.arange(len(found.order)), found.starts + found.lengths
    kept = found.order[index >= np.repeat(found.first, found.lengths)]
    counts = ends - np.maximum(found.first, found.starts)
    has_commits = counts > 0
    keys = decided.select(KEY).take(pa.array(found.order[found.starts[has_commits]])).cast(_KEY_SCHEMA)
    columns = (decided[name].take(pa.array(kept)).to_numpy() for name in ("committed_offset", "commit_timestamp"))
    return Windows(keys, counts[has_commits], *columns)


def window_rows(decided: pa.Table, size: int = MAX_COMMITS) -> pa.Table:
    """Return those of some records that `newest_commits` needs, whatever the other records of the log partitions are.

    These are the newest `size` commits of each key after its last tombstone, and this tombstone. Arguments are those of
    `newest_commits`.
    """
    found = _windows(decided, size)
    index = np.arange(len(found.order))
    first, last_tombstone = (np.repeat(each, found.lengths) for each in (found.first, found.last_tombstone))
    return decided.take(pa.array(found.order[(index >= first) | (index == last_tombstone)]))


class _Found(NamedTuple):
    """The records in the order of their keys, then of the log, and for each key four indexes or lengths in this order.

    | Field          | Description |
    |----------------|-------------|
    | order          | the rows |
    | starts, lengths | the records of the key |
    | last_tombstone | its last tombstone, -1 for none |
    | first          | its first commit in the window |
    """

    order: Ints
    starts: Ints
    lengths: Ints
    last_tombstone: Ints
    first: Ints


def _windows(decided: pa.Table, size: int) -> _Found:
    codes = order_codes(decided, KEY)
    order = np.lexsort((decided["log_offset"].to_numpy(), codes))
    codes, index = codes[order], np.arange(len(order))
    starts_key = np.ones(len(order), np.bool_)
    starts_key[1:] = codes[1:] != codes[:-1]
    starts = np.flatnonzero(starts_key)
    lengths = np.diff(np.append(starts, len(order)))
    is_tombstone = pc.equal(decided["kind"], "tombstone").to_numpy()[order]
    last_tombstone = np.maximum.reduceat(np.where(is_tombstone, index, -1), starts) if len(starts) else starts
    return _Found(order, starts, lengths, last_tombstone, np.maximum(last_tombstone + 1, starts + lengths - size))
