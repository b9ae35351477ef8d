"""Expire and emit read the decisions that are open, and decide as if they read all that there ever were."""

import random
import shutil
from pathlib import Path

import pytest

from offsetlake.lake import runs
from offsetlake.lake.files import active_files
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.emit.job import emit
from offsetlake.pipeline.expire import job as expire_job
from support.e2e.in_process import InProcess
from support.e2e.lakes import LATER, cycle, plan_expiry, rows
from support.lakes import new_lake
from support.oracle.random_logs import random_log

WEEK = 7 * 86_400_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log, and a lake that was read from it."""
    folder = tmp_path_factory.mktemp("open")
    random_log(random.Random(13), 600, groups=8, log_partitions=3).write(folder / "log")
    cycle(InProcess(), new_lake(folder / "lake"), folder / "log")
    return folder


def copied(made: Path, to: Path) -> tuple[Lake, Path]:
    shutil.copytree(made, to)
    return Lake.open(to / "lake"), to / "log"


def act(seed: int, lake: Lake, log: Path) -> None:
    """Expire at some times, earlier and later ones, emit after some, and read some of what was emitted back."""
    random_ = random.Random(seed)
    times = sorted(row["commit_timestamp"] + WEEK for row in rows(lake, "offsets"))
    for _ in range(7):
        plan_expiry(InProcess(), lake, random_.choice(times[: len(times) // 2]) + 1)
        if random_.random() < 0.4:
            emit(lake, LogAddress(folder=log), lambda _: None)
        if random_.random() < 0.4:
            cycle(InProcess(), lake, log)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_decisions_are_those_of_reading_everything(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    lake, log = copied(made, tmp_path / "open")
    act(seed, lake, log)
    monkeypatch.setattr(runs, "open_run", lambda _lake, *_jobs: 0)
    other, other_log = copied(made, tmp_path / "all")
    act(seed, other, other_log)
    assert rows(lake, "tombstones") == rows(other, "tombstones")
    assert {row["outcome"] for row in rows(lake, "tombstones")} >= {"planned", "withdrawn", "emitted"}


@pytest.mark.long
def test_decided_tombstones_are_not_read_again(made: Path, tmp_path: Path) -> None:
    """The files with decided tombstones are gone from the disk: a job that opens one of them fails."""
    lake, log = copied(made, tmp_path / "copy")
    times = sorted(row["commit_timestamp"] + WEEK for row in rows(lake, "offsets"))
    for position in (len(times) // 3, len(times) // 2):
        plan_expiry(InProcess(), lake, times[position])
        emit(lake, LogAddress(folder=log), lambda _: None)
        cycle(InProcess(), lake, log)
    plan_expiry(InProcess(), lake, times[len(times) // 2])
    open_run = runs.open_run(lake, "expire")
    decided = [file for file in active_files(lake, "tombstones") if file["max.run_id"] < open_run]
    assert len(decided) >= 4
    for file in decided:
        (lake.table_location("tombstones").path / file["path"]).unlink()
    assert plan_expiry(InProcess(), lake).counts["planned"]
    assert emit(lake, LogAddress(folder=log), lambda _: None).counts["emitted"]


def test_emitted_tombstone_that_was_not_read_back_is_not_planned_again(made: Path, tmp_path: Path) -> None:
    lake, log = copied(made, tmp_path / "copy")
    plan_expiry(InProcess(), lake)
    emit(lake, LogAddress(folder=log), lambda _: None)
    assert [plan_expiry(InProcess(), lake).counts["planned"] for _ in range(3)] == [0, 0, 0]


def test_killed_evaluation_is_repeated_from_the_same_decisions(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, log = copied(made, tmp_path / "copy")
    plan_expiry(InProcess(), lake)
    with monkeypatch.context() as patch:
        patch.setattr(expire_job, "_evaluate", _cut_short)
        with pytest.raises(InterruptedError):
            plan_expiry(InProcess(), lake, 1)
    emit(lake, LogAddress(folder=log), lambda _: None)  # decides what the evaluation would have withdrawn
    emitted = lake.count("tombstones", "outcome = 'emitted'")
    cycle(InProcess(), lake, log)
    assert plan_expiry(InProcess(), lake).resumed
    assert lake.count("tombstones", "outcome = 'emitted'") == emitted
    resumed, next_one = plan_expiry(InProcess(), lake, LATER), plan_expiry(InProcess(), lake, LATER)
    assert (resumed.counts["planned"], next_one.counts["planned"]) == (0, 0)


def _cut_short(*_arguments: object) -> None:
    raise InterruptedError
