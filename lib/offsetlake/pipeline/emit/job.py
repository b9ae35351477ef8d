"""`emit`: what was planned goes out, each decision only if what it judged still stands; the outcome is recorded.

Nothing here edits `offsets`: what is written goes into the log, and the next ingest and compact bring it in. Killed
anywhere and run again, a decision whose write is in the log already is found there, and not written twice.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from offsetlake.errors import LakeUnusable
from offsetlake.lake import runs
from offsetlake.lake.files import commit
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.emit.decisions import BY_HAND, DECIDED
from offsetlake.pipeline.emit.log_writer import Writer, open_writer
from offsetlake.pipeline.emit.task import Emission
from offsetlake.pipeline.ingest.plan import check_same_log
from offsetlake.queries.questions import outcomes

JOB = "emit"

_PLANNED_BY_RETENTION = f"outcome = 'planned' AND rule <> '{BY_HAND}'"
ROWS_A_PASS = 1 << 21  # decisions in memory at a time, about
CUT_SHORT = "was cut short: what it had planned, and not written, the next emit goes on with"


def emit(lake: Lake, log: LogAddress, say: Callable[[str], None]) -> runs.Report:
    """Write what is planned in `tombstones` and `alterations` to the log, or do it through a live cluster.

    Gives the run's row of `runs`: `counts` tell how many decisions came to which outcome. Raises LakeBusy, LogBusy
    where another writes; LogMismatch where the log is not the lake's; LogUnavailable; LakeUnusable where what retention
    planned was not judged on the tables as they are now.
    """
    with writing(lake, JOB, say), open_writer(log, JOB) as writer:
        close_cut_short(lake)
        return emit_through(writer, lake, log, say)


def close_cut_short(lake: Lake) -> None:
    """Give runs of emit, and of those who have things emitted, that were cut short their rows in `runs`."""
    for job in (JOB, *runs.BY_HAND):
        if cut_short := runs.unfinished_plan(lake, job, runs.Plan):
            runs.finish(lake, job, replace(cut_short, notes=(CUT_SHORT,)), outcome="done", counts={})


def emit_through(
    writer: Writer, lake: Lake, log: LogAddress, say: Callable[[str], None], planned_by: int | None = None
) -> runs.Report:
    """Do as `emit`, for a job that holds the lake's lock and the way to the log; only what run `planned_by` planned."""
    check_same_log(lake, log, log.describe())
    if planned_by is None:
        _refuse_what_was_not_judged_since(lake)
    plan = runs.begin(lake, JOB, runs.Plan(notes=(*writer.notes,)))
    emission = Emission(lake, log, writer, plan.run_id, planned_by)
    partitions = emission.partitions()
    counts: Counter[str] = Counter(emitted=0, gone=0, done=0, refused=0)
    size = max(1, len(partitions) * ROWS_A_PASS // max(1, sum(map(lake.count, DECIDED))))
    for at in range(0, len(partitions), size):
        say(f"writing what is planned: {at} of {len(partitions)} log partitions")
        counts.update(emission.emit(partitions[at : at + size]))
    writer.sync()
    exchanges = emission.close()
    for table in DECIDED:
        commit(lake, table, [exchanges[table]], JOB, plan.run_id)
    outcome = "done" if counts.total() else "nothing new"
    return runs.finish(lake, JOB, plan, outcome=outcome, log=str(log), counts=dict(sorted(counts.items())))


def _refuse_what_was_not_judged_since(lake: Lake) -> None:
    """Refuse what retention planned where the tables are newer than its last judgement: groups may have changed."""
    compacted, judged = runs.last_run(lake, "compact", "done"), runs.last_run(lake, "expire")
    if judged and (compacted is None or judged.run_id > compacted.run_id):
        return
    if outcomes(lake, _PLANNED_BY_RETENTION).num_rows:
        raise LakeUnusable(
            "tombstones are planned, but the tables were brought up to date since: judge them again with "
            "`offsetlake expire` first"
        )
