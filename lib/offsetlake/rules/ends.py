"""What is known of where partitions ended over time: how far behind an offset was, and since when.

Ends are recorded once a cycle, and commits come in between. Where a partition ended at a commit is not known, only that
it was not before the end recorded last. So a commit that was not behind that end had no lag, as in Burrow, whose ends
are old by up to an interval too; how far behind the others were is read off a straight line to the end recorded next.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlake.util.row_codes import Ints, last_at_most, order_codes, rows_in

UNKNOWN = -1
"""Stands for a lag, an instant or a partition that is not known."""

_PARTITION = ("topic", "partition")


class Ends:
    """The recorded ends of partitions, which are numbers here; UNKNOWN is one of which no end was ever recorded."""

    def __init__(self, recorded: pa.Table) -> None:
        """Take in at least one row of `log_ends`: topic, partition, end_offset and asked_timestamp, in any order."""
        order = np.argsort(order_codes(recorded, (*_PARTITION, "asked_timestamp")), kind="stable")
        codes = order_codes(recorded, _PARTITION)[order]
        starts = np.flatnonzero(np.append([True], codes[1:] != codes[:-1]))
        self._partitions = recorded.select(_PARTITION).take(pa.array(order[starts]))
        self._oldest, self._newest = starts, np.append(starts[1:], len(codes)) - 1
        self._numbers = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(codes))))
        self._ends = recorded["end_offset"].to_numpy()[order]
        self._asked = recorded["asked_timestamp"].to_numpy()[order]

    def partitions(self, rows: pa.Table) -> Ints:
        """Give the number of each row's partition. Columns: topic, partition."""
        return rows_in(rows, self._partitions, _PARTITION)

    def observations(self, partitions: Ints) -> tuple[Ints, Ints]:
        """Return how often the end of each partition was recorded, and when first (ms); 0 and UNKNOWN if never."""
        known = partitions != UNKNOWN
        counts = np.where(known, self._newest[partitions] - self._oldest[partitions] + 1, 0)
        return counts, np.where(known, self._asked[self._oldest[partitions]], UNKNOWN)

    def lags(self, partitions: Ints, offsets: Ints, timestamps: Ints) -> Ints:
        """Give the lags that commits of these offsets had when they were made; UNKNOWN before the first record."""
        before = last_at_most(self._numbers, self._asked, partitions, timestamps)
        end = self._line(before, self._asked, self._ends, timestamps)
        lag = np.where(self._ends[before] > offsets, np.maximum(end - offsets, 0), 0)
        return np.where(before == UNKNOWN, UNKNOWN, lag)

    def reached(self, partitions: Ints, offsets: Ints) -> Ints:
        """Give when, in ms, partitions last ended at these offsets: all behind was written since.

        UNKNOWN where every end on record lies behind the offset.
        """
        before = last_at_most(self._numbers, self._ends, partitions, offsets)
        return np.where(before == UNKNOWN, UNKNOWN, self._line(before, self._ends, self._asked, offsets))

    def were_reached(self, partitions: Ints, offsets: Ints) -> npt.NDArray[np.bool_]:
        """Tell which offsets were not behind the end that was recorded before the newest."""
        before = self._newest[partitions] - 1
        same = (before >= 0) & (self._numbers[before] == partitions)
        were: npt.NDArray[np.bool_] = same & (self._ends[before] <= offsets)
        return were

    def _line(self, before: Ints, of: Ints, values: Ints, at: Ints) -> Ints:
        """Read values off the line from each record to the next of its partition, where `of` is `at`."""
        after = np.minimum(before + 1, self._newest[self._numbers[before]])
        share = (at - of[before]) / np.maximum(of[after] - of[before], 1)
        grown: Ints = ((values[after] - values[before]) * np.clip(share, 0, 1)).astype(np.int64)
        return grown + values[before]
