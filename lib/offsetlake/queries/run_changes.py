"""The list of runs, and the groups with the most commits in an ingest."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake import current_run, plans, runs
from offsetlake.lake.definitions import current_name
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.lake.sql.statements import statement

UNFINISHED = "unfinished"
"""The outcome of a run that is running or was interrupted: its row is not in `runs` yet."""

_WRITTEN = ("planned", "withdrawn", "emitted", "done", "gone", "refused")
"""Outcomes of rows of `tombstones` and `alterations` that a run counts."""


class RunChanges(NamedTuple):
    """What ingest runs read, by group.

    | field  | description |
    |--------|-------------|
    | most   | the groups with the most commits and tombstones, in descending order |
    | groups | number of groups with a commit or tombstone |
    """

    most: pa.Table
    groups: int


def changes(lake: Lake, ingest_runs: Sequence[int], limit: int) -> RunChanges:
    """Return what these ingest runs changed; reads the rows of the runs, and the state of `limit` groups.

    | column          | description |
    |-----------------|-------------|
    | group_id        | the group |
    | commits, tombstones | number of records of each kind that the runs read |
    | changed_offsets | number of offsets that these records are about |
    | offsets         | number of offsets the group has now |
    | last_timestamp  | when the newest of the records was appended; null if the log has no timestamps |
    """
    numbers = ", ".join(map(str, ingest_runs))
    counted = lake.query(statement("busiest_groups", runs=numbers), "offset_commits")
    most = counted.slice(0, limit)
    if not most.num_rows:
        return RunChanges(most, 0)
    groups = ", ".join(quoted(name) for name in most["group_id"].to_pylist())
    partitions = ", ".join(map(str, pc.unique(pc.list_flatten(most["log_partitions"])).to_pylist()))
    changed = lake.query(
        statement("changed_offsets", runs=numbers, groups=groups, partitions=partitions), "offset_commits"
    )
    state = lake.query(statement("offset_counts", groups=groups, partitions=partitions), "offsets")
    columns = ["group_id", "commits", "tombstones", "changed_offsets", "offsets", "last_timestamp"]
    joined = most.append_column("place", pa.array(range(most.num_rows)))
    joined = joined.drop_columns(["log_partitions"])  # a join takes no lists
    for other in (changed, state):
        joined = joined.join(other, "group_id", join_type="left outer")
    joined = joined.sort_by("place").select(columns)
    return RunChanges(joined.set_column(4, "offsets", pc.fill_null(joined["offsets"], 0)), counted.num_rows)


def list_runs(lake: Lake) -> pa.Table:
    """Return the runs, newest first, including unfinished ones.

    | column      | description |
    |-------------|-------------|
    | run_id, job, started_at, finished_at, log, through_run, counts, notes | as in `runs` |
    | outcome     | done, nothing new, or unfinished: running, or interrupted |
    | duration_ms | from start to finish; null while unfinished |
    | records_read | log records that an ingest read into history; null for other jobs |
    | rows_written | rows that an ingest added to history, or another job to decisions; null if not recorded, as for \
    compact, rebuild, maintain, and for unfinished and interrupted runs |
    """
    found = lake.query(
        "SELECT run_id, job, outcome, started_at, finished_at, finished_at - started_at AS duration_ms, "
        "log, through_run, counts, notes FROM runs",
        "runs",
    )
    rows = found.to_pylist(maps_as_pydicts="strict")
    rows += [
        _unfinished(job, plan)
        for job in current_run.JOBS
        if (plan := current_run.unfinished_plan(lake, job, plans.Plan))
    ]
    schema = found.schema.append(pa.field("records_read", pa.int64())).append(pa.field("rows_written", pa.int64()))
    for row in rows:
        row["counts"] = {current_name(table): count for table, count in row["counts"].items()}
    listed = [
        {
            **row,
            "counts": [*row["counts"].items()],
            "records_read": _records_read(row),
            "rows_written": _rows_written(row),
        }
        for row in rows
    ]
    columns = [
        "run_id", "job", "outcome", "started_at", "finished_at", "duration_ms", "log", "records_read",
        "rows_written", "through_run", "counts", "notes",
    ]  # fmt: skip
    return pa.Table.from_pylist(listed, schema=schema).select(columns).sort_by([("run_id", "descending")])


def _unfinished(job: str, plan: plans.Plan) -> dict[str, Any]:
    return {
        "run_id": plan.run_id,
        "job": job,
        "outcome": UNFINISHED,
        "started_at": plan.started_at,
        "counts": {},
        "notes": [*plan.notes],
    }


def _records_read(row: dict[str, Any]) -> int | None:
    """Return the number of log records that an ingest read; audit events are headers, not records."""
    if row["job"] != "ingest" or row["outcome"] == UNFINISHED:
        return None
    counts: dict[str, int] = row["counts"]
    return sum(count for table, count in counts.items() if table != "audit_events")


def _rows_written(row: dict[str, Any]) -> int | None:
    """Return the number of rows that a run added; None for jobs that record the numbers of rows of their tables."""
    counts: dict[str, int] = row["counts"]
    if row["job"] == "ingest":
        return sum(counts.values()) if counts else None
    if row["job"] in ("expire", "emit", *runs.BY_HAND):
        outcomes = [count for name, count in counts.items() if name in _WRITTEN]
        return sum(outcomes) if outcomes else None
    return None
