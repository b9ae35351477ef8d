"""`compact`: updates the state tables (offsets, pending offsets, groups, members) from new history."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from offsetlake.lake import current_run, plans, runs
from offsetlake.lake.definitions import REDUCED_HISTORY, STATE
from offsetlake.lake.files import active_files, commit, committed, discard_files
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.history.history_files import History
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import list_state_files
from offsetlake.pipeline.compact.division import divide
from offsetlake.pipeline.compact.moved import remove_former_places
from offsetlake.pipeline.compact.rebuild import COMPACT, is_written, rebuild
from offsetlake.pipeline.compact.rebuild import JOB as REBUILD
from offsetlake.pipeline.compact.reduced_history import Compaction
from offsetlake.pipeline.compact.task import compact_item
from offsetlake.pipeline.ingest.job import JOB as INGEST
from offsetlake.pipeline.parallel import distribute
from offsetlake.rules.baseline import kept_share_state
from offsetlake.rules.share_replay import SHARE_PARTITION
from offsetlake.util.amounts import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = COMPACT


def compact(
    spark: Callable[[], "SparkSession | None"], lake: Lake, say: Callable[[str], None], through_run: int | None = None
) -> runs.FinishedRun:
    """Update the state tables to the newest finished ingest. An interrupted run is resumed, and compacts nothing else.

    Args:
        spark: Returns the Spark session; called only if there is new history.
        lake: The lake.
        say: Called with a text for each step.
        through_run: The newest run whose ingest is included; None for all.

    Returns:
        The row of `runs`.

    Raises:
        LakeBusy: Another job writes to the lake.
        LakeUnusable: The lake cannot be written.

    """
    with writing(lake, JOB, say):
        filled = _fill(spark, lake, say) | _fill_unresolved(spark, lake, say)
        plan = current_run.unfinished_plan(lake, JOB, plans.CompactPlan)
        if plan:
            say(f"run {plan.run_id} was interrupted: resuming it first")
            current = {table: lake.versions(table)[table] for table in _uncommitted(lake, plan)}
            plan = replace(plan, versions=plan.versions | current).with_notes(runs.RESUMED)
        else:
            plan = _plan(lake, through_run)
            plan = current_run.begin(lake, JOB, plan, idle=not plan.has_history)
        if plan.has_history:
            _apply(spark(), lake, plan, say)
        return _finish(lake, plan, counted=plan.has_history or filled)


def _fill(spark: Callable[[], "SparkSession | None"], lake: Lake, say: Callable[[str], None]) -> bool:
    """Write to tables that an upgrade of the lake added what the last compaction would have; return if there is any.

    The rows are committed as those of that compaction, so they are written once. If they are written, but no compaction
    has counted them, the run that wrote them was interrupted, or was a rebuild.
    """
    table, last = "share_partitions", runs.last_run(lake, JOB)
    if last is None or table in last.counts:
        return False
    if is_written(lake, table):
        return True
    history = History.open(lake, ["share_state_records"], 1, last.through_run or 0)
    if not any(_has_share_state(history, partition) for partition in history.partitions()):
        return False
    say(f"filling table {table} from history")
    history = replace(history, files={name: [] for name in REDUCED_HISTORY} | history.files)
    compaction = Compaction(history, {name: {} for name in STATE}, [table])
    session = spark()
    items = divide(session, compaction, history.partitions(), say)
    results = distribute(session, partial(compact_item, compaction), items)
    commit(lake, table, [changes for result in results for changes in result[table]], JOB, last.run_id)
    return True


def _fill_unresolved(spark: Callable[[], "SparkSession | None"], lake: Lake, say: Callable[[str], None]) -> bool:
    """Rebuild what quarantined records make unknown, if an upgrade of the lake added it; return if there is any."""
    last = runs.last_run(lake, JOB)
    if last is None or "unresolved_records" in last.counts or not active_files(lake, "quarantine"):
        return False
    rebuild(spark, lake, say, ("groups", "group_members", "unresolved_records"))
    return True


def _has_share_state(history: History, partition: int) -> bool:
    """Return whether a share partition of a log partition has a state."""
    columns = [*SHARE_PARTITION, "log_partition", "log_offset", "kind"]
    return bool(kept_share_state(history.rows("share_state_records", [partition], columns=columns)).num_rows)


def _plan(lake: Lake, through_run: int | None) -> plans.CompactPlan:
    """Return the plan, which pins the table versions: an interrupted run starts again from the same."""
    compacted, ingested = runs.last_run(lake, JOB), runs.last_run(lake, INGEST, "done", through_run)
    through = (compacted.through_run if compacted else None) or 0
    return plans.CompactPlan(
        from_run=through + 1,
        through_run=max(through, ingested.run_id) if ingested else through,
        versions=lake.versions(*STATE),
    )


def _uncommitted(lake: Lake, plan: plans.CompactPlan) -> list[str]:
    """Return the tables that an interrupted run has not committed: others may have compacted their files since."""
    return [table for table in STATE if not committed(lake, table, JOB, plan.run_id)]


def _apply(spark: "SparkSession | None", lake: Lake, plan: plans.CompactPlan, say: Callable[[str], None]) -> None:
    first, last = plan.from_run, plan.through_run
    history = History.open(lake, REDUCED_HISTORY, first, last)
    files_before = {table: list_state_files(lake, table, version) for table, version in plan.versions.items()}
    partitions = history.partitions()
    say(f"compacting {counted(len(partitions), 'log partition')} of history")
    compaction = Compaction(history, files_before)
    items = divide(spark, compaction, partitions, say)
    results = distribute(spark, partial(compact_item, compaction), items)
    remove_former_places(history, files_before, results)
    for table in STATE:
        commit(lake, table, [changes for result in results for changes in result[table]], JOB, plan.run_id)
    discard_files(lake, "offset_commits", {file.path for item in items for file in item.commits})


def _finish(lake: Lake, plan: plans.CompactPlan, *, counted: bool) -> runs.FinishedRun:
    counts = {table: lake.count(table) for table in STATE} if counted else _former_counts(lake)
    return current_run.finish(
        lake,
        JOB,
        plan,
        outcome="done" if plan.has_history else "nothing new",
        counts=counts,
        coverage=runs.Coverage(through_run=plan.through_run),
    )


def _former_counts(lake: Lake) -> dict[str, int]:
    """Return the numbers of rows of the state tables as the last run that wrote them left them."""
    counts = dict.fromkeys(STATE, 0)
    written = [run for job in (JOB, REBUILD) if (run := runs.last_run(lake, job))]
    for run in sorted(written, key=lambda run: run.run_id):
        counts |= run.counts
    return counts
