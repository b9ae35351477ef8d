"""A call of the jobs goes to the end of the log, whatever the last one left behind."""

import random
from pathlib import Path
from typing import Any

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline import runner
from offsetlake.pipeline.ingest import job as ingest
from support.e2e.in_process import NoSpark
from support.e2e.lakes import state
from support.oracle.random_logs import RandomLog, random_log


def _run(folder: Path, lake: str) -> list[tuple[str, str, list[str]]]:
    log = LogAddress(folder=folder / "log")
    done = runner.run_jobs(folder / lake, log, ("ingest", "compact"), None, lambda _: None)
    return [(job.row.job, job.row.outcome, [*job.row.notes]) for job in done]


def test_resumed_run_is_followed_by_one_for_new_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LazySession", NoSpark)
    whole = random_log(random.Random(3), 200, groups=5, log_partitions=2, batches_per_segment=30)
    RandomLog(whole.world, whole.plans[: len(whole.plans) // 2]).write(tmp_path / "log")
    with monkeypatch.context() as patch:
        patch.setattr(ingest, "commit", _cut_short)
        with pytest.raises(InterruptedError):
            _run(tmp_path, "lake")
    whole.write(tmp_path / "log")

    jobs = _run(tmp_path, "lake")

    resumed = ["finished after an interruption"]
    assert jobs == [("ingest", "done", resumed), ("ingest", "done", []), ("compact", "done", [])]
    _run(tmp_path, "never cut short")
    assert state(Lake.open(tmp_path / "lake")) == state(Lake.open(tmp_path / "never cut short"))


def _cut_short(*_arguments: Any) -> None:
    raise InterruptedError
