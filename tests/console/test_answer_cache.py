"""Answers are computed once for all who ask, dropped by size, and never delay a page."""

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offsetlake.lake.lake import Lake
from offsetlake.queries import questions
from offsetlake.util.times import to_iso
from offsetlake.web.console import answer_cache, answers
from offsetlake.web.console.answer_cache import AnswerCache
from offsetlake.web.console.background import lag_for_people, listed_groups, listed_groups_at
from support.console.served import get, served
from support.queries.lakes import commit, end, small_lake


def test_equal_questions_have_one_computation() -> None:
    cache, may_end, calls = AnswerCache(), threading.Event(), list[int]()

    def compute() -> int:
        calls.append(1)
        may_end.wait()
        return 7

    with ThreadPoolExecutor(8) as askers:
        asked = [askers.submit(cache.get, ("a",), compute) for _ in range(8)]
        may_end.set()
        assert [future.result() for future in asked] == [7] * 8
    assert cache.get(("a",), compute) == 7
    assert calls == [1]


def test_an_answer_that_fails_many_times_is_computed_again() -> None:
    cache = AnswerCache()

    def fail() -> int:
        raise ValueError

    for _ in range(20):
        with pytest.raises(ValueError):  # noqa: PT011 - it is the one above
            cache.later(("a",), fail)
    assert cache.later(("a",), lambda: 7) == 7


@pytest.mark.parametrize("answer", [lambda number: np.full(50_000, number), lambda number: bytes([number]) * 400_000])
def test_the_answers_used_least_recently_are_dropped_by_size(
    answer: Callable[[int], Sequence[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_cache, "MAX_BYTES", 1_000_000)
    cache, calls = AnswerCache(), list[int]()

    def rows(number: int) -> Sequence[int]:
        calls.append(number)
        return answer(number)  # 400 kB

    for number in (1, 2, 1, 3, 1, 2):
        assert cache.get((number,), lambda number=number: rows(number))[0] == number
    assert calls == [1, 2, 3, 2]


def test_answers_about_all_groups_have_each_topic_and_state_once(tmp_path: Path) -> None:
    names, topic = [f"g{n:03}" for n in range(300)], "t" * 200
    lake = small_lake(
        tmp_path,
        groups=[{"group_id": name, "state": "Stable", "subscribed_topics": [topic, "u"]} for name in names],
        offsets=[
            {"group_id": name, "topic": topic, "partition": 0, "committed_offset": n, "log_offset": n}
            for n, name in enumerate(names)
        ],
        offset_commits=[commit(n, n, group_id=name, topic=topic, log_timestamp=n) for n, name in enumerate(names)],
        log_ends=[end(1, 900, topic=topic, complete_run=1)],
    )
    newest, earlier, lags = listed_groups(lake), listed_groups_at(lake, 199), lag_for_people(lake)
    assert [(row["group_id"], row["state"], row["subscribed_topics"]) for row in newest.to_pylist()] == [
        (name, "Stable", [topic, "u"]) for name in names
    ]
    assert earlier.schema == newest.schema
    assert [(row["group_id"], row["state"]) for row in earlier.to_pylist()] == [(name, "Empty") for name in names[:200]]
    assert {*lags["topic"].to_pylist()} == {topic}
    assert max(newest.nbytes, earlier.nbytes, lags.nbytes) < 20_000


def test_a_failure_is_not_kept() -> None:
    cache = AnswerCache()
    with pytest.raises(ZeroDivisionError):
        cache.get(("a",), lambda: 1 // 0)
    assert cache.get(("a",), lambda: 1) == 1


def test_the_oldest_of_too_many_slow_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_cache, "MAX_WAIT_SECONDS", 0.0)
    cache, may_end, computed = AnswerCache(), threading.Event(), list[int]()

    def compute(number: int) -> int:
        may_end.wait()
        computed.append(number)
        return number

    for number in range(20):
        assert cache.later((number,), lambda number=number: compute(number)) is None
    may_end.set()
    monkeypatch.setattr(answer_cache, "MAX_WAIT_SECONDS", 300.0)
    assert cache.later((19,), lambda: compute(19)) == 19
    assert computed[-8:] == [*range(12, 20)]
    assert len(computed) < 20


def test_an_answer_that_was_dropped_while_it_waited_can_be_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, may_end = AnswerCache(), threading.Event()
    monkeypatch.setattr(answer_cache, "MAX_WAIT_SECONDS", 0.0)
    try:
        for number in (*range(12), 3, *range(12)):  # 11 drops 3
            assert cache.later((number,), lambda number=number: (may_end.wait(), number)[1]) is None
    finally:
        may_end.set()
    monkeypatch.setattr(answer_cache, "MAX_WAIT_SECONDS", 300.0)
    for number in range(12):
        assert cache.later((number,), lambda number=number: number) == number


@pytest.mark.slow
def test_the_page_of_groups_does_not_wait_for_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, may_end = small_lake(tmp_path, offset_commits=[commit(1, 1, log_timestamp=1)]), threading.Event()
    original = questions.groups

    def slowly(opened: Lake, **options: Any) -> object:
        may_end.wait()
        return original(opened, **options)

    monkeypatch.setattr(questions, "groups", slowly)
    monkeypatch.setattr(answer_cache, "MAX_WAIT_SECONDS", 0.0)
    with served(lake.location.path) as port:
        try:
            first = get(port, "/")
            assert (first.status, first.headers["retry-after"]) == (200, "1")
            assert "are being computed" in first.text
        finally:
            may_end.set()
        while "retry-after" in (answer := get(port, "/")).headers:
            assert answer.status == 200
        assert "0 groups" in answer.text


@pytest.mark.slow
def test_charts_of_other_periods_do_not_read_the_log_ends_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [commit(n, n, log_timestamp=1000 * n) for n in range(1, 9)]
    lake = small_lake(tmp_path, offset_commits=rows, log_ends=[end(2, 30, complete_run=1), end(4, 50, complete_run=1)])
    original, reads = answers.recorded_ends, list[tuple[str, int]]()

    def counting(opened: Lake, topic: str, partition: int) -> object:
        reads.append((topic, partition))
        return original(opened, topic, partition)

    monkeypatch.setattr(answers, "recorded_ends", counting)
    with served(lake.location.path) as port:
        for since, expected in ((0, [30, 50]), (3000, [50]), (5000, [])):
            chart = get(port, f"/series?group=g&topic=t&partition=0&since={to_iso(since)}")
            assert json.loads(chart.text)["ends"]["offset"] == expected
    assert reads == [("t", 0)]
