"""Burrow's rules: the examples of its wiki and of its own tests worked by hand, and a judge in plain Python."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.rules.consumer_status import STATUSES, Present, judged
from offsetlake.rules.windows import Windows


class Window(NamedTuple):
    """Commits, oldest first: offsets, times in s, lags (None: not known); and what is known now."""

    offsets: Sequence[int]
    times: Sequence[int]
    lags: Sequence[int | None]
    lag: int
    now: int
    reached: bool = False
    observations: int = 2


def statuses(windows: Sequence[Window]) -> list[str]:
    def numbers(of: str) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        return np.array([-1 if value is None else value for window in windows for value in getattr(window, of)])

    commits = Windows(
        pa.table({"group_id": [""] * len(windows)}),
        np.array([len(window.offsets) for window in windows]),
        numbers("offsets"),
        numbers("times") * 1000,
    )
    present = Present(
        np.array([window.lag for window in windows]),
        np.array([window.now * 1000 for window in windows]),
        np.array([window.reached for window in windows]),
        np.array([window.observations for window in windows]),
    )
    return [STATUSES[number] for number in judged(commits, numbers("lags"), present)]


# --- the wiki, "Consumer Lag Evaluation Rules": a commit a minute, the first at T = 0, judged half a minute later ---

MINUTES = range(0, 600, 60)
RISING = range(10, 101, 10)
GROWING = (1, 1, 1, 1, 1, 2, 2, 2, 3, 3)

WIKI = {
    "example 1: a lag of none in the window": (Window(RISING, MINUTES, (0, 0, 0, 0, 0, 0, 1, 3, 5, 5), 5, 570), "OK"),
    "example 2: commits, and does not move": (Window([10] * 10, MINUTES, GROWING, 3, 570), "STALL"),
    "example 3: moves, and falls behind": (Window(RISING, MINUTES, GROWING, 3, 570), "WARN"),
    "example 4: caught up for a part": (Window(RISING, MINUTES, (5, 3, 5, 2, 1, 2, 2, 4, 4, 6), 6, 570), "OK"),
    "rule 2: a lag that stays is no better": (Window([10] * 10, MINUTES, [4] * 10, 4, 570), "STALL"),
    "rule 3: the same of one that moves": (Window(RISING, MINUTES, [4] * 10, 4, 570), "WARN"),
    "rule 4: silent for longer than the window": (Window(RISING, MINUTES, GROWING, 3, 1081), "STOP"),
    "rule 4: for as long as the window": (Window(RISING, MINUTES, GROWING, 3, 1080), "WARN"),
    "rule 4: but at the end of the partition": (Window(RISING, MINUTES, GROWING, 0, 1081), "OK"),
}  # fmt: skip

# --- its tests, `caching_test.go`, by their numbers there ---

FIVE, HUNDREDS = range(1000, 5001, 1000), range(100, 501, 100)
FROM_NONE, FROM_SOME = (0, 50, 100, 150, 200), (50, 100, 150, 200, 250)
TO_NOW = (1512224618, 1512224632)  # a commit a second, each at the end
AT_THE_END = Window(range(792748079, 792748094), range(TO_NOW[0], TO_NOW[1] + 1), [0] * 15, 931, 1512224650)
HALF_KNOWN = [lag for known in FROM_NONE for lag in (known, None)]

TESTS = {
    "0: no lag somewhere": (Window(FIVE, HUNDREDS, FROM_NONE, 200, 600), "OK"),
    "1: silent for just as long": (Window(FIVE, HUNDREDS, FROM_NONE, 200, 900), "OK"),
    "2: no lag once is no excuse": (Window(FIVE, HUNDREDS, FROM_NONE, 200, 1000), "STOP"),
    "3: nor is it without": (Window(FIVE, HUNDREDS, FROM_SOME, 250, 1000), "STOP"),
    "4: stands still, and had no lag": (Window([1000] * 5, HUNDREDS, FROM_NONE, 200, 600), "OK"),
    "5: and always had some": (Window([1000] * 5, HUNDREDS, (100, 150, 200, 250, 300), 300, 600), "STALL"),
    "6: always the same": (Window([1000] * 5, HUNDREDS, [100] * 5, 100, 600), "STALL"),
    "7: back, and on beyond where it was": (
        Window((1000, 2000, 3000, 2000, 4000), HUNDREDS, (100, 150, 200, 1250, 300), 300, 600), "OK",
    ),
    "8: has read all by now": (Window(FIVE, HUNDREDS, FROM_SOME, 0, 1000), "OK"),
    "9: silent, and much is new": (AT_THE_END, "STOP"),
    "10: silent, and what is new is new": (AT_THE_END._replace(lag=1, reached=True), "OK"),
    "11: lags that are not known": (Window(range(1000, 5501, 500), range(100, 551, 50), HALF_KNOWN, 200, 600), "OK"),
}  # fmt: skip

# --- what its code says since it looks for rewinds before anything but a stop, and what is different here ---

OTHERS = {
    "a rewind counts though there was no lag before": (Window((5, 6, 1), (0, 9, 18), (0, 0, 5), 6, 20), "REWIND"),
    "until it is made up for": (Window((5, 6, 1, 6), (0, 9, 18, 27), (1, 1, 6, 1), 6, 28), "OK"),
    "each of two has to be": (Window((5, 9, 3, 9, 7), (0, 9, 18, 27, 36), [4] * 5, 6, 37), "REWIND"),
    "a stop comes first": (Window((5, 6, 1), (0, 9, 18), (1, 1, 6), 6, 37), "STOP"),
    "not of one that lately had read all": (Window((5, 6, 7), (0, 9, 18), (1, 1, 1), 6, 37, reached=True), "WARN"),
    "a single commit raises no alarm": (Window([5], [0], [1], 1, 1), "UNKNOWN"),
    "however long ago it was": (Window([5], [0], [None], 1, 86_400), "UNKNOWN"),
    "nor while it is new": (Window([5], [0], [1], 1, 0), "UNKNOWN"),
    "it is enough for no alarm": (Window([5], [0], [0], 1, 0), "OK"),
    "two commits are compared": (Window([5, 6], [0, 9], [1, 1], 1, 19), "STOP"),
    "one end on record raises no alarm": (
        Window((5, 6, 1), (0, 9, 18), [None] * 3, 6, 37, observations=1), "UNKNOWN",
    ),
    "nor where it is reached": (Window((5, 6), (0, 9), [None] * 2, 0, 37, observations=1), "OK"),
    "without lags there is no trend": (Window((5, 6), (0, 9), (None, None), 1, 10), "OK"),
    "nor with one": (Window((5, 6), (0, 9), (None, 3), 1, 10), "OK"),
    "two show one, whatever is between": (Window((5, 6, 7), (0, 9, 18), (3, None, 4), 1, 19), "WARN"),
    "beyond the end nothing is left either": (Window((5, 4), (0, 9), (0, 0), -3, 99), "OK"),
}  # fmt: skip


@pytest.mark.parametrize(("window", "status"), [*WIKI.values(), *TESTS.values(), *OTHERS.values()])
def test_a_window_is_judged_as_by_hand(window: Window, status: str) -> None:
    assert statuses([window]) == [status]


# --- a judge that looks at one window, rule by rule ---


def by_rules(window: Window) -> str:
    """An alarm compares a commit with one before it, at a log end of which more than one value is on record."""
    status = by_burrow(window)
    enough = len(window.offsets) > 1 and window.observations > 1
    return status if status == "OK" or enough else "UNKNOWN"


def by_burrow(window: Window) -> str:  # noqa: PLR0911 - a rule after the other
    offsets, times = window.offsets, window.times
    if window.lag <= 0:
        return "OK"
    if window.now - times[-1] > times[-1] - times[0] and not window.reached:
        return "STOP"
    for at, offset in enumerate(offsets[:-1]):
        if offsets[at + 1] < offset and all(later < offset for later in offsets[at + 1 :]):
            return "REWIND"
    if any(lag == 0 for lag in window.lags):
        return "OK"
    if len(set(offsets)) == 1:
        return "STALL"
    known = [lag for lag in window.lags if lag is not None]
    if len(known) > 1 and all(known[at] <= known[at + 1] for at in range(len(known) - 1)):
        return "WARN"
    return "OK"


@st.composite
def a_window(draw: st.DrawFn) -> Window:
    size = draw(st.integers(1, 5))

    def some(values: st.SearchStrategy[int | None]) -> list[int]:
        return draw(st.lists(values, min_size=size, max_size=size))  # type: ignore[arg-type]

    times = sorted(some(st.integers(0, 9)))
    offsets, lags = some(st.integers(0, 3)), some(st.none() | st.integers(0, 4))
    now = draw(st.integers(times[-1], 20))
    observations = draw(st.integers(0, 3))
    return Window(offsets, times, lags, draw(st.integers(-1, 3)), now, draw(st.booleans()), observations)


@given(st.lists(a_window(), min_size=1, max_size=4))
def test_windows_side_by_side_are_judged_each_by_itself(windows: list[Window]) -> None:
    assert statuses(windows) == [by_rules(window) for window in windows]
