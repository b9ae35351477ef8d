"""`ingest`: reads new records of the log into history, each once, and the log end offsets of topics."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from offsetlake.lake import current_run, plans, runs
from offsetlake.lake.definitions import HISTORY
from offsetlake.lake.files import commit, rows_of_run
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.positions import LogPartition, OffsetRange
from offsetlake.log.readiness import repair_after_crash
from offsetlake.log.reading import plan_readers, ranges_from_json
from offsetlake.pipeline.ingest import log_ends
from offsetlake.pipeline.ingest.known_log import LastRead
from offsetlake.pipeline.ingest.plan import plan_ingest, resume_ingest
from offsetlake.pipeline.ingest.task import Reading, read_history
from offsetlake.pipeline.parallel import concurrent_tasks, distribute
from offsetlake.util.amounts import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "ingest"


def ingest(
    spark: Callable[[], "SparkSession | None"],
    lake: Lake,
    log: LogAddress,
    say: Callable[[str], None],
    ask: log_ends.Ask | None = None,
) -> runs.FinishedRun:
    """Read new records of the log into the history tables. An interrupted run is resumed, and reads nothing else.

    Args:
        spark: Returns the Spark session; called only if there is something to read.
        lake: The lake.
        log: The log.
        say: Called with a text for each step.
        ask: Returns the log end offsets of topics, which are recorded in `log_ends`; None without a live cluster.

    Returns:
        The row of `runs`.

    Raises:
        LogUnavailable: The log cannot be read.
        LogMismatch: The log is not the one that this lake was read from.
        LakeBusy: Another job writes to the lake.
        LakeUnusable: The lake cannot be written.

    """
    with writing(lake, JOB, say):
        repair_after_crash(log)
        interrupted = current_run.unfinished_plan(lake, JOB, plans.IngestPlan)
        plan = resume_ingest(interrupted, log, lake) if interrupted else None
        if plan:
            say(f"run {plan.run_id} was interrupted: resuming it first")
        else:
            say(f"checking the log {log}")
            plan = plan_ingest(log, runs.last_run(lake, JOB), lake)
            ends = ask(log_ends.known_topics(lake)) if ask else log_ends.RequestedEnds([], [])
            plan = replace(plan, log_ends=tuple(map(tuple, ends.rows)), log_ends_asked=ends.asked_timestamp)
            plan = plan.with_notes(*ends.notes)
            plan = current_run.begin(lake, JOB, plan, idle=not ranges_from_json(plan.ranges) and ask is None)
        for note in plan.notes:
            say(note)
        ranges = ranges_from_json(plan.ranges)
        if ranges:
            records = sum(offsets.end - offsets.start for offsets in ranges.values())
            say(f"reading {counted(records, 'log offset')} of {counted(len(ranges), 'log partition')}")
            _write_history(spark(), lake, log, plan)
        plan = _record_ends(lake, plan, ask)
        return _finish(lake, plan, ranges)


def _write_history(spark: "SparkSession | None", lake: Lake, log: LogAddress, plan: plans.IngestPlan) -> None:
    """Read the log in parallel, each task into its own files, and commit each table once."""
    pieces = plan_readers(log, ranges_from_json(plan.ranges), concurrent_tasks(spark))
    results = distribute(spark, partial(read_history, Reading(log, lake, plan.run_id)), pieces)
    for table in HISTORY:
        commit(lake, table, [changes[table] for changes in results], JOB, plan.run_id)


def _record_ends(lake: Lake, plan: plans.IngestPlan, ask: log_ends.Ask | None) -> plans.IngestPlan:
    """Record the log end offsets that were read with the plan, and those of topics that this run read first."""
    topics = log_ends.read_topics(lake, plan.run_id) if ask else set()
    known = log_ends.known_topics(lake) if topics else topics
    ends = ask(topics - known) if ask and topics else log_ends.RequestedEnds([], [])
    asked = ends.asked_timestamp if plan.log_ends_asked is None else plan.log_ends_asked
    log_ends.record(lake, plan.run_id, [*plan.log_ends, *ends.rows], asked)
    return plan.with_notes(*ends.notes)


def _finish(lake: Lake, plan: plans.IngestPlan, ranges: Mapping[LogPartition, OffsetRange]) -> runs.FinishedRun:
    counts = {table: rows_of_run(lake, table, plan.run_id) if ranges else 0 for table in HISTORY}
    ends = [LastRead(*position) for position in plan.positions]
    positions = tuple(runs.IngestPosition(*end[:4]) for end in ends)
    epochs = tuple(
        runs.LeaderEpoch(*end.log_partition, end.leader_epoch) for end in ends if end.leader_epoch is not None
    )
    gaps = _as_rows(ranges_from_json(plan.gaps))
    return current_run.finish(
        lake,
        JOB,
        plan,
        outcome="done" if ranges else "nothing new",
        counts=counts,
        log=plan.log,
        ingested=runs.Ingested(
            plan.log_identity,
            _as_rows(ranges),
            positions,
            gaps,
            epochs,
            plan.log_partitions,
            plan.grown,
            tuple(runs.AbsentPartition(*where) for where in plan.absent),
            tuple(runs.LogRange(*part) for part in plan.missing),
        ),
    )


def _as_rows(ranges: Mapping[LogPartition, OffsetRange]) -> tuple[runs.LogRange, ...]:
    return tuple(runs.LogRange(*where, *offsets) for where, offsets in ranges.items())
