"""The pages about a whole lake: the command of each has the same answer, and hostile names stay text."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.console.served import Page, get, served
from support.queries.lakes import commit, end, small_lake
from support.report.report_rows import TAGS

RUNS = [
    {"run_id": 1, "job": "ingest", "started_at": 1_000, "finished_at": 3_500, "counts": [("read", 7)]},
    {"run_id": 2, "job": "compact", "started_at": 3_600, "finished_at": 4_000},
    {"run_id": 3, "job": "ingest", "started_at": 9_000, "finished_at": 9_100},
    *(
        {"run_id": run_id, "job": job, "started_at": 9_200, "finished_at": 9_300, "notes": [f"requested by {TAGS}"]}
        for run_id, job in ((4, "reset"), (5, "emit"))
    ),
]
DONE = {
    "run_id": 5, "outcome": "done", "strategy": "to_offset", "group_id": "billing", "topic": "t", "partition": 0,
    "judged_offset": 11, "log_offset": 12,
}  # fmt: skip
ENDS = {"run_id": 3, "asked_timestamp": 5_000}
QUARANTINED = [("bad value <b>", 3, 2_000), ("bad value <b>", 4, 2_500), ("no key", 5, None)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lake-pages") / "lake"
    commits = [
        commit(number * 10 + step, 5 + step // 2, group_id=name, topic="t", log_timestamp=1_000 + step)
        for number, name in enumerate((TAGS, "billing"))
        for step in range(6 + number)
    ]
    quarantined = [
        {"log_offset": offset, "reason": reason, "log_timestamp": timestamp}
        for reason, offset, timestamp in QUARANTINED
    ]
    small_lake(path, offset_commits=commits, runs=RUNS, quarantine=quarantined, alterations=[DONE])
    return path


@pytest.fixture(scope="module")
def port(lake: Path) -> Iterator[int]:
    with served(lake) as listening:
        yield listening


def shown(port: int, path: str) -> Page:
    """Return a page when its answer has been computed."""
    while "retry-after" in (answer := get(port, path)).headers:
        assert answer.status == 200
    assert answer.status == 200, answer.text
    assert TAGS not in answer.text
    return Page(answer.text)


@pytest.mark.parametrize(
    ("path", "column"),
    [("/committers", "group_id"), ("/committers?q=bill", "group_id"), ("/runs", "cycle"), ("/quarantine", "reason")],
)
def test_the_command_has_the_same_rows(port: int, run: object, path: str, column: str) -> None:
    page = shown(port, path)
    _program, *arguments = shlex.split(page.command)
    code, out, err = run(*arguments, "--format", "json")  # type: ignore[operator]
    assert code == 0, err
    assert [row[0] for row in page.rows] == [str(json.loads(line)[column]) for line in out.splitlines()] != []


def test_runs_are_shown_by_cycle_with_their_durations(port: int) -> None:
    newest, first = shown(port, "/runs").rows
    assert (newest[0], first[0], first[3]) == ("3", "1", "3.0s")
    assert (newest[4], first[4]) == ("ingest, reset, emit", "ingest, compact")
    assert (newest[5], first[5]) == (TAGS, "")


def test_a_run_is_shown_as_unfinished_as_long_as_its_plan_exists(tmp_path: Path) -> None:
    lake = small_lake(tmp_path / "lake", runs=RUNS[:1])
    with served(tmp_path / "lake") as listening:
        assert [row[1] for row in shown(listening, "/runs").rows] == ["done"]
        lake.files.write("plan-expire.json", {"run_id": 9, "started_at": 9_000})
        assert [row[1] for row in shown(listening, "/runs").rows] == ["unfinished"]
        lake.files.remove("plan-expire.json")
        assert [row[1] for row in shown(listening, "/runs").rows] == ["done"]


def test_runs_have_numbers_as_options_expect_them(tmp_path: Path) -> None:
    runs = [{"run_id": 1463, "job": "ingest", "started_at": 1, "finished_at": 2}]
    small_lake(tmp_path / "lake", runs=runs)
    with served(tmp_path / "lake") as listening:
        [row] = shown(listening, "/runs").rows
    assert row[0] == "1463"


def test_the_run_that_decided_a_step_is_linked_to_its_cycle(port: int) -> None:
    page = shown(port, "/step?group=billing&topic=t&partition=0&record=0:12")
    assert f"Who{TAGS}" in page.text
    cycle = shown(port, page.links["Run 5"])
    assert [row[0] for row in cycle.rows] == ["3"]
    assert len(shown(port, cycle.links["Show all rows"]).rows) == 2
    assert "There is no such run." in shown(port, "/runs?run=9").text


def test_quarantined_records_are_counted_by_reason(port: int) -> None:
    rows = shown(port, "/quarantine").rows
    assert [(row[0], row[1]) for row in rows] == [("bad value <b>", "2"), ("no key", "1")]


def test_the_groups_that_are_behind_are_shown(run: object, tmp_path: Path) -> None:
    runs = [{"run_id": number, "job": "ingest", "started_at": number, "finished_at": number} for number in (1, 2)]
    commits = [commit(1, 4, ingest_run=1, group_id=TAGS), commit(2, 5, ingest_run=2, group_id=TAGS)]
    small_lake(tmp_path / "lake", offset_commits=commits, log_ends=[end(1, 5), end(2, 9)], runs=runs)
    with served(tmp_path / "lake") as listening:
        page = shown(listening, "/lag")
        assert not shown(listening, "/lag?q=other").rows
    _program, *arguments = shlex.split(page.command)
    code, out, err = run(*arguments, "--format", "json")  # type: ignore[operator]
    assert code == 0, err
    [row] = [json.loads(line) for line in out.splitlines()]
    assert [(name, status, lag) for name, status, lag, *_ in page.rows] == [(TAGS, row["status"], str(row["lag"]))]


def test_a_lake_without_log_ends_says_so(port: int) -> None:
    text = shown(port, "/lag").text
    assert "No log end offsets are recorded. Only a cycle over a live cluster records them" in text
    assert "`" not in text
