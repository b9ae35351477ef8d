"""`rebuild`: tables of latest state are made anew from history, by the code of `compact` over empty tables.

Each table holds what the compactions that wrote to it have covered, no more: whatever comes next goes on from there.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from offsetlake.errors import TableChanged
from offsetlake.lake import runs
from offsetlake.lake.commits import rebuilt
from offsetlake.lake.definitions import TABLES, add_checks, definition
from offsetlake.lake.files import FileChanges, active_files, commit, committed
from offsetlake.lake.foreign.guard import STATE, record, refuse_changed
from offsetlake.lake.foreign.remake import replace_table, take_features_away
from offsetlake.lake.history_files import History
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.compact.job import HISTORY
from offsetlake.pipeline.compact.job import JOB as COMPACT
from offsetlake.pipeline.compact.task import COMPACTED, Compaction, compact_partitions
from offsetlake.pipeline.parallel import chunk_partitions, concurrent_tasks, distribute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "rebuild"

Part = tuple[int, tuple[int, ...] | None]
"""What a table is rebuilt from and how much of it: the newest ingest run, and log partitions; None for all."""


def rebuild(
    spark: Callable[[], "SparkSession | None"],
    lake: Lake,
    say: Callable[[str], None],
    tables: Sequence[str] = TABLES,
    log_partition: int | None = None,
) -> runs.Report:
    """Rebuild tables of latest state from history, all rows or those of one log partition; gives the row of `runs`.

    Table features that deltalake cannot write are taken away from any table. Each table is exchanged in one commit, so
    a kill leaves the old or the new one; a run that was cut short is finished by its plan first. Raises LakeBusy where
    another job writes, TableChanged where another program changed history, LakeUnusable where it cannot be written.
    """
    with lake.lock(JOB, say):
        plan = runs.unfinished_plan(lake, JOB, runs.RebuildPlan)
        if plan:
            say(f"run {plan.run_id} was cut short: finishing it first")
            done = _run(spark, lake, plan.with_notes(runs.RESUMED), say)
            if (plan.tables, plan.log_partition) == ((*tables,), log_partition):
                return done
        refuse_changed(lake, *HISTORY, "runs")
        plan = runs.RebuildPlan(tables=(*tables,), log_partition=log_partition, versions=lake.versions(*tables))
        return _run(spark, lake, runs.begin(lake, JOB, plan), say)


def _run(
    spark: Callable[[], "SparkSession | None"], lake: Lake, plan: runs.RebuildPlan, say: Callable[[str], None]
) -> runs.Report:
    refuse_changed(lake, *HISTORY, "runs")
    for table in plan.tables:
        if taken := take_features_away(lake, table):
            plan = plan.with_notes(f"table {table} has the features {', '.join(sorted(taken))} no more")
    tables = [table for table in plan.tables if table in STATE]
    for part, some in _parts(lake, plan, tables).items():
        _rebuild(spark, lake, plan, part, some, say)
    for table in tables:
        add_checks(lake.delta_table(table), definition(table), since=0)
    if plan.log_partition is None:  # what was committed before the rebuild decides nothing any more
        record(lake, {table: plan.versions[table] for table in tables})
    verified: dict[str, int] = {}
    for table in plan.tables:
        try:
            verified[table] = refuse_changed(lake, table)[table].version
        except TableChanged as error:
            plan = plan.with_notes(f"still refused: {error}")
    record(lake, verified)
    counts = {table: lake.count(table) for table in tables}
    return runs.finish(lake, JOB, plan, outcome="done", counts=counts)


def _parts(lake: Lake, plan: runs.RebuildPlan, tables: Sequence[str]) -> dict[Part, list[str]]:
    """Sort the tables that this run has not written yet by what they are rebuilt from."""
    found: dict[Part, list[str]] = {}
    for table in tables:
        if not committed(lake, table, JOB, plan.run_id):
            part = _covered(lake, table), _partitions(lake, table, plan.log_partition)
            found.setdefault(part, []).append(table)
    return found


def _covered(lake: Lake, table: str) -> int:
    """Return the newest ingest run a table covers, also where a compaction was cut short before or after it."""
    compacted, unfinished = runs.last_run(lake, COMPACT), runs.unfinished_plan(lake, COMPACT, runs.CompactPlan)
    if unfinished and committed(lake, table, COMPACT, unfinished.run_id):
        return unfinished.through_run
    return (compacted.through_run if compacted else None) or 0


def _partitions(lake: Lake, table: str, log_partition: int | None) -> tuple[int, ...] | None:
    """Return the log partitions to rebuild, given one: those that share files with it too; None for all."""
    if log_partition is None:
        return None
    try:
        files = active_files(lake, table)
    except TableChanged:  # no plain Parquet: only all of it can be exchanged
        return None
    if any(file.get("min.log_partition") is None for file in files):  # nor can files that do not say what they hold
        return None
    spans = [_span(file) for file in files]
    chosen, before = {log_partition}, set[int]()
    while chosen != before:
        before = chosen
        chosen = chosen.union(*(span for span in spans if span & chosen))
    return tuple(sorted(chosen))


def _span(file: dict[str, Any]) -> set[int]:
    return {*range(file["min.log_partition"], file["max.log_partition"] + 1)}


def _rebuild(
    spark: Callable[[], "SparkSession | None"],
    lake: Lake,
    plan: runs.RebuildPlan,
    part: Part,
    tables: Sequence[str],
    say: Callable[[str], None],
) -> None:
    """Rebuild tables that cover the same of history."""
    through, chosen = part
    history = History.open(lake, HISTORY, 1, through)
    partitions = [p for p in history.partitions() if chosen is None or p in chosen]
    task = partial(compact_partitions, Compaction(history, {table: {} for table in COMPACTED}, tables))
    session = spark() if partitions else None
    pieces = chunk_partitions(session, partitions)
    at_once = concurrent_tasks(session)
    made: list[dict[str, list[FileChanges]]] = []
    for at in range(0, len(pieces), at_once):
        done = sum(map(len, pieces[:at]))
        say(f"rebuilding {', '.join(tables)}: {done} of {len(partitions)} log partitions")
        made += distribute(session, task, pieces[at : at + at_once])
    for table in tables:
        added = [action for of in made for exchange in of[table] for action in exchange.added]
        if chosen is None:
            replace_table(lake, table, added, JOB, plan.run_id)
        else:
            removed = [file["path"] for file in active_files(lake, table) if _span(file) & {*chosen}]
            mark = rebuilt(JOB, plan.run_id, [*chosen])
            commit(lake, table, [FileChanges(added, removed)], JOB, plan.run_id, mark)
