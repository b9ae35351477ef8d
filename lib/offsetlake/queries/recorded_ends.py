"""The recorded log end offsets up to an ingest, read as far back as the lags of given commits depend on them."""

import numpy as np

from offsetlake.lake.history.history_files import ALL_RUNS
from offsetlake.lake.lake import Lake
from offsetlake.lake.log_ends import newest_asked, rows_until
from offsetlake.rules.lag.consumer_status import MIN_OBSERVATIONS
from offsetlake.rules.lag.ends import UNKNOWN, Ends
from offsetlake.rules.lag.windows import Windows
from offsetlake.util.row_codes import Ints


class RecordedEnds:
    """Reads log end offsets from the table `log_ends`, at first none, and further back for older commits."""

    def __init__(self, lake: Lake, run: int) -> None:
        """Remember what to read: the offsets that were recorded up to the ingest `run`."""
        self._lake, self._run = lake, run
        self._ends: Ends | None = None
        self._first_run = ALL_RUNS  # of what was read; 0: all
        self._first_ms = self._last_ms = 0

    def for_windows(self, windows: Windows, ends: Ints) -> Ends:
        """Return log end offsets from which the lags of these windows follow as from all that were ever recorded.

        Args:
            windows: The newest commits of some keys.
            ends: The current log end offset of the partition of each key; UNKNOWN if it has none.

        """
        exists = ends != UNKNOWN
        oldest = np.minimum.reduceat(windows.timestamps, windows.starts)
        recorded = self._ends or self._read(min(oldest[exists].tolist(), default=ALL_RUNS))
        while self._first_run and self._lacks(recorded, windows, ends, oldest):
            further = min(2 * self._first_ms - self._last_ms, self._first_ms) - 1  # twice as far back
            recorded = self._read(min(*oldest[exists].tolist(), further))
        return recorded

    @staticmethod
    def _lacks(recorded: Ends, windows: Windows, ends: Ints, oldest: Ints) -> bool:
        """Check whether a lag depends on something older than what was read; `oldest` is the first commit's time."""
        partitions = recorded.partitions(windows.keys)
        exists = (ends != UNKNOWN) & (partitions != UNKNOWN)
        partitions, committed = partitions[exists], windows.offsets[windows.newest][exists]
        count, first = recorded.observations(partitions)
        is_reached = (ends[exists] <= committed) | (recorded.reached(partitions, committed) != UNKNOWN)
        is_enough = (oldest[exists] >= first) & (count >= MIN_OBSERVATIONS) & is_reached
        return bool((~is_enough & ~recorded.are_complete(partitions)).any())

    def _read(self, instant_ms: int) -> Ends:
        """Read what was recorded from the last complete record at an instant on; more if that is nothing new."""
        rows = rows_until(self._lake, min(newest_asked(self._lake, instant_ms) or 0, self._run), self._run)
        observed = rows.observed()
        if rows.first and (rows.first >= self._first_run or not observed.num_rows):  # a clock was set back, or all gone
            rows = rows_until(self._lake, 0, self._run)
            observed = rows.observed()
        timestamps = observed["asked_timestamp"].to_numpy()
        self._first_ms, self._last_ms = int(timestamps.min()), int(timestamps.max())
        self._first_run, self._ends = rows.first, Ends(observed)
        return self._ends
