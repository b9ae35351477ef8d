"""What is said of long work: how much of it is done, and about how long the rest takes."""

from collections.abc import Callable, Sequence

import pytest

from offsetlake.cli import output
from offsetlake.cli.output import Progress
from offsetlake.util.amounts import progress_text


@pytest.mark.parametrize(
    ("done", "total", "seconds", "says"),
    [
        (12_000_000, 22_500_000, 23.0, "12.0 of 22.5 M records, about 20 s left"),
        (0, 22_500_000, 1.0, "0.0 of 22.5 M records"),
        (22_500_000, 22_500_000, 40.0, "22.5 of 22.5 M records"),
        (1_500, 10_000, 30.0, "1.5 of 10.0 k records, about 3 min left"),
        (3, 12, 6.0, "3 of 12 records, about 18 s left"),
    ],
)
def test_progress_is_told_in_words(done: int, total: int, seconds: float, says: str) -> None:
    assert progress_text(done, total, seconds) == says


def test_long_work_is_told_line_by_line_where_standard_error_is_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(output.time, "monotonic", lambda: now)
    with Progress(quiet=True) as progress:
        progress.say("asking changes")
        for now in (101.9, 102.0, 103.0, 112.5, 120.0):
            progress.advance(int(now - 100), 20)
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "    2.0 s  asking changes: 2 of 20 records, about 18 s left",
        "   12.5 s  asking changes: 12 of 20 records, about 8 s left",
    ]


def test_a_question_that_takes_long_says_what_is_under_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[FakeTimer] = []
    monkeypatch.setattr(output.threading, "Timer", lambda *of: timers.append(FakeTimer(*of)) or timers[-1])
    with Progress(quiet=True) as progress:
        progress.say("running the query")
        timers[-1].fire()
        assert capsys.readouterr().err.endswith("s  running the query\n")
        progress.say("sorting the rows")
        assert timers[-1].seconds == 2.0
    timers[-1].fire()
    assert capsys.readouterr().err == "", "it took less than two seconds"


class FakeTimer:
    """A timer that fires when the test says so."""

    def __init__(self, seconds: float, function: Callable[..., None], arguments: Sequence[str] = ()) -> None:
        self.seconds, self._function, self._arguments = seconds, function, arguments
        self.daemon, self._is_cancelled = False, False

    def start(self) -> None:
        """Do nothing: `fire` says when the time is over."""

    def cancel(self) -> None:
        self._is_cancelled = True

    def fire(self) -> None:
        if not self._is_cancelled:
            self._function(*self._arguments)
