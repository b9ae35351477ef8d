"""A log and a lake with something in every table, made once a run: nobody writes to them."""

import random
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from offsetlake.lake.files import FileChanges, TableFile, commit
from offsetlake.lake.history.history_cuts import HistoryCut, record_cut
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.changes.execute import rows_of
from offsetlake.pipeline.ingest.log_ends import record
from support.e2e.delta_files import TABLES
from support.e2e.lakes import cycle, plan_expiry
from support.lakes import new_lake
from support.oracle.random_logs import RandomLog, random_log

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(scope="session")
def full_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random log and beside it, under other numbers, a real broker's log and one of every record type."""
    folder = tmp_path_factory.mktemp("full-log")
    _random().write(folder)
    for stored, shift in (("real-log", 100), ("every-record-type", 200)):
        for partition in (FIXTURES / stored).iterdir():
            topic, _, number = partition.name.rpartition("-")
            shutil.copytree(partition, folder / f"{topic}-{int(number) + shift}")
    return folder


@pytest.fixture(scope="session")
def full_lake(spark: SparkSession, full_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """That log in three cycles: half of the random part first, then all, then nothing new; then judged."""
    folder = tmp_path_factory.mktemp("full-lake")
    made = new_lake(folder / "lake")
    whole = _random()
    RandomLog(whole.world, whole.plans[: len(whole.plans) // 2]).write(folder / "half")
    cycle(spark, made, folder / "half")
    cycle(spark, made, full_log)
    cycle(spark, made, full_log)
    plan_expiry(spark, made)
    _alter(made)
    record(made, 99, [["topic-1", 0, 2, 5, 1_700_000_000_000]])
    record_cut(made, HistoryCut(99, "audit_events", 1, None))
    assert all(made.count(table) for table in TABLES), "a table without rows would prove nothing"
    return made


def _alter(lake: Lake) -> None:
    """Plan to set an offset, as a reset does; the log stays as it is."""
    columns = {"run_id": 99, "outcome": "planned", "strategy": "to_offset", "group_id": "group-1", "topic": "topic-1"}
    numbers = {"partition": 0, "log_partition": 1, "committed_offset": 5, "commit_timestamp": 1_700_000_000_000}
    file = TableFile(lake, "alterations")
    file.write(rows_of("alterations", columns | numbers, 1))
    commit(lake, "alterations", [FileChanges(file.close())], "reset", 99)


def _random() -> RandomLog:
    return random_log(random.Random(31), 3_000, groups=30, log_partitions=5, commit_ids=(7,))


@pytest.fixture(params=["folder", pytest.param("store", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new location for a lake: a folder and, in `make test-all`, an object store."""
    if request.param == "folder":
        return str(tmp_path / "lake")
    bucket: str = request.getfixturevalue("bucket")
    return f"s3://{bucket}/lake"
