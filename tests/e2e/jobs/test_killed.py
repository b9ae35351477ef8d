"""A job killed by SIGKILL at any kind of write, and run again, gives the same tables as one that was never killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from offsetlake.lake.definitions import HISTORY, STATE, definition
from offsetlake.lake.lake import Lake
from support.e2e.killing import WRITES
from support.e2e.killing_scenarios import AGAIN_AND_AGAIN, KILLS, SCENARIOS
from support.e2e.lakes import cycle, rows
from support.oracle.bulk import write_bulk_log

ROOT = Path(__file__).parents[3]
PYTHON_PATH = os.pathsep.join([str(ROOT / "lib"), str(ROOT / "tests")])


@pytest.fixture(scope="module")
def all_kills(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Return what the program that kills prints: a kill, or a job that completed, each."""
    done = subprocess.run(
        [sys.executable, "-m", "support.e2e.killing", tmp_path_factory.mktemp("killed")],
        env=os.environ | {"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1800)  # about a hundred processes are killed before the first test
@pytest.mark.parametrize("scenario", KILLS)
def test_job_killed_at_any_kind_of_write_is_resumed(all_kills: list[dict[str, str]], scenario: str) -> None:
    kills = [kill for kill in all_kills if kill["scenario"] == scenario]
    assert not [kill for kill in kills if kill["problem"]]
    assert Counter(kill["at"] for kill in kills) == {"": 1} | KILLS[scenario]


def test_jobs_are_killed_at_every_kind_of_write() -> None:
    assert {kind for kinds in KILLS.values() for kind in kinds} == WRITES.keys()
    assert KILLS.keys() == SCENARIOS.keys()


@pytest.mark.long
@pytest.mark.slow
def test_runs_killed_again_and_again_are_resumed(all_kills: list[dict[str, str]]) -> None:
    kills = [kill for kill in all_kills if kill["scenario"] == AGAIN_AND_AGAIN]
    assert not [kill for kill in kills if kill["problem"]]
    assert {kill["at"] for kill in kills} >= {"", "create table", "fsync", "close data file", "commit"}
    assert [kill["at"] for kill in kills].index("") == len(kills) - 1, "the last of the jobs lives"


@pytest.mark.long
@pytest.mark.jvm
def test_ingest_killed_with_its_spark_processes_is_resumed(spark: SparkSession, tmp_path: Path) -> None:
    log, lake = tmp_path / "log", tmp_path / "lake"
    made = write_bulk_log(log, 300_000, groups=500, topics=20, partitions=10, log_partitions=5)
    _ingest_killed_at_first_file(log, lake)
    assert not rows(Lake.open(lake), "runs")
    assert Lake.open(lake).files.read("plan-ingest.json") is not None

    cycle(spark, Lake.create(lake), log)
    cycle(spark, Lake.create(tmp_path / "never killed"), log)

    assert Lake.open(lake).count("offset_commits") == made.commits
    assert Lake.open(lake).count("offsets") == made.keys
    for table in (*HISTORY, *STATE):
        assert _sorted(lake, table).equals(_sorted(tmp_path / "never killed", table)), table
    ingested, compacted = rows(Lake.open(lake), "runs")
    assert (ingested["run_id"], ingested["job"], ingested["notes"]) == (1, "ingest", ["finished after an interruption"])
    assert (compacted["run_id"], compacted["job"], compacted["through_run"]) == (2, "compact", 1)
    assert dict(ingested["counts"])["offset_commits"] == made.commits


def _ingest_killed_at_first_file(log: Path, lake: Path) -> None:
    """Kill the driver, Spark's JVM and all else of their process group once the first data file is there."""
    command = [sys.executable, "-m", "offsetlake.cli", "ingest", "--log", str(log), "--lake", str(lake)]
    environment = os.environ | {"PYTHONPATH": PYTHON_PATH}
    with subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as driver:
        while not any((lake / "offset_commits").glob("*.parquet")) and driver.poll() is None:
            time.sleep(0.001)
        os.killpg(driver.pid, signal.SIGKILL)
        output = driver.communicate()[0]
    assert driver.returncode == -signal.SIGKILL, output


def _sorted(lake: Path, table: str) -> pa.Table:
    keys = ("log_partition", "log_offset", "group_id", "topic", "partition", "member_id")
    order = ", ".join(name for name in keys if name in definition(table).column_names)
    return Lake.open(lake).query(f"SELECT * FROM {table} ORDER BY {order}", table)
