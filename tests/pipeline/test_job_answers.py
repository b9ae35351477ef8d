"""What the jobs tell programs: their rows of `runs`, the versions they left; and how a program holds them to those."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.pipeline import runner
from support.command_line import Run
from support.e2e.in_process import NoSpark
from support.e2e.lakes import grow, rows, state
from support.oracle.random_logs import RandomLog, random_log

pytestmark = pytest.mark.slow

Answer = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Runs a job on a lake of its name, in this process, and gives its answer."""
    monkeypatch.setattr(runner, "LazySession", NoSpark)

    def of(job: str, *options: str, lake: str = "lake") -> list[dict[str, Any]]:
        code, out, err = run(job, "--lake", lake, "--format", "json", *options)
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    return of


@pytest.fixture
def whole(tmp_path: Path) -> RandomLog:
    """A log, of which the folder `log` holds the first half."""
    made = random_log(random.Random(5), 200, groups=5, log_partitions=2, batches_per_segment=30)
    RandomLog(made.world, made.plans[: len(made.plans) // 2]).write(tmp_path / "log")
    return made


@pytest.mark.usefixtures("whole")
def test_json_answer_of_a_job_has_its_row_and_table_versions(answer: Answer, tmp_path: Path) -> None:
    (ingested,) = answer("ingest", "--log", "log")
    (compacted,) = answer("compact")
    (expired,) = answer("expire", "--now", "2100-01-01")
    (maintained,) = answer("maintain")

    lake = Lake.open(tmp_path / "lake")
    assert maintained["versions"] == lake.versions()
    assert expired["versions"].keys() == maintained["versions"].keys()
    for told in (ingested, compacted, expired):
        at = told["versions"]
        assert lake.query("SELECT max(run_id) AS n FROM runs", runs=at["runs"])["n"].to_pylist() == [told["run_id"]]
    counted = {row["job"]: dict(row["counts"]) for row in rows(lake, "runs")}
    assert [told["counts"] for told in (ingested, compacted, expired)] == [
        counted[job] for job in ("ingest", "compact", "expire")
    ]
    for table, count in counted["compact"].items():
        assert lake.query(f"SELECT 1 FROM {table}", **{table: compacted["versions"][table]}).num_rows == count
        assert lake.query(f"SELECT 1 FROM {table}", **{table: ingested["versions"][table]}).num_rows == 0
    assert compacted["positions"] == ingested["positions"]
    assert sum(at["position"] for at in ingested["positions"]) > 0


@pytest.mark.long
def test_compact_through_run_excludes_later_ingests(answer: Answer, whole: RandomLog, tmp_path: Path) -> None:
    (first,) = answer("ingest", "--log", "log")
    answer("ingest", "--log", "log", lake="half")
    answer("compact", lake="half")
    grow(tmp_path / "log", whole)
    (second,) = answer("ingest", "--log", "log")
    assert second["counts"]["offset_commits"]

    (compacted,) = answer("compact", "--through-run", "1")

    compacted_tables = ("offsets", "pending_offsets", "groups", "group_members")
    lake, half = Lake.open(tmp_path / "lake"), Lake.open(tmp_path / "half")
    assert compacted["through_run"] == 1
    assert compacted["positions"] == first["positions"] != second["positions"]
    assert {table: rows(lake, table) for table in compacted_tables} == {
        table: rows(half, table) for table in compacted_tables
    }
    assert answer("compact", "--through-run", "1")[0]["outcome"] == "nothing new"
    (rest,) = answer("compact")
    assert rest["through_run"] == 2
    assert answer("compact", "--through-run", "1")[0]["through_run"] == 2, "what is compacted stays so"
    for job in ("ingest", "compact"):
        answer(job, *(("--log", "log") if job == "ingest" else ()), lake="at once")
    assert state(lake) == state(Lake.open(tmp_path / "at once"))


def test_expire_after_a_later_compaction_is_refused(answer: Answer, run: Run, whole: RandomLog, tmp_path: Path) -> None:
    answer("ingest", "--log", "log")
    (looked_at,) = answer("compact")
    (again,) = answer("compact")
    assert again["outcome"] == "nothing new", "which changes nothing of what was looked at"
    judging = ("--now", "2100-01-01", "--compacted-by", str(looked_at["run_id"]))
    assert answer("expire", *judging)[0]["outcome"] == "done"
    planned = Lake.open(tmp_path / "lake").count("tombstones")
    grow(tmp_path / "log", whole)
    answer("ingest", "--log", "log")
    (newer,) = answer("compact")

    code, out, err = run("expire", "--lake", "lake", *judging)

    assert (code, out) == (5, "")
    assert f"error: Run {newer['run_id']} compacted" in err
    assert err.endswith("the tables are not those that were checked. Start again with `offsetlake compact`.\n")
    assert Lake.open(tmp_path / "lake").count("tombstones") == planned
