"""Compares the status with the examples of Burrow's wiki and tests, and with an evaluation in plain Python."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.rules.lag.consumer_status import STATUSES, CurrentLags, evaluate
from offsetlake.rules.lag.windows import Windows


class Window(NamedTuple):
    """Commits, the oldest first: offsets, times in s, lags (None: unknown); and the present state of the consumer."""

    offsets: Sequence[int]
    times: Sequence[int]
    lags: Sequence[int | None]
    lag: int
    now: int
    reached: bool = False
    observations: int = 2
    deleted: int = 0


def statuses(windows: Sequence[Window]) -> list[str]:
    def numbers(name: str) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        return np.array([-1 if value is None else value for window in windows for value in getattr(window, name)])

    commits = Windows(
        pa.table({"group_id": [""] * len(windows)}),
        np.array([len(window.offsets) for window in windows]),
        numbers("offsets"),
        numbers("times") * 1000,
    )
    current = CurrentLags(
        np.array([window.lag for window in windows]),
        np.array([window.deleted for window in windows]),
        np.array([window.now * 1000 for window in windows]),
        np.array([window.reached for window in windows]),
        np.array([window.observations for window in windows]),
    )
    return [STATUSES[number] for number in evaluate(commits, numbers("lags"), current)]


# --- the wiki, "Consumer Lag Evaluation Rules": one commit per minute, evaluated half a minute after the last ---

MINUTES = range(0, 600, 60)
RISING = range(10, 101, 10)
GROWING = (1, 1, 1, 1, 1, 2, 2, 2, 3, 3)

WIKI = {
    "example 1: one lag of zero in the window": (Window(RISING, MINUTES, (0, 0, 0, 0, 0, 0, 1, 3, 5, 5), 5, 570), "OK"),
    "example 2: commits without progress": (Window([10] * 10, MINUTES, GROWING, 3, 570), "STALL"),
    "example 3: progress with growing lag": (Window(RISING, MINUTES, GROWING, 3, 570), "WARN"),
    "example 4: lag decreased at times": (Window(RISING, MINUTES, (5, 3, 5, 2, 1, 2, 2, 4, 4, 6), 6, 570), "OK"),
    "rule 2: constant lag without progress": (Window([10] * 10, MINUTES, [4] * 10, 4, 570), "STALL"),
    "rule 3: constant lag with progress": (Window(RISING, MINUTES, [4] * 10, 4, 570), "WARN"),
    "rule 4: no commit for longer than the window": (Window(RISING, MINUTES, GROWING, 3, 1081), "STOP"),
    "rule 4: no commit for exactly as long as the window": (Window(RISING, MINUTES, GROWING, 3, 1080), "WARN"),
    "rule 4: no commit, but no lag": (Window(RISING, MINUTES, GROWING, 0, 1081), "OK"),
}  # fmt: skip

# --- Burrow's tests in `caching_test.go`, by their number there ---

FIVE, HUNDREDS = range(1000, 5001, 1000), range(100, 501, 100)
FROM_ZERO, FROM_FIFTY = (0, 50, 100, 150, 200), (50, 100, 150, 200, 250)
TO_NOW = (1512224618, 1512224632)  # one commit per second, each at the log end
AT_THE_END = Window(range(792748079, 792748094), range(TO_NOW[0], TO_NOW[1] + 1), [0] * 15, 931, 1512224650)
HALF_KNOWN = [lag for known in FROM_ZERO for lag in (known, None)]

TESTS = {
    "0: one lag of zero": (Window(FIVE, HUNDREDS, FROM_ZERO, 200, 600), "OK"),
    "1: no commit for exactly as long as the window": (Window(FIVE, HUNDREDS, FROM_ZERO, 200, 900), "OK"),
    "2: stopped, with a lag of zero in the window": (Window(FIVE, HUNDREDS, FROM_ZERO, 200, 1000), "STOP"),
    "3: stopped, without a lag of zero": (Window(FIVE, HUNDREDS, FROM_FIFTY, 250, 1000), "STOP"),
    "4: no progress, with a lag of zero in the window": (Window([1000] * 5, HUNDREDS, FROM_ZERO, 200, 600), "OK"),
    "5: no progress, growing lag": (Window([1000] * 5, HUNDREDS, (100, 150, 200, 250, 300), 300, 600), "STALL"),
    "6: no progress, constant lag": (Window([1000] * 5, HUNDREDS, [100] * 5, 100, 600), "STALL"),
    "7: decreased, then exceeded its former value": (
        Window((1000, 2000, 3000, 2000, 4000), HUNDREDS, (100, 150, 200, 1250, 300), 300, 600), "OK",
    ),
    "8: no lag now": (Window(FIVE, HUNDREDS, FROM_FIFTY, 0, 1000), "OK"),
    "9: stopped, with new records in the partition": (AT_THE_END, "STOP"),
    "10: no commit, but recently at the log end": (AT_THE_END._replace(lag=1, reached=True), "OK"),
    "11: unknown lags": (Window(range(1000, 5501, 500), range(100, 551, 50), HALF_KNOWN, 200, 600), "OK"),
}  # fmt: skip

# --- rules of Burrow's present code, which checks for rewinds right after stops, and the differences from Burrow ---

OTHERS = {
    "rewind after a lag of zero": (Window((5, 6, 1), (0, 9, 18), (0, 0, 5), 6, 20), "REWIND"),
    "rewind that has reached its former value again": (Window((5, 6, 1, 6), (0, 9, 18, 27), (1, 1, 6, 1), 6, 28), "OK"),
    "two rewinds, of which one has not": (Window((5, 9, 3, 9, 7), (0, 9, 18, 27, 36), [4] * 5, 6, 37), "REWIND"),
    "stopped after a rewind": (Window((5, 6, 1), (0, 9, 18), (1, 1, 6), 6, 37), "STOP"),
    "no commit, but recently at the log end": (Window((5, 6, 7), (0, 9, 18), (1, 1, 1), 6, 37, reached=True), "WARN"),
    "a single commit": (Window([5], [0], [1], 1, 1), "UNKNOWN"),
    "a single commit long ago": (Window([5], [0], [None], 1, 86_400), "UNKNOWN"),
    "a single commit just now": (Window([5], [0], [1], 1, 0), "UNKNOWN"),
    "a single commit without lag": (Window([5], [0], [0], 1, 0), "OK"),
    "two commits": (Window([5, 6], [0, 9], [1, 1], 1, 19), "STOP"),
    "a single observation of the log end": (
        Window((5, 6, 1), (0, 9, 18), [None] * 3, 6, 37, observations=1), "UNKNOWN",
    ),
    "a single observation, without lag": (Window((5, 6), (0, 9), [None] * 2, 0, 37, observations=1), "OK"),
    "no known lag": (Window((5, 6), (0, 9), (None, None), 1, 10), "OK"),
    "one known lag": (Window((5, 6), (0, 9), (None, 3), 1, 10), "OK"),
    "two known lags, with an unknown one between": (Window((5, 6, 7), (0, 9, 18), (3, None, 4), 1, 19), "WARN"),
    "committed offset beyond the log end": (Window((5, 4), (0, 9), (0, 0), -3, 99), "BEYOND_END"),
    "a single commit beyond the log end": (Window([5], [0], [None], -1, 99, observations=1), "BEYOND_END"),
    "records deleted before they were read": (Window((5, 6), (0, 9), (0, 0), 3, 10, deleted=2), "DELETED_BEFORE_READ"),
    "all records deleted before they were read": (
        Window([5], [0], [None], 0, 10, observations=1, deleted=60), "DELETED_BEFORE_READ",
    ),
}  # fmt: skip


EXAMPLES = WIKI | TESTS | OTHERS


@pytest.mark.parametrize(("window", "status"), EXAMPLES.values(), ids=EXAMPLES)
def test_window_of_an_example_has_its_status(window: Window, status: str) -> None:
    assert statuses([window]) == [status]


# --- an evaluation of one window, rule by rule ---


def by_rules(window: Window) -> str:
    """Return the status: an alarm needs two commits and two observations of the log end offset."""
    if window.lag < 0:
        return "BEYOND_END"
    if window.deleted:
        return "DELETED_BEFORE_READ"
    status = by_burrow(window)
    enough = len(window.offsets) > 1 and window.observations > 1
    return status if status == "OK" or enough else "UNKNOWN"


def by_burrow(window: Window) -> str:  # noqa: PLR0911 - one return per rule
    offsets, times = window.offsets, window.times
    if window.lag == 0:
        return "OK"
    if window.now - times[-1] > times[-1] - times[0] and not window.reached:
        return "STOP"
    for number, offset in enumerate(offsets[:-1], 1):
        if offsets[number] < offset and all(later < offset for later in offsets[number:]):
            return "REWIND"
    if any(lag == 0 for lag in window.lags):
        return "OK"
    if len(set(offsets)) == 1:
        return "STALL"
    known = [lag for lag in window.lags if lag is not None]
    if len(known) > 1 and all(lag <= later for lag, later in pairwise(known)):
        return "WARN"
    return "OK"


@st.composite
def windows(draw: st.DrawFn) -> Window:
    size = draw(st.integers(1, 5))

    def values(elements: st.SearchStrategy[int | None]) -> list[int]:
        return draw(st.lists(elements, min_size=size, max_size=size))  # type: ignore[arg-type]

    times = sorted(values(st.integers(0, 9)))
    offsets, lags = values(st.integers(0, 3)), values(st.none() | st.integers(0, 4))
    now = draw(st.integers(times[-1], 20))
    observations = draw(st.integers(0, 3))
    return Window(
        offsets, times, lags, draw(st.integers(-1, 3)), now, draw(st.booleans()), observations, draw(st.integers(0, 1))
    )


@given(st.lists(windows(), min_size=1, max_size=4))
def test_windows_are_evaluated_independently(drawn: list[Window]) -> None:
    assert statuses(drawn) == [by_rules(window) for window in drawn]
