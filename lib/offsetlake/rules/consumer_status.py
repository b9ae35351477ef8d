"""How consumers do, judged from their newest commits alone, without a threshold: the evaluation rules of Burrow.

After LinkedIn's Burrow: "Consumer Lag Evaluation Rules" in its wiki, and `core/internal/evaluator/caching.go`. A window
is the newest commits of a group in a partition. The first line that fits gives its status:

| status | where |
|--------|-------|
| OK     | nothing is left to be read now |
| STOP   | the newest commit is longer ago than the window is long; unless it lately stood at the end |
| REWIND | the consumer went back, and is not yet again where it was |
| OK     | some commit had no lag |
| STALL  | all commits say the same offset |
| WARN   | no commit had less lag than the one before it: the consumer moves, and falls behind |
| OK     | it is behind, and was catching up |

A lag that is not known says nothing. Where an alarm fits (WARN, STOP, STALL, REWIND), the status is UNKNOWN instead if
the window has fewer than MIN_COMMITS commits, the number that each rule compares, or if the log end was observed fewer
than MIN_OBSERVATIONS times: whether the consumer was behind when it committed is then unknown. What is different here:
* Burrow knows lags by ends some seconds old; here they are recorded once a cycle (`offsetlake.rules.ends`).
* Lately is, of the ends Burrow has, any of the last ten; here it is the one recorded before the newest: a cycle.
* Of several times a consumer went back, it must have made up for each.
* A window without two known lags shows no trend, and is no WARN: in a lake's first cycle no lag is known.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offsetlake.rules.ends import UNKNOWN
from offsetlake.rules.windows import Windows
from offsetlake.util.row_codes import Ints

STATUSES = ("OK", "UNKNOWN", "WARN", "STOP", "STALL", "REWIND")
"""From the best to the worst, in Burrow's order: a group is as its worst partition."""

OK, TOO_FEW, WARN, STOP, STALL, REWIND = range(len(STATUSES))

ALARMS = STATUSES[WARN:]

MIN_COMMITS = 2
"""Commits an alarm requires: Burrow's rules compare the newest commit with the oldest, or each with the one before."""

MIN_OBSERVATIONS = 2
"""Observations of the log end an alarm requires: of commits before the first, no lag is known."""


@dataclass(frozen=True, slots=True)
class Present:
    """What is known of each window now.

    | field        | is |
    |--------------|----|
    | lags         | the lag |
    | instants     | the instant evaluated for, ms since the epoch |
    | reached      | whether it lately had no lag |
    | observations | how often the log end was observed up to now |
    """

    lags: Ints
    instants: Ints
    reached: npt.NDArray[np.bool_]
    observations: Ints


def judged(windows: Windows, lags: Ints, present: Present) -> Ints:
    """Give the status of each window, as its place in STATUSES; `lags` has one a commit, UNKNOWN where it is not."""
    starts, newest = windows.starts, windows.newest
    offsets, timestamps = windows.offsets, windows.timestamps
    silent = present.instants - timestamps[newest] > timestamps[newest] - timestamps[starts]
    highest, lowest = np.maximum.reduceat(offsets, starts), np.minimum.reduceat(offsets, starts)
    rules = [
        (present.lags <= 0, OK),
        (silent & ~present.reached, STOP),
        (offsets[newest] < highest, REWIND),
        (np.logical_or.reduceat(lags == 0, starts), OK),
        (lowest == highest, STALL),
        (_falls_behind(windows, lags), WARN),
    ]
    holds, statuses = zip(*rules, strict=True)
    status: Ints = np.select(holds, statuses, OK)
    too_few = (windows.counts < MIN_COMMITS) | (present.observations < MIN_OBSERVATIONS)
    return np.where(too_few & (status > TOO_FEW), TOO_FEW, status)


def _falls_behind(windows: Windows, lags: Ints) -> npt.NDArray[np.bool_]:
    """Tell of which windows no lag known is smaller than the one known before it."""
    known = lags != UNKNOWN
    window, lag = windows.numbers[known], lags[known]
    follows = window[1:] == window[:-1]
    some, smaller = np.zeros((2, len(windows.counts)), np.bool_)
    some[window[1:][follows]] = True
    smaller[window[1:][follows & (lag[1:] < lag[:-1])]] = True
    return some & ~smaller
