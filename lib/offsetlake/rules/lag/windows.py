"""The windows that the status of consumers is evaluated on: the newest commits of each group in each partition."""

from dataclasses import dataclass

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
    codes = order_codes(decided, KEY)
    order = np.lexsort((decided["log_offset"].to_numpy(), codes))
    codes, index = codes[order], np.arange(len(order))
    starts_key = np.ones(len(order), np.bool_)
    starts_key[1:] = codes[1:] != codes[:-1]
    starts = np.flatnonzero(starts_key)
    lengths = np.diff(np.append(starts, len(order)))
    is_tombstone = pc.equal(decided["kind"], "tombstone").to_numpy()[order]
    last_tombstone = np.maximum.reduceat(np.where(is_tombstone, index, -1), starts) if len(starts) else starts
    first = np.maximum(last_tombstone + 1, starts + lengths - size)
    kept = order[index >= np.repeat(first, lengths)]
    counts = starts + lengths - np.maximum(first, starts)
    has_commits = counts > 0
    keys = decided.select(KEY).take(pa.array(order[starts[has_commits]])).cast(_KEY_SCHEMA)
    columns = (decided[name].take(pa.array(kept)).to_numpy() for name in ("committed_offset", "commit_timestamp"))
    return Windows(keys, counts[has_commits], *columns)
