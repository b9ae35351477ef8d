"""`rebuild`: rebuilds state tables from history, with the code of `compact` over empty tables.

Each table then contains what the compactions that wrote it covered: the next compaction continues from there.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from offsetlake.errors import TableChanged
from offsetlake.lake import current_run, plans, runs
from offsetlake.lake.definitions import REDUCED_HISTORY, STATE, TABLES, add_checks, definition
from offsetlake.lake.delta.commits import rebuilt_scope
from offsetlake.lake.files import FileChanges, active_files, commit, committed, discard_files
from offsetlake.lake.foreign.guard import mend_tables, record, refuse_changed
from offsetlake.lake.foreign.remake import replace_table, take_features_away
from offsetlake.lake.history.history_files import History
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.compact.division import divide
from offsetlake.pipeline.compact.moved import remove_former_places
from offsetlake.pipeline.compact.reduced_history import Compaction
from offsetlake.pipeline.compact.task import compact_item
from offsetlake.pipeline.parallel import concurrent_tasks, distribute
from offsetlake.util.amounts import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB, COMPACT = "rebuild", "compact"

Part = tuple[int, tuple[int, ...] | None]
"""What a table is rebuilt from: the newest ingest run, and the log partitions; None for all."""


def rebuild(
    spark: Callable[[], "SparkSession | None"],
    lake: Lake,
    say: Callable[[str], None],
    tables: Sequence[str] = TABLES,
    log_partition: int | None = None,
) -> runs.FinishedRun:
    """Rebuild state tables from history, and drop table features that deltalake cannot write from any table.

    Each table is replaced in one commit: a killed run leaves the old table or the new one. An interrupted run is
    resumed first.

    Args:
        spark: Returns the Spark session.
        lake: The lake.
        say: Called with a text for each step.
        tables: The tables to rebuild.
        log_partition: Only rows of this log partition, and of those that share files with it; None for all.

    Returns:
        The row of `runs`.

    Raises:
        LakeBusy: Another job writes to the lake.
        TableChanged: Another program changed history.
        LakeUnusable: The lake cannot be written.

    """
    with lake.lock(JOB, say):
        mend_tables(lake, ["runs"], say)
        plan = current_run.unfinished_plan(lake, JOB, plans.RebuildPlan)
        if plan:
            say(f"run {plan.run_id} was interrupted: resuming it first")
            mend_tables(lake, plan.tables, say)
            report = _run(spark, lake, plan.with_notes(runs.RESUMED), say)
            if (plan.tables, plan.log_partition) == ((*tables,), log_partition):
                return report
        mended = mend_tables(lake, tables, say)
        refuse_changed(lake, *REDUCED_HISTORY, "runs")
        plan = plans.RebuildPlan(
            notes=mended, tables=(*tables,), log_partition=log_partition, versions=lake.versions(*tables)
        )
        return _run(spark, lake, current_run.begin(lake, JOB, plan), say)


def is_written(lake: Lake, table: str) -> bool:
    """Return whether a compaction or a rebuild has written to a state table."""
    return any(committed(lake, table, job, 1) for job in (COMPACT, JOB))


def _run(
    spark: Callable[[], "SparkSession | None"], lake: Lake, plan: plans.RebuildPlan, say: Callable[[str], None]
) -> runs.FinishedRun:
    refuse_changed(lake, *REDUCED_HISTORY, "runs")
    for table in plan.tables:
        if dropped := take_features_away(lake, table):
            plan = plan.with_notes(f"dropped the features {', '.join(sorted(dropped))} of table {table}")
    tables = [table for table in plan.tables if table in STATE]
    for part, some in _parts(lake, plan, tables).items():
        _rebuild(spark, lake, plan, part, some, say)
    for table in tables:
        add_checks(lake.delta_table(table), definition(table), since=0)
        lake.table_location(table).child("_delta_log").sync(files=True)  # delta-rs writes without fsync
        lake.close_table(table)
    if plan.log_partition is None:  # commits before the rebuild do not matter any more
        record(lake, {table: plan.versions[table] for table in tables})
    verified: dict[str, int] = {}
    for table in plan.tables:
        try:
            verified[table] = refuse_changed(lake, table)[table].version
        except TableChanged as error:
            plan = plan.with_notes(f"still unusable: {error}")
    record(lake, verified)
    counts = {table: lake.count(table) for table in tables}
    return current_run.finish(lake, JOB, plan, outcome="done", counts=counts)


def _parts(lake: Lake, plan: plans.RebuildPlan, tables: Sequence[str]) -> dict[Part, list[str]]:
    """Return the tables that this run has not committed yet by what they are rebuilt from."""
    parts: dict[Part, list[str]] = {}
    for table in tables:
        if not committed(lake, table, JOB, plan.run_id):
            part = _covered(lake, table), _partitions(lake, table, plan.log_partition)
            parts.setdefault(part, []).append(table)
    return parts


def _covered(lake: Lake, table: str) -> int:
    """Return the newest ingest run that a table includes, whether or not an interrupted compaction committed it."""
    compacted, unfinished = runs.last_run(lake, COMPACT), current_run.unfinished_plan(lake, COMPACT, plans.CompactPlan)
    if unfinished and committed(lake, table, COMPACT, unfinished.run_id):
        return unfinished.through_run
    return (compacted.through_run if compacted else None) or 0


def _partitions(lake: Lake, table: str, log_partition: int | None) -> tuple[int, ...] | None:
    """Return a log partition with those that share files with it; None for all."""
    if log_partition is None or not is_written(lake, table):  # a new table: compact would not fill the rest
        return None
    try:
        files = active_files(lake, table)
    except TableChanged:  # unreadable files: only the whole table can be replaced
        return None
    if any(file.get("min.log_partition") is None for file in files):  # files without statistics
        return None
    spans = [_span(file) for file in files]
    chosen, previous = {log_partition}, set[int]()
    while chosen != previous:
        previous = chosen
        chosen = chosen.union(*(span for span in spans if span & chosen))
    return tuple(sorted(chosen))


def _span(file: dict[str, Any]) -> set[int]:
    return {*range(file["min.log_partition"], file["max.log_partition"] + 1)}


def _rebuild(
    spark: Callable[[], "SparkSession | None"],
    lake: Lake,
    plan: plans.RebuildPlan,
    part: Part,
    tables: Sequence[str],
    say: Callable[[str], None],
) -> None:
    """Rebuild tables that include the same history."""
    through, chosen = part
    history = History.open(lake, REDUCED_HISTORY, 1, through)
    partitions = [p for p in history.partitions() if chosen is None or p in chosen]
    compaction = Compaction(history, {table: {} for table in STATE}, tables)
    session = spark() if partitions else None
    items = divide(session, compaction, partitions, say)
    count = concurrent_tasks(session)
    results: list[dict[str, list[FileChanges]]] = []
    for first in range(0, len(items), count):
        say(f"rebuilding {', '.join(tables)}: {first} of {counted(len(items), 'task is done', 'tasks are done')}")
        results += distribute(session, partial(compact_item, compaction), items[first : first + count])
    remove_former_places(history, compaction.state_files, results)
    for table in tables:
        added = [action for result in results for changes in result[table] for action in changes.added]
        if chosen is None:
            replace_table(lake, table, added, JOB, plan.run_id)
        else:
            removed = [file["path"] for file in active_files(lake, table) if _span(file) & {*chosen}]
            commit(lake, table, [FileChanges(added, removed)], JOB, plan.run_id, rebuilt_scope([*chosen]))
    discard_files(lake, "offset_commits", {file.path for item in items for file in item.commits})
