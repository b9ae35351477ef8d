"""Drops history that is older than the configured limits, and keeps the records that decide the state after it.

History is dropped by ingest runs: a run whose records were all appended and read before the limit. What must be kept of
them, the baseline, replaces their files in one commit per table. A file that also has records of newer runs is
rewritten without the older ones. The cost follows the dropped records and the previous baseline, not the kept history.
Timestamps in the future are wrong: such a record is as old as the run that read it.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake import plans, runs
from offsetlake.lake.definitions import REDUCED_HISTORY
from offsetlake.lake.files import FileChanges, TableFile, active_files, committed, table_schema
from offsetlake.lake.history.history_cuts import HistoryCut, Scope, last_cut, record_cut, replace_files
from offsetlake.lake.history.history_files import ALL_RUNS, TIMED_TABLES, History, deciding_rows
from offsetlake.lake.history.moved_groups import apart, together
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.compact.job import JOB as COMPACT
from offsetlake.rules import baseline
from offsetlake.rules.policy import Keep
from offsetlake.rules.reduction import KEY, PART, Latest, Reduction
from offsetlake.rules.unresolved import unread_by_partition
from offsetlake.util.times import MAX_CLOCK_DIFFERENCE_MS, to_iso

_JOB = "drop"  # of the commits that drop rows, because `maintain` also compacts the files of the same tables
_ROWS_AT_ONCE = 1 << 20
_CUT_TABLES = ("quarantine", *(table for table in REDUCED_HISTORY if table != "quarantine"))
"""The tables of the scope `history`, in the order in which they are replaced.

Markers are replaced after the commits they end, and quarantined records before the tombstones that supersede them: so
an interrupted run computes the same rows again.
"""

Pieces = Iterator[dict[str, pa.Table]]


def plan_cuts(lake: Lake, keep: Keep, now: int) -> plans.MaintainPlan:
    """Return a plan to drop what is older than the limits at the instant `now` and was not dropped yet."""
    history = None if keep.history_ms is None else _due_history(lake, now - keep.history_ms, now)
    events = None if keep.audit_events_ms is None else _due_audit_events(lake, now - keep.audit_events_ms)
    through, begins = history or (None, None)
    events_through, events_begin = events or (None, None)
    return plans.MaintainPlan(
        history_through=through,
        history_begins=begins,
        audit_events_through=events_through,
        audit_events_begins=events_begin,
    )


def drop(lake: Lake, plan: plans.MaintainPlan, say: Callable[[str], None]) -> dict[str, int]:
    """Drop what the plan names; return the number of dropped rows of history and of audit events.

    Does nothing that this run has done before. The cut is recorded before the first row is dropped.
    """
    return {
        "history_rows_dropped": _drop_history(lake, plan, say) if plan.history_through else 0,
        "audit_events_dropped": _drop_audit_events(lake, plan, say) if plan.audit_events_through else 0,
    }


def _due_history(lake: Lake, limit_ms: int, now: int) -> tuple[int, int | None] | None:
    """Return the newest ingest run that is due, and the time of the newest record up to it; None if none is due."""
    cut, compacted = last_cut(lake, "history"), runs.last_run(lake, COMPACT)
    since, begins = (cut.through_run, cut.begins_timestamp) if cut else (0, None)
    read = f"job = 'ingest' AND outcome = 'done' AND finished_at < {limit_ms} AND run_id > {since}"
    newest = _ingest(lake, f"{read} AND run_id <= {(compacted.through_run or 0) if compacted else 0}")
    if newest is None:
        return None
    is_young = f"log_timestamp >= {limit_ms} AND log_timestamp <= {now + MAX_CLOCK_DIFFERENCE_MS}"
    young = _over_tables(lake, "min(ingest_run)", f"{is_young} AND {_between(since, newest)}")
    if young:
        newest = _ingest(lake, f"{read} AND run_id < {min(young)}")
    if newest is None:
        return None
    times = _over_tables(lake, "max(log_timestamp)", f"log_timestamp < {limit_ms} AND {_between(since, newest)}")
    return newest, max([*times, *([] if begins is None else [begins])], default=None)


def _between(since: int, through: int) -> str:
    return f"ingest_run > {since} AND ingest_run <= {through}"


def _ingest(lake: Lake, condition: str) -> int | None:
    found: int | None = lake.query(f"SELECT max(run_id) AS n FROM runs WHERE {condition}", "runs")["n"][0].as_py()  # noqa: S608
    return found


def _over_tables(lake: Lake, value: str, condition: str) -> list[int]:
    """Return an aggregate of each history table with timestamps that has such rows; statistics prune its files."""
    queries = {table: f"SELECT {value} AS n FROM {table} WHERE {condition}" for table in TIMED_TABLES}  # noqa: S608
    found = [lake.query(sql, table)["n"][0].as_py() for table, sql in queries.items()]
    return [number for number in found if number is not None]


def _due_audit_events(lake: Lake, limit_ms: int) -> tuple[int, int] | None:
    """Return the newest ingest run with events before the limit, and the limit; None if there is no such event."""
    sql = f"SELECT max(ingest_run) AS n FROM audit_events WHERE log_timestamp < {limit_ms}"  # noqa: S608
    through = lake.query(sql, "audit_events")["n"][0].as_py()
    return None if through is None else (through, limit_ms)


def _drop_history(lake: Lake, plan: plans.MaintainPlan, say: Callable[[str], None]) -> int:
    through, run_id = plan.history_through or 0, plan.run_id
    until = "" if plan.history_begins is None else f", up to {to_iso(plan.history_begins)}"
    say(f"dropping the history of ingest runs up to {through}{until}")
    earlier = last_cut(lake, "history", run_id)
    _record(lake, run_id, "history", through, plan.history_begins)
    left = [table for table in _CUT_TABLES if not committed(lake, table, _JOB, run_id)]
    kept = {table: FileChanges() for table in _CUT_TABLES}
    for piece in _baseline(lake, through, earlier.through_run if earlier else 0) if left else ():
        for table in left:
            file = TableFile(lake, table)
            file.write(piece[table])
            kept[table].added += file.close()
    return sum(_replace(lake, table, through, kept[table], run_id) for table in _CUT_TABLES)


def _record(lake: Lake, run_id: int, scope: Scope, through: int, begins: int | None) -> None:
    record_cut(lake, HistoryCut(run_id, scope, through, begins))


def _baseline(lake: Lake, through: int, recent_after: int) -> Pieces:
    """Yield by table the rows to keep of the ingest runs up to `through`, for some log partitions at a time."""
    history = History.open(lake, _CUT_TABLES, 0, through)
    partitions = history.partitions()
    rows = lake.count("offset_commits", f"ingest_run <= {through}")
    step, pairs = max(1, len(partitions) * _ROWS_AT_ONCE // max(rows, 1)), together(lake)
    for start in range(0, len(partitions), step):
        for some in apart(partitions[start : start + step], pairs):
            yield _baseline_of(history, some, recent_after)


def _baseline_of(history: History, partitions: Sequence[int], recent_after: int) -> dict[str, pa.Table]:
    markers, parts = deciding_rows(history, partitions, PART)
    reduction, newest = Reduction(markers, parts), Latest(("group_id",))
    for batch in history.batches("offset_commits", partitions, ~pc.field("superseded")):
        reduction.add(batch)
        newest.add(reduction.complete_only(batch.filter(pc.equal(batch["kind"], "commit"))))
    none = table_schema("offset_commits").empty_table()
    columns = [*KEY, "log_partition", "log_offset"]
    tombstones = history.batches("offset_commits", partitions, pc.field("kind") == "tombstone", columns)
    decided, pending = _or_none(reduction.decided(), none), _or_none(reduction.pending(tombstones), none)
    creating = _or_none(newest.result(), none)
    committed_rows = decided.filter(pc.equal(decided["kind"], "commit"))
    open_rows = pending.filter(pc.is_null(pending["commit_id"]))  # parts of an incomplete commit create no group
    holding = {name for rows in (committed_rows, open_rows) for name in pc.unique(rows["group_id"]).to_pylist()}
    share_records = history.rows("share_state_records", partitions)
    quarantined = baseline.kept_quarantine(history.rows("quarantine", partitions), decided, share_records)
    groups = baseline.kept_group_records(
        history.rows("group_records", partitions), creating, holding, unread_by_partition(quarantined)
    )
    creating = creating.filter(pc.invert(pc.is_in(creating["group_id"], pa.array(groups.without_commit, pa.string()))))
    commits = baseline.kept_commits(decided, pending, creating)
    return {
        "offset_commits": commits,
        # Recent markers are dropped by the next cut only: a query that opened the commits before this one needs them.
        "transaction_markers": baseline.kept_markers(commits, markers, recent_after),
        "group_records": groups.records,
        "share_state_records": baseline.kept_share_state(share_records),
        "quarantine": quarantined,
    }


def _or_none(rows: pa.Table | None, none: pa.Table) -> pa.Table:
    return none if rows is None else rows.cast(none.schema)


def _replace(lake: Lake, table: str, through: int, kept: FileChanges, run_id: int) -> int:
    """Replace the files with rows of ingest runs up to `through` by the kept rows and those of newer runs."""
    files = {
        file["path"]: file
        for file in active_files(lake, table)
        if file.get("min.ingest_run") is None or file["min.ingest_run"] <= through
    }
    return _rewrite(lake, table, files, pc.field("ingest_run") > through, kept, run_id)


def _drop_audit_events(lake: Lake, plan: plans.MaintainPlan, say: Callable[[str], None]) -> int:
    table, limit = "audit_events", plan.audit_events_begins or 0
    say(f"dropping audit events before {to_iso(limit)}")
    _record(lake, plan.run_id, "audit_events", plan.audit_events_through or 0, limit)
    files = {
        file["path"]: file
        for file in active_files(lake, table)
        if file.get("min.log_timestamp") is None or file["min.log_timestamp"] < limit
    }
    young = pc.field("log_timestamp").is_null() | (pc.field("log_timestamp") >= limit)
    return _rewrite(lake, table, files, young, FileChanges(), plan.run_id)


def _rewrite(
    lake: Lake,
    table: str,
    files: dict[str, dict[str, Any]],
    where: pc.Expression,
    kept: FileChanges,
    run_id: int,
) -> int:
    """Replace files by their rows that satisfy a condition and by other new files; return how many rows are dropped."""
    if committed(lake, table, _JOB, run_id):
        files, kept = {}, FileChanges()
    changes = FileChanges([*kept.added, *_remaining(lake, table, files, where).added], [*files])
    replace_files(lake, table, changes, _JOB, run_id)
    rows_before = sum(int(file.get("num_records") or 0) for file in files.values())
    return rows_before - sum(int(json.loads(action.stats or "{}")["numRecords"]) for action in changes.added)


def _remaining(lake: Lake, table: str, files: dict[str, dict[str, Any]], where: pc.Expression) -> FileChanges:
    """Write a file with the rows of each file that satisfy a condition; none for a file without such rows."""
    history, changes = History.open(lake, [table], 0, ALL_RUNS), FileChanges()
    for listed in history.files[table]:
        if listed.path not in files:
            continue
        one = replace(history, files={table: [listed]})
        file = TableFile(lake, table)
        for batch in one.batches(table, range(listed.first_partition, listed.last_partition + 1), where):
            file.write(batch)
        changes.added += file.close()
    return changes
