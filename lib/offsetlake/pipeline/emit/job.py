"""`emit`: writes planned tombstones and alterations to the log if their offsets have not changed, and records outcomes.

The table `offsets` does not change: the next ingest and compact read the records from the log. If a run is interrupted,
the next one finds the records that are already in the log, and does not write them again.
"""

from collections import Counter
from collections.abc import Callable

import pyarrow as pa

from offsetlake.errors import LakeUnusable
from offsetlake.lake import current_run, plans, runs
from offsetlake.lake.files import commit
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.emit.decisions import BY_HAND, DECIDED
from offsetlake.pipeline.emit.log_writer import Writer, open_writer
from offsetlake.pipeline.emit.task import PLANNERS, Emission
from offsetlake.pipeline.ingest.known_log import check_same_log
from offsetlake.queries.questions import outcomes
from offsetlake.util.amounts import counted

JOB = "emit"

_PLANNED_BY_RETENTION = f"outcome = 'planned' AND rule <> '{BY_HAND}'"
MAX_PASS_ROWS = 1 << 21  # approximate number of decisions in memory at a time
CUT_SHORT = "was interrupted: the next emit continues with what was planned and not written"


def emit(
    lake: Lake,
    log: LogAddress,
    say: Callable[[str], None],
    selected: pa.Table | None = None,
    requester: str | None = None,
) -> runs.FinishedRun:
    """Write planned `tombstones` and `alterations` to the log, or through a live cluster.

    Args:
        lake: The lake.
        log: The log.
        say: Shows the current step.
        selected: The only decisions to emit, tombstones with the columns of `decisions.TOMBSTONE`; None for all. The
            others remain planned.
        requester: The principal for whom the user of this process emits, as of `changes.execute`.

    Returns:
        The row of `runs`; its counts are the number of decisions by outcome.

    Raises:
        LakeBusy: Another job writes to the lake.
        LogBusy: Another process writes to the log.
        LogMismatch: The log is not the one that the lake was read from.
        LogUnavailable: The log cannot be read or written.
        LakeUnusable: The tables were compacted after the last evaluation of retention.

    """
    owner, notes = (JOB, ()) if requester is None else (f"{JOB} for {requester}", (runs.requested_by(requester),))
    with writing(lake, JOB, say), open_writer(log, owner) as writer:
        close_cut_short(lake)
        writer.notes += notes
        return emit_through(writer, lake, log, say, selected=selected)


def close_cut_short(lake: Lake) -> None:
    """Write the row of `runs` of interrupted runs of `emit` and of jobs that emit."""
    for job in (JOB, *runs.BY_HAND):
        if interrupted := current_run.unfinished_plan(lake, job, plans.Plan):
            current_run.finish(lake, job, interrupted.with_notes(CUT_SHORT), outcome="done", counts={})


def emit_through(
    writer: Writer,
    lake: Lake,
    log: LogAddress,
    say: Callable[[str], None],
    planned_by: int | None = None,
    live: pa.Table | None = None,
    selected: pa.Table | None = None,
) -> runs.FinishedRun:
    """Emit for a job that has locked the lake and opened the log.

    Args:
        writer: Writes to the log.
        lake: The lake.
        log: The log.
        say: Shows the current step.
        planned_by: The only run whose plan is emitted; None for all plans.
        live: Rows of `alterations` of groups with members; None for none.
        selected: The only decisions to emit, see `emit`.
    """
    check_same_log(lake, log, log.describe())
    if planned_by is None:
        check_evaluated_since_compaction(lake)
    plan = current_run.begin(lake, JOB, plans.Plan(notes=(*writer.notes,)))
    emission = Emission(lake, log, writer, plan.run_id, planned_by, selected)
    partitions = emission.partitions()
    counts: Counter[str] = Counter(emitted=0, gone=0, done=0, refused=0)
    size = max(1, len(partitions) * MAX_PASS_ROWS // max(1, emission.count()))
    for first in range(0, len(partitions), size):
        say(f"writing planned records: {first} of {counted(len(partitions), 'log partition')}")
        counts.update(emission.emit(partitions[first : first + size]))
    if live is not None and live.num_rows:
        say("setting offsets while members run")
        counts.update(emission.rewind(live))
    writer.sync()
    outcomes = emission.close()
    for table in DECIDED:
        commit(lake, table, [outcomes[table]], JOB, plan.run_id)
    outcome, sorted_counts = "done" if counts.total() else "nothing new", dict(sorted(counts.items()))
    # Nothing that was planned before is left, but the tables do not include what was written since they were compacted.
    open_run = min(plan.run_id, emission.through_run + 1) if planned_by is None and selected is None else None
    coverage = runs.Coverage(open_run=open_run)
    return current_run.finish(lake, JOB, plan, outcome=outcome, log=str(log), counts=sorted_counts, coverage=coverage)


def check_evaluated_since_compaction(lake: Lake) -> None:
    """Raise LakeUnusable if retention planned tombstones before the last compaction: groups may have changed since."""
    compacted, evaluated = runs.last_run(lake, "compact", "done"), runs.last_run(lake, "expire")
    if evaluated and (compacted is None or evaluated.run_id > compacted.run_id):
        return
    if outcomes(lake, _PLANNED_BY_RETENTION, runs.open_run(lake, *PLANNERS["tombstones"])).num_rows:
        raise LakeUnusable(
            "The planned tombstones are older than the last compaction of the tables: run `offsetlake expire` again "
            "before `offsetlake emit`."
        )
