"""Progress of slow steps: the part that is done, and an estimate of the remaining time."""

from collections.abc import Callable, Sequence

import pytest

from offsetlake.cli import progress as progress_module
from offsetlake.cli.progress import Progress
from offsetlake.util.amounts import progress_text


@pytest.mark.parametrize(
    ("done", "total", "seconds", "text"),
    [
        (12_000_000, 22_500_000, 23.0, "12.0 of 22.5 M records, about 20 s left"),
        (0, 22_500_000, 1.0, "0.0 of 22.5 M records"),
        (22_500_000, 22_500_000, 40.0, "22.5 of 22.5 M records"),
        (1_500, 10_000, 30.0, "1.5 of 10.0 k records, about 3 min left"),
        (3, 12, 6.0, "3 of 12 records, about 18 s left"),
    ],
)
def test_progress_text_has_amount_and_remaining_time(done: int, total: int, seconds: float, text: str) -> None:
    assert progress_text(done, total, seconds) == text


def test_slow_step_writes_lines_if_standard_error_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now)
    with Progress(quiet=True) as progress:
        progress.say("querying changes")
        for now in (101.9, 102.0, 103.0, 112.5, 120.0):
            progress.advance(int(now - 100), 20)
    assert capsys.readouterr().err.splitlines() == [
        "    2.0 s  querying changes: 2 of 20 records, about 18 s left",
        "   12.5 s  querying changes: 12 of 20 records, about 8 s left",
    ]


def test_quiet_progress_writes_only_steps_of_more_than_two_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[FakeTimer] = []
    monkeypatch.setattr(
        progress_module.threading, "Timer", lambda *arguments: timers.append(FakeTimer(*arguments)) or timers[-1]
    )
    with Progress(quiet=True) as progress:
        progress.say("running the query")
        timers[-1].fire()
        assert capsys.readouterr().err.endswith("s  running the query\n")
        progress.say("sorting the rows")
        assert timers[-1].seconds == 2.0
    timers[-1].fire()
    assert capsys.readouterr().err == "", "the step took less than two seconds"


class FakeTimer:
    """A timer that fires when the test calls `fire`."""

    def __init__(self, seconds: float, function: Callable[..., None], arguments: Sequence[str] = ()) -> None:
        self.seconds, self._function, self._arguments = seconds, function, arguments
        self.daemon, self._is_cancelled = False, False

    def start(self) -> None:
        """Do nothing: the test calls `fire`."""

    def cancel(self) -> None:
        self._is_cancelled = True

    def fire(self) -> None:
        if not self._is_cancelled:
            self._function(*self._arguments)
