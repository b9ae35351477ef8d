"""Evaluates the status of consumers from their newest commits alone, without a threshold, by the rules of Burrow.

The rules are those of LinkedIn's Burrow: "Consumer Lag Evaluation Rules" in its wiki, and
`core/internal/evaluator/caching.go`. A window contains the newest commits of a group in a partition. The first
condition that is true determines the status of the window:

| status | condition |
|--------|-----------|
| BEYOND_END | The committed offset is greater than the log end offset: the partition lost records, or was recreated. |
| DELETED_BEFORE_READ | The committed offset is less than the log start offset: unread records were deleted. |
| OK     | The lag is zero now. |
| STOP   | The newest commit is older than the window is long, and the consumer had not recently reached the log end. |
| REWIND | The committed offset decreased, and has not reached its former value again. |
| OK     | At least one commit had no lag. |
| STALL  | All commits have the same offset. |
| WARN   | No commit had less lag than the commit before it: the consumer progresses, but its lag does not decrease. |
| OK     | Otherwise: the consumer has lag, and its lag decreased at least once. |

An unknown lag makes no condition true. WARN, STOP, STALL and REWIND need at least MIN_COMMITS commits in the window and
MIN_OBSERVATIONS observations of the log end offset; otherwise the status is UNKNOWN.

BEYOND_END, DELETED_BEFORE_READ and NO_COMMIT are not statuses of Burrow. They do not depend on earlier commits: a
consumer that fetches there has to apply its reset policy (`auto.offset.reset`), which no log contains. NO_COMMIT is the
status of a partition that a member of the group is assigned or subscribed to, and that has no committed offset; such a
partition has no window.

Differences from Burrow:
* Burrow compares commits with log end offsets that are some seconds old. Here, log end offsets are recorded once per
  cycle (`offsetlake.rules.lag.ends`).
* "Recently reached the log end" means one of the last ten log end offsets in Burrow. Here, it means the log end offset
  that was recorded before the newest, one cycle earlier.
* If the committed offset decreased several times, it must have reached its former value again after each time.
* A window with fewer than two known lags shows no trend and is not WARN: in the first cycle of a lake, no lag is known.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from offsetlake.rules.lag.ends import UNKNOWN
from offsetlake.rules.lag.windows import Windows
from offsetlake.util.row_codes import Ints


class LagStatus(IntEnum):
    """The statuses from the best to the worst, in Burrow's order: a group has the status of its worst partition."""

    OK = 0
    UNKNOWN = 1
    NO_COMMIT = 2
    WARN = 3
    STOP = 4
    STALL = 5
    REWIND = 6
    DELETED_BEFORE_READ = 7
    BEYOND_END = 8


STATUSES = tuple(status.name for status in LagStatus)
"""The names of the statuses, by their number."""

ALARMS = tuple(status.name for status in LagStatus if status > LagStatus.UNKNOWN)

_OF_BURROW = (LagStatus.WARN, LagStatus.STOP, LagStatus.STALL, LagStatus.REWIND)

MIN_COMMITS = 2
"""Commits that an alarm of Burrow needs: its rules compare the newest with the oldest, or one with the one before."""

MIN_OBSERVATIONS = 2
"""Observations of the log end offset that such an alarm needs: the lag of commits before the first one is unknown."""


@dataclass(frozen=True, slots=True)
class CurrentLags:
    """The present state of the consumer of each window: arrays with one element per window.

    | Field        | Type  | Description |
    |--------------|-------|-------------|
    | lags         | int64 | the present lag; negative if the committed offset is beyond the log end |
    | deleted      | int64 | the number of records between the committed offset and the log start |
    | instants     | int64 | the instant that the status is evaluated at, in ms since the epoch |
    | reached      | bool  | whether the consumer had recently reached the log end |
    | observations | int64 | the number of observations of the log end offset so far |
    """

    lags: Ints
    deleted: Ints
    instants: Ints
    reached: npt.NDArray[np.bool_]
    observations: Ints


def evaluate(windows: Windows, lags: Ints, current: CurrentLags) -> Ints:
    """Return the `LagStatus` of each window; `lags` has one element per commit, `ends.UNKNOWN` if not known."""
    starts, newest = windows.starts, windows.newest
    offsets, timestamps = windows.offsets, windows.timestamps
    silent = current.instants - timestamps[newest] > timestamps[newest] - timestamps[starts]
    highest, lowest = np.maximum.reduceat(offsets, starts), np.minimum.reduceat(offsets, starts)
    rules = [
        (current.lags < 0, LagStatus.BEYOND_END),
        (current.deleted > 0, LagStatus.DELETED_BEFORE_READ),
        (current.lags == 0, LagStatus.OK),
        (silent & ~current.reached, LagStatus.STOP),
        (offsets[newest] < highest, LagStatus.REWIND),
        (np.logical_or.reduceat(lags == 0, starts), LagStatus.OK),
        (lowest == highest, LagStatus.STALL),
        (_never_catches_up(windows, lags), LagStatus.WARN),
    ]
    conditions, statuses = zip(*rules, strict=True)
    status: Ints = np.select(conditions, statuses, LagStatus.OK)
    too_few = (windows.counts < MIN_COMMITS) | (current.observations < MIN_OBSERVATIONS)
    return np.where(too_few & np.isin(status, _OF_BURROW), LagStatus.UNKNOWN, status)


def _never_catches_up(windows: Windows, lags: Ints) -> npt.NDArray[np.bool_]:
    """Return which windows have at least two known lags, none of them less than the known lag before it."""
    known = lags != UNKNOWN
    window, lag = windows.numbers[known], lags[known]
    same_window = window[1:] == window[:-1]
    has_two, has_smaller = np.zeros((2, len(windows.counts)), np.bool_)
    has_two[window[1:][same_window]] = True
    has_smaller[window[1:][same_window & (lag[1:] < lag[:-1])]] = True
    return has_two & ~has_smaller
