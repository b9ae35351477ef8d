"""What the end-to-end tests share: one cycle over a log, and the tables of a lake as plain values."""

from pathlib import Path
from typing import Any

from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import Report
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.compact.job import compact
from offsetlake.pipeline.expire.job import expire
from offsetlake.pipeline.ingest.job import ingest
from offsetlake.pipeline.maintain.job import maintain
from offsetlake.rules.policy import RetentionPolicy
from support.oracle.random_logs import RandomLog

OFFSET = ("committed_offset", "leader_epoch", "metadata", "commit_timestamp", "expire_timestamp", "topic_id")
WHERE = ("log_partition", "log_offset", "producer_id")

LATER = 4_102_444_800_000  # ms: in 2100, when all that may expire has

Rows = list[dict[str, Any]]


def cycle(spark: Any, lake: Lake, log: Path) -> tuple[Report, Report]:
    """Ingest and compact once, on a SparkSession or what stands for it; gives both reports."""
    address = LogAddress(folder=log)
    return ingest(lambda: spark, lake, address, _quiet), compact(lambda: spark, lake, _quiet)


def judge(spark: Any, lake: Lake, now: int = LATER) -> Report:
    """Plan what a week's retention lets go; gives the report."""
    return expire(lambda: spark, lake, RetentionPolicy(7 * 86_400_000), now, _quiet)


def upkeep(lake: Lake, log: Path | None = None, vacuum_retention_ms: int = 0) -> Report:
    """Maintain once; gives the report."""
    return maintain(lake, log, vacuum_retention_ms, _quiet)


def grow(folder: Path, log: RandomLog) -> None:
    """Write a log of which the folder may hold a first part; what was cut from it stays away."""
    firsts = {path.name: min(path.glob("*.log")).name for path in folder.glob("*-*")}
    log.write(folder)
    for partition, first in firsts.items():
        for segment in (folder / partition).glob("*.log"):
            if segment.name < first:
                segment.unlink()


def _quiet(_text: str) -> None:
    pass


def rows(lake: Lake, table: str, *without: str) -> Rows:
    """Rows of a table in an order of their own, without the columns named."""
    found = lake.query(f"SELECT * FROM {table}", table).drop_columns(list(without)).to_pylist()
    return sorted(found, key=lambda row: [str(value) for value in row.values()])


def state(lake: Lake) -> dict[str, Rows]:
    """Every table but `runs`, without what tells in how many runs it came."""
    history = (
        "offset_commits",
        "transaction_markers",
        "group_records",
        "share_state_records",
        "quarantine",
        "audit_events",
    )
    tables = {table: rows(lake, table, "ingest_run") for table in history if table != "offset_commits"}
    tables["offset_commits"] = rows(lake, "offset_commits", "ingest_run", "superseded")
    tables["tombstones"] = rows(lake, "tombstones", "run_id")
    return tables | {table: rows(lake, table) for table in ("offsets", "pending_offsets", "groups", "group_members")}
