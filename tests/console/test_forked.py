"""Processes in the background: one at a time, and those for which a visitor waits first."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from offsetlake.errors import OffsetlakeError
from offsetlake.web.console import forked
from support.console.forked_answers import answer

pytestmark = pytest.mark.slow


def started(path: Path) -> list[str]:
    return path.read_text(encoding="ascii").splitlines() if path.exists() else []


def wait_for(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    while not condition():
        waiting.wait(0.01)


def test_an_awaited_process_ends_one_that_nobody_awaits_which_starts_again(tmp_path: Path) -> None:
    path, may_end = tmp_path / "started", tmp_path / "end"
    report = {"name": "report", "started": str(path), "may_end": str(may_end)}
    visit = {"name": "visit", "started": str(path), "may_end": ""}
    with ThreadPoolExecutor(2) as threads:
        reported = threads.submit(forked.run_in_background, answer, report, "", is_awaited=False)
        wait_for(lambda: started(path) == ["report"])
        name, niceness = threads.submit(forked.run_in_background, answer, visit, "", is_awaited=True).result()
        wait_for(lambda: started(path) == ["report", "visit", "report"])
        was_done = reported.done()
        may_end.touch()
        assert reported.result()[0] == "report"
    assert (name, niceness > os.nice(0), was_done) == ("visit", True, False)


def test_one_that_nobody_awaits_runs_after_all_that_are_awaited(tmp_path: Path) -> None:
    path, may_end = tmp_path / "started", tmp_path / "end"

    def submitted(name: str, *, is_awaited: bool) -> Future[tuple[str, int]]:
        request = {"name": name, "started": str(path), "may_end": str(may_end)}
        return threads.submit(forked.run_in_background, answer, request, "", is_awaited=is_awaited)

    with ThreadPoolExecutor(3) as threads:
        every = [submitted("first", is_awaited=True)]
        wait_for(lambda: started(path) == ["first"])
        every += [submitted("report", is_awaited=False), submitted("second", is_awaited=True)]
        wait_for(lambda: forked._TURNS._awaited == 2)
        may_end.touch()
        assert [each.result()[0] for each in every] == ["first", "report", "second"]
    assert started(path) == ["first", "second", "report"]


def test_a_process_that_ends_without_an_answer_is_an_error(tmp_path: Path) -> None:
    request = {"name": "any", "started": str(tmp_path / "no folder" / "file"), "may_end": ""}
    with pytest.raises(OffsetlakeError, match="answer ended with code 1"):
        forked.run_in_background(answer, request, "", is_awaited=True)
