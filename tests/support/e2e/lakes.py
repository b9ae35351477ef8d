"""Helpers of the end-to-end tests: run the jobs on a log, and return the tables of a lake as Python values."""

from pathlib import Path
from typing import Any

from offsetlake.lake.definitions import STATE
from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import FinishedRun
from offsetlake.lake.upkeep import VacuumRetention
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.compact.job import compact
from offsetlake.pipeline.expire.job import expire
from offsetlake.pipeline.ingest.job import ingest
from offsetlake.pipeline.maintain.job import maintain
from offsetlake.rules.policy import RetentionPolicy
from support.oracle.random_logs import RandomLog

OFFSET = ("committed_offset", "leader_epoch", "metadata", "commit_timestamp", "expire_timestamp", "topic_id")
WHERE = ("log_partition", "log_offset", "producer_id")

LATER = 4_102_444_800_000  # ms: in the year 2100, when everything that can expire has expired

Rows = list[dict[str, Any]]


def cycle(spark: Any, lake: Lake, log: Path) -> tuple[FinishedRun, FinishedRun]:
    """Ingest and compact once, on a SparkSession or its substitute; return both reports."""
    address = LogAddress(folder=log)
    return ingest(lambda: spark, lake, address, _quiet), compact(lambda: spark, lake, _quiet)


def plan_expiry(spark: Any, lake: Lake, now: int = LATER) -> FinishedRun:
    """Plan the tombstones of a retention of one week; return the report."""
    return expire(lambda: spark, lake, RetentionPolicy(7 * 86_400_000), now, _quiet)


def upkeep(lake: Lake, log: Path | None = None, vacuum_retention_ms: int = 0) -> FinishedRun:
    """Maintain once; return the report."""
    return maintain(lake, log, VacuumRetention(vacuum_retention_ms, vacuum_retention_ms), _quiet)


def grow(folder: Path, log: RandomLog) -> None:
    """Write a log to a folder that can contain its first part; segments that were deleted from it are not restored."""
    firsts = {path.name: min(path.glob("*.log")).name for path in folder.glob("*-*") if path.is_dir()}
    log.write(folder)
    for partition, first in firsts.items():
        for segment in (folder / partition).glob("*.log"):
            if segment.name < first:
                segment.unlink()


def _quiet(_text: str) -> None:
    pass


def rows(lake: Lake, table: str, *without: str) -> Rows:
    """Return the rows of a table in a deterministic order, without some columns."""
    contents = lake.query(f"SELECT * FROM {table}", table).drop_columns(list(without)).to_pylist()
    return sorted(contents, key=lambda row: [str(value) for value in row.values()])


def state(lake: Lake) -> dict[str, Rows]:
    """Return every table except `runs`, without the columns that depend on the number of runs."""
    history = (
        "offset_commits",
        "transaction_markers",
        "group_records",
        "share_state_records",
        "quarantine",
        "audit_events",
    )
    tables = {table: rows(lake, table, "ingest_run") for table in history if table != "offset_commits"}
    tables["offset_commits"] = rows(lake, "offset_commits", "ingest_run", "superseded", "repeats", "routine")
    tables["tombstones"] = rows(lake, "tombstones", "run_id")
    return tables | {table: rows(lake, table) for table in STATE}
