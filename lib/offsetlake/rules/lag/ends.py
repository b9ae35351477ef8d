"""Estimates lags in the past from the log end offsets that were recorded over time.

Log end offsets are recorded once per cycle, and commits happen between the cycles. The log end offset at the time of a
commit is unknown, except that it was at least the one recorded before. A commit that had reached that log end offset
therefore counts as having no lag, as in Burrow, whose log end offsets are also up to one interval old. The lag of other
commits is estimated by linear interpolation to the log end offset recorded next.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlake.util.row_codes import Ints, last_at_most, order_codes, rows_in

UNKNOWN = -1
"""The value of an unknown lag, instant or partition."""

_PARTITION = ("topic", "partition")


class Ends:
    """The recorded log end offsets of partitions.

    The methods identify a partition by a number; UNKNOWN is a partition whose log end offset was never recorded.

    Args:
        recorded: At least one observation of a log end offset, in any order, with the columns topic, partition,
            end_offset and asked_timestamp, and optionally first_timestamp, the time of the first observation of the
            partition, which may be missing here.
    """

    def __init__(self, recorded: pa.Table) -> None:
        order = np.argsort(order_codes(recorded, (*_PARTITION, "asked_timestamp")), kind="stable")
        codes = order_codes(recorded, _PARTITION)[order]
        starts = np.flatnonzero(np.append([True], codes[1:] != codes[:-1]))
        self._partitions = recorded.select(_PARTITION).take(pa.array(order[starts]))
        self._oldest, self._newest = starts, np.append(starts[1:], len(codes)) - 1
        self._numbers = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(codes))))
        self._ends = recorded["end_offset"].to_numpy()[order]
        self._timestamps = recorded["asked_timestamp"].to_numpy()[order]
        firsts = recorded["first_timestamp"] if "first_timestamp" in recorded.column_names else pa.nulls(len(order))
        self._firsts = firsts.cast(pa.int64()).fill_null(UNKNOWN).to_numpy()[order][self._newest]

    def partitions(self, rows: pa.Table) -> Ints:
        """Return the number of each row's partition; `rows` has the columns topic and partition."""
        return rows_in(rows, self._partitions, _PARTITION)

    def observations(self, partitions: Ints) -> tuple[Ints, Ints]:
        """Return how often the log end offset of each partition was recorded, and when first, in ms since the epoch.

        If it was never recorded, these are 0 and UNKNOWN.
        """
        known = partitions != UNKNOWN
        counts = np.where(known, self._newest[partitions] - self._oldest[partitions] + 1, 0)
        return counts, np.where(known, self._timestamps[self._oldest[partitions]], UNKNOWN)

    def are_complete(self, partitions: Ints) -> npt.NDArray[np.bool_]:
        """Return for which partitions the first observation is not missing; no partition is unknown."""
        complete: npt.NDArray[np.bool_] = self._timestamps[self._oldest[partitions]] == self._firsts[partitions]
        return complete

    def lags(self, partitions: Ints, offsets: Ints, timestamps: Ints) -> Ints:
        """Return the lag that each commit had at its timestamp; UNKNOWN before the first record of its partition."""
        before = last_at_most(self._numbers, self._timestamps, partitions, timestamps)
        end = self._interpolate(before, self._timestamps, self._ends, timestamps)
        lag = np.where(self._ends[before] > offsets, np.maximum(end - offsets, 0), 0)
        return np.where(before == UNKNOWN, UNKNOWN, lag)

    def reached(self, partitions: Ints, offsets: Ints) -> Ints:
        """Return when each offset was last the log end offset, in ms since the epoch: later records came afterwards.

        UNKNOWN if all recorded log end offsets are greater than the offset.
        """
        before = last_at_most(self._numbers, self._ends, partitions, offsets)
        instants = self._interpolate(before, self._ends, self._timestamps, offsets)
        return np.where(before == UNKNOWN, UNKNOWN, instants)

    def were_reached(self, partitions: Ints, offsets: Ints) -> npt.NDArray[np.bool_]:
        """Return which offsets had reached the log end offset that was recorded before the newest."""
        previous = self._newest[partitions] - 1
        same_partition = (previous >= 0) & (self._numbers[previous] == partitions)
        reached: npt.NDArray[np.bool_] = same_partition & (self._ends[previous] <= offsets)
        return reached

    def _interpolate(self, before: Ints, inputs: Ints, outputs: Ints, points: Ints) -> Ints:
        """Return `outputs` at the points of `inputs`, interpolated from the record `before` to the next one."""
        after = np.minimum(before + 1, self._newest[self._numbers[before]])
        fraction = (points - inputs[before]) / np.maximum(inputs[after] - inputs[before], 1)
        change: Ints = ((outputs[after] - outputs[before]) * np.clip(fraction, 0, 1)).astype(np.int64)
        return change + outputs[before]
