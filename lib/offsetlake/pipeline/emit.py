"""`emit`: what was planned goes out, each decision only if what it judged still stands; the outcome is recorded.

Nothing here edits `offsets`: what is written goes into the log, and the next ingest and compact bring it in. Killed
anywhere and run again, a decision whose write is in the log already is found there, and not written twice.
"""

from collections import Counter
from collections.abc import Callable

from offsetlake.lake import runs
from offsetlake.lake.files import commit
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.decisions import DECIDED
from offsetlake.pipeline.emission import Emission
from offsetlake.pipeline.ingest import Report
from offsetlake.pipeline.planning import check_same_log
from offsetlake.pipeline.writers import Writer, open_writer

JOB = "emit"
PARTITIONS_A_PASS = 16  # log partitions whose decisions are in memory at a time
CUT_SHORT = "was cut short: what it had planned, and not written, the next emit goes on with"


def emit(lake: Lake, log: LogAddress, say: Callable[[str], None]) -> Report:
    """Write what is planned in `tombstones` and `alterations` to the log, or do it through a live cluster.

    Gives the run's row of `runs`: `counts` tell how many decisions came to which outcome. Raises LakeBusy, LogBusy
    where another writes; LogMismatch where the log is not the lake's; LogUnavailable; LakeUnusable where what retention
    planned was not judged on the tables as they are now.
    """
    with lake.lock(JOB, say), open_writer(log, JOB) as writer:
        close_cut_short(lake)
        return emit_through(writer, lake, log, say)


def close_cut_short(lake: Lake) -> None:
    """Give runs of emit, and of those who have things emitted, that were cut short their rows in `runs`."""
    for job in (JOB, *runs.BY_HAND):
        if cut_short := runs.unfinished_plan(lake, job):
            runs.finish(lake, job, cut_short | {"notes": [CUT_SHORT]}, outcome="done", counts=[])


def emit_through(
    writer: Writer, lake: Lake, log: LogAddress, say: Callable[[str], None], planned_by: int | None = None
) -> Report:
    """Do as `emit`, for a job that holds the lake's lock and the way to the log; only what run `planned_by` planned."""
    check_same_log(lake, log, log.describe())
    plan = runs.begin(lake, JOB, {"notes": writer.notes})
    emission = Emission(lake, log, writer, plan["run_id"], planned_by)
    partitions = emission.partitions()
    counts: Counter[str] = Counter(emitted=0, gone=0, done=0, refused=0)
    for at in range(0, len(partitions), PARTITIONS_A_PASS):
        say(f"writing what is planned: {at} of {len(partitions)} log partitions")
        counts.update(emission.emit(partitions[at : at + PARTITIONS_A_PASS]))
    writer.sync()
    exchanges = emission.close()
    for table in DECIDED:
        commit(lake, table, [exchanges[table]], JOB, plan["run_id"])
    outcome = "done" if counts.total() else "nothing new"
    return runs.finish(lake, JOB, plan, outcome=outcome, log=str(log), counts=sorted(counts.items()))
