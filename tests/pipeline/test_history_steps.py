"""`maintain` compares the commits of older lakes: the answers stay those of a query that compares all of history."""

import random
from pathlib import Path
from typing import Any

import pytest

from offsetlake.lake.foreign.guard import refuse_changed
from offsetlake.lake.lake import Lake
from offsetlake.lake.upkeep import VacuumRetention
from offsetlake.pipeline.maintain import history_steps
from offsetlake.pipeline.maintain.job import maintain, preview
from offsetlake.queries.history.as_of import first_instant, offsets_as_of
from offsetlake.queries.history.diff import diff
from offsetlake.rules.policy import Keep
from support.command_line import Run
from support.e2e.lakes import rows, state, upkeep
from support.lakes_without_steps import STEPS, TABLE, forget_steps, paths, scattered
from support.queries.lakes import Row, commit, small_lake, tombstone
from support.queries.turning_points import compare_views, lake_of_steps

WEEK = 7 * 86_400_000
VIEWS = {"regressions", "commit_rate"}


def steps(lake: Lake) -> dict[tuple[int, int], tuple[Any, ...]]:
    sql = f"SELECT log_partition, log_offset, {', '.join(STEPS)} FROM {TABLE}"
    return {tuple(row.values())[:2]: tuple(row.values())[2:] for row in lake.query(sql, TABLE).to_pylist()}


def answers(lake: Lake) -> list[Any]:
    first = first_instant(lake)
    last = lake.query("SELECT max(log_timestamp) AS at FROM offset_commits")["at"][0].as_py()
    times = [first, (first + last) // 2, last]
    by_group = "SELECT * FROM changes ORDER BY log_partition, log_offset"
    return [
        state(lake),
        *(offsets_as_of(lake, time).to_pylist() for time in times),
        diff(lake, times[0], times[-1]).to_pylist(),
        lake.query(by_group).to_pylist(),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, pytest.param(6, marks=pytest.mark.long)])
def test_older_lake_has_the_steps_that_an_ingest_writes(
    tmp_path: Path, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of_steps(tmp_path, 20 + runs, runs, monkeypatch, chunk_bytes=1 << 24)
    written, answered = steps(lake), answers(lake)
    forget_steps(lake)
    assert {*steps(lake).values()} == {(None, None)}
    version = lake.versions(TABLE)[TABLE]

    counts = upkeep(lake, vacuum_retention_ms=WEEK).counts

    assert counts["steps_computed"] == len(written)
    assert steps(lake) == written
    assert answers(lake) == answered
    compare_views(lake, VIEWS)
    refuse_changed(Lake.open(lake.location))
    assert len(paths(lake)) == 1, "files of several runs are merged before"
    assert lake.query(f"SELECT count(repeats) AS n FROM {TABLE}", **{TABLE: version})["n"][0].as_py() == 0

    version, known = lake.versions(TABLE)[TABLE], paths(lake)
    assert upkeep(lake, vacuum_retention_ms=WEEK).counts["steps_computed"] == 0
    assert (lake.versions(TABLE)[TABLE], paths(lake)) == (version, known)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_rows_of_other_files_are_never_skipped(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are in any file, portions end anywhere, and some history is dropped, before or after the comparison."""
    lake = lake_of_steps(tmp_path, 40 + seed, seed % 3 + 3, monkeypatch, cut_after=seed % 5 // 2)
    for name, rows_at_once in (("_ROWS_AT_ONCE", 30 * seed), ("_BATCH_ROWS", 64)):
        monkeypatch.setattr(history_steps, name, rows_at_once)
    answered = answers(lake)
    forget_steps(lake, scattered(random.Random(seed), 3))

    assert upkeep(lake, vacuum_retention_ms=WEEK).counts["steps_computed"] == len(steps(lake))

    assert answers(lake) == answered
    assert 1 < len(paths(lake)) <= 3, "files keep their rows"
    assert lake.count(TABLE, "routine")
    compare_views(lake, VIEWS)
    maintain(lake, None, VacuumRetention(0, 0), quiet, Keep(history_ms=0))
    compare_views(lake, set())


def quiet(_text: str) -> None:
    pass


HISTORIES: dict[str, tuple[list[Row], list[tuple[Any, ...]]]] = {
    "plain": (
        [commit(0, 5), commit(1, 6), commit(2, 6), commit(3, 9), commit(4, 9), commit(5, 9)],
        [(None, False), (0, False), (1, True), (0, False), (1, True), (2, False)],
    ),
    "a rewind": (
        [commit(0, 5), commit(1, 6), commit(2, 7), commit(3, 4), commit(4, 5)],
        [(None, False), (0, False), (0, False), (None, False), (0, False)],
    ),
    "a tombstone": (
        [commit(0, 5), commit(1, 6), commit(2, 7), tombstone(3), commit(4, 8)],
        [(None, False), (0, False), (0, False), (None, False), (None, False)],
    ),
    "a transaction": ([commit(0, 5), commit(1, 6), commit(2, 7, 9), commit(3, 8), commit(4, 9)], [(None, False)] * 5),
    "a commit in parts": (
        [commit(0, 5), commit(1, 6), commit(2, 7, commit_id=1, commit_size=2), commit(3, 8)],
        [(None, False)] * 4,
    ),
    "two keys": (
        [row for at in range(4) for row in (commit(2 * at, at), commit(2 * at + 1, 9, topic="u"))],
        [(None, False), (None, False), (0, False), (1, False), (0, True), (2, True), (0, False), (3, False)],
    ),
    "two runs": (
        [commit(at, at, ingest_run=1 + at // 3) for at in range(6)],
        [(None, False), (0, False), (0, False), (None, False), (0, False), (0, False)],
    ),
    "a time that goes back": (
        [commit(at, at, log_timestamp=time) for at, time in enumerate((1, 2, 3, 2, 3, 4, 5))],
        [(None, False), (0, False), (0, False), (0, False), (0, True), (0, True), (0, False)],
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_steps_of_few_commits(tmp_path: Path, name: str) -> None:
    history, expected = HISTORIES[name]
    lake = small_lake(tmp_path / "lake", offset_commits=history)
    upkeep(lake)
    assert [found for _, found in sorted(steps(lake).items())] == expected


def test_known_steps_and_baselines_are_kept(tmp_path: Path) -> None:
    known = {"repeats": 7, "routine": True}
    history = [commit(0, 5), commit(1, 6), commit(2, 6, **known), commit(3, 7, **known)]
    lake = small_lake(tmp_path / "lake", offset_commits=history)
    assert upkeep(lake).counts["steps_computed"] == 2
    assert [found for _, found in sorted(steps(lake).items())] == [(None, False), (0, False), (7, True), (7, True)]


def test_dry_run_and_summary_name_the_commits(tmp_path: Path, run: Run) -> None:
    lake = small_lake(tmp_path / "lake", offset_commits=[commit(0, 5), commit(1, 6)])
    assert preview(lake, None, VacuumRetention(0, 0)).without_steps == 2
    named = "commits that an older version ingested"
    command = ("maintain", "--lake", str(tmp_path / "lake"))
    assert f"2 {named} would be compared" in run(*command, "--dry-run")[1]
    assert f"Compared 2 {named}" in run(*command)[1]
    assert named not in run(*command)[1]
    assert [dict(row["counts"])["steps_computed"] for row in rows(lake, "runs")] == [2, 0]
