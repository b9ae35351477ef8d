"""A job killed by SIGKILL at any write, and run again, gives the same tables as one that was never killed."""

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
from support.e2e.killing_scenarios import AGAIN_AND_AGAIN, SCENARIOS
from support.e2e.lakes import cycle, rows
from support.oracle.bulk import write_bulk_log

ROOT = Path(__file__).parents[2]
PYTHON_PATH = os.pathsep.join([str(ROOT / "lib"), str(ROOT / "tests")])

# The number of writes of each kind to kill a job before. All of them take minutes (python -m support.e2e.killing).
PER_KIND = {
    "create": 1,
    "ingest": 1,
    "compact": 1,
    "compact by ranges of groups": 1,
    "maintain": 1,
    "emit": 1,
    "by hand": 1,
    "drop history": 1,
    "forget": 1,
    "rebuild": 1,
    "rebuild of a log partition": 1,
}

# The writes that are met at the least: a kill that no longer meets them would prove nothing.
MET = {
    "create": {"mkdir": 1, "create table": 1},
    "ingest": {"fsync": 1, "close data file": 1, "commit": 1},
    "compact": {"fsync": 1, "close data file": 1, "commit": 1},
    "compact by ranges of groups": {"fsync": 1, "close data file": 1, "commit": 1, "unlink": 1},
    "expire": {"open": 2, "fsync": 4, "replace": 1, "close data file": 2, "commit": 2, "unlink": 1},
    "maintain": {"fsync": 1, "unlink": 1, "optimize": 1, "vacuum": 1, "checkpoint": 1},
    "drop history": {"fsync": 1, "close data file": 1, "commit": 1, "set property": 1, "replace": 1, "unlink": 1},
    "forget": {"close data file": 1, "commit": 1, "set property": 1, "vacuum": 1, "checkpoint": 1, "unlink": 1},
    "rebuild": {"link": 1, "close data file": 1, "add constraint": 1, "commit": 1},
    "rebuild of a log partition": {"commit": 1, "close data file": 1},
    "emit": {"append": 1, "fdatasync": 1, "close data file": 1, "commit": 1},
    "by hand": {"close data file": 1, "replace": 1, "append": 1, "commit": 1},
    AGAIN_AND_AGAIN: {"create table": 1, "fsync": 3, "close data file": 3, "commit": 3},
}


@pytest.fixture(scope="module")
def all_kills(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What the program that kills tells of all of them."""
    scenarios = [f"{scenario}={PER_KIND.get(scenario, 0)}" for scenario in (*SCENARIOS, AGAIN_AND_AGAIN)]
    done = subprocess.run(
        [sys.executable, "-m", "support.e2e.killing", tmp_path_factory.mktemp("killed"), *scenarios],
        env=os.environ | {"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1800)  # hundreds of processes are killed before the first test
@pytest.mark.parametrize("scenario", MET)
def test_job_killed_at_any_write_is_resumed(all_kills: list[dict[str, str]], scenario: str) -> None:
    kills = [kill for kill in all_kills if kill["scenario"] == scenario]
    assert not [kill for kill in kills if kill["problem"]]
    met = Counter(kill["at"] for kill in kills)
    assert met.keys() - {""} <= WRITES.keys()
    assert met[""] == 1, "the last of the jobs lives"
    assert met >= Counter(MET[scenario])


@pytest.mark.long
@pytest.mark.jvm
def test_ingest_killed_with_its_spark_processes_is_resumed(spark: SparkSession, tmp_path: Path) -> None:
    log, lake = tmp_path / "log", tmp_path / "lake"
    made = write_bulk_log(log, 300_000, groups=500, topics=20, partitions=10, log_partitions=5)
    _ingest_killed_at_first_file(log, lake)
    assert not rows(Lake.open(lake), "runs")
    assert Lake.open(lake).read_file("plan-ingest.json") is not None

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
