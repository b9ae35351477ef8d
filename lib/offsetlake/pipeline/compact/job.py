"""`compact`: updates the state tables (offsets, pending offsets, groups, members) from new history."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from offsetlake.lake import runs
from offsetlake.lake.definitions import REDUCED_HISTORY, STATE
from offsetlake.lake.files import commit, committed
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.history_files import History
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import list_state_files
from offsetlake.pipeline.compact.task import Compaction, compact_partitions
from offsetlake.pipeline.ingest.job import JOB as INGEST
from offsetlake.pipeline.parallel import chunk_partitions, distribute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "compact"

"""The history tables that determine the state tables."""


def compact(
    spark: Callable[[], "SparkSession | None"], lake: Lake, say: Callable[[str], None], through_run: int | None = None
) -> runs.Report:
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
        plan = runs.unfinished_plan(lake, JOB, runs.CompactPlan)
        if plan:
            say(f"run {plan.run_id} was interrupted: resuming it first")
            current = {table: lake.versions(table)[table] for table in _uncommitted(lake, plan)}
            plan = replace(plan, versions=plan.versions | current).with_notes(runs.RESUMED)
        else:
            plan = runs.begin(lake, JOB, _plan(lake, through_run))
        if plan.from_run <= plan.through_run:
            _apply(spark(), lake, plan, say)
        return _finish(lake, plan)


def _plan(lake: Lake, through_run: int | None) -> runs.CompactPlan:
    """Return the plan, which pins the table versions: an interrupted run starts again from the same."""
    compacted, ingested = runs.last_run(lake, JOB), runs.last_run(lake, INGEST, "done", through_run)
    through = (compacted.through_run if compacted else None) or 0
    return runs.CompactPlan(
        from_run=through + 1,
        through_run=max(through, ingested.run_id) if ingested else through,
        versions=lake.versions(*STATE),
    )


def _uncommitted(lake: Lake, plan: runs.CompactPlan) -> list[str]:
    """Return the tables that an interrupted run has not committed: others may have compacted their files since."""
    return [table for table in STATE if not committed(lake, table, JOB, plan.run_id)]


def _apply(spark: "SparkSession | None", lake: Lake, plan: runs.CompactPlan, say: Callable[[str], None]) -> None:
    first, last = plan.from_run, plan.through_run
    history = History.open(lake, REDUCED_HISTORY, first, last)
    files_before = {table: list_state_files(lake, table, version) for table, version in plan.versions.items()}
    partitions = history.partitions()
    say(f"compacting {len(partitions)} log partitions of history")
    task = partial(compact_partitions, Compaction(history, files_before))
    results = distribute(spark, task, chunk_partitions(spark, partitions))
    for table in STATE:
        commit(lake, table, [changes for result in results for changes in result[table]], JOB, plan.run_id)


def _finish(lake: Lake, plan: runs.CompactPlan) -> runs.Report:
    counts = {table: lake.count(table) for table in STATE}
    return runs.finish(
        lake,
        JOB,
        plan,
        outcome="done" if plan.from_run <= plan.through_run else "nothing new",
        through_run=plan.through_run,
        counts=counts,
    )
