"""The run of a job that is under way, or that was interrupted: its plan, and its row when it has finished.

A job first writes its plan to a file of the lake, then its tables, each commit tagged with the run, then its row in
`runs`, and removes the plan. After a kill, the next run of the job completes what is missing, by the same plan.
"""

from collections.abc import Mapping
from dataclasses import replace

from offsetlake.errors import LakeBusy, LakeUnusable
from offsetlake.lake import runs
from offsetlake.lake.files import FileChanges, TableFile, active_files, commit, committed
from offsetlake.lake.lake import Lake
from offsetlake.lake.plans import Plan, SomePlan
from offsetlake.util.times import now_ms

JOBS = ("ingest", "compact", "expire", "emit", *runs.BY_HAND, "maintain", "rebuild", "forget")


def unfinished_plan(lake: Lake, job: str, kind: type[SomePlan]) -> SomePlan | None:
    """Return the plan of an interrupted run of this job, or None; raises LakeUnusable if the file is no such plan."""
    try:
        stored = lake.files.read(_plan_file(job))
        plan = None if stored is None else kind.from_json(stored)
        if plan is None:
            return None
    except LakeUnusable as error:
        raise _lost_plan(lake, job, error.__cause__ or error) from error
    except (TypeError, AttributeError, KeyError) as error:
        raise _lost_plan(lake, job, error) from error
    if type(plan.run_id) is not int or plan.run_id < 1:
        raise _lost_plan(lake, job, "it has no number of a run")
    return None if runs.rows_of_runs(lake, plan.run_id, plan.run_id, ["run_id"]).num_rows else plan


def _lost_plan(lake: Lake, job: str, why: object) -> LakeUnusable:
    """Return the error about a plan that cannot be read: whether the job can start again depends on what it wrote."""
    finished = max((file["max.run_id"] for file in active_files(lake, "runs")), default=0)
    written = [table for table in lake.tables() if committed(lake, table, job, finished + 1)]
    if not written:
        remedy = "its run has written to no table: remove it, and the job starts again"
    elif job in ("compact", "rebuild"):
        remedy = f"its run has written to {', '.join(written)}: remove the file, and run `offsetlake rebuild` next"
    else:
        remedy = (
            f"its run has written to {', '.join(written)}, and cannot be completed without it: restore the file from a "
            "copy of the lake, or read the log into a new lake"
        )
    return LakeUnusable(f"{lake.location}/{_plan_file(job)} is not a plan of {job} ({why}): {remedy}")


def refuse_unfinished(lake: Lake, what: str) -> None:
    """Raise LakeBusy if a run is unfinished, of any job but maintain, which changes no row; `what` says why."""
    for job in JOBS:
        if job != "maintain" and (plan := unfinished_plan(lake, job, Plan)):
            why = f"run {plan.run_id} of {job} in {lake.location} {what}, and continues with the current tables"
            raise LakeBusy(f"{why}: run `offsetlake {'emit' if job in runs.BY_HAND else job}` again first")


def begin(lake: Lake, job: str, plan: SomePlan, *, idle: bool = False) -> SomePlan:
    """Assign a number to a run and write its plan, before anything else of the run is written.

    An idle run writes only its row, so it needs no plan: if it is killed, nothing of it is left.
    """
    others = [other.run_id for name in JOBS if (other := unfinished_plan(lake, name, Plan))]
    finished = [file["max.run_id"] for file in active_files(lake, "runs")]
    numbered = replace(plan, run_id=max([0, *others, *finished]) + 1, started_at=now_ms())
    if not idle:
        with lake.location.errors():
            lake.files.write(_plan_file(job), numbered.to_json())
    return numbered


def finish(
    lake: Lake,
    job: str,
    plan: Plan,
    *,
    outcome: str,
    counts: Mapping[str, int],
    log: str | None = None,
    ingested: runs.Ingested | None = None,
    coverage: runs.Coverage | None = None,
) -> runs.FinishedRun:
    """Write the row of the run, once, and remove its plan; `ingested` is what an ingest read.

    The versions of the tables in the report are those that the run, which holds the lock of the lake, leaves.
    """
    report = runs.FinishedRun(
        run_id=plan.run_id,
        job=job,
        outcome=outcome,
        started_at=plan.started_at,
        finished_at=max(now_ms(), plan.started_at),
        counts=dict(counts),
        notes=plan.notes,
        log=log,
        **(coverage._asdict() if coverage else {}),
        **(ingested._asdict() if ingested else {}),
    )
    file = TableFile(lake, "runs")
    file.write_rows([report.to_row()])
    # By these, readers notice a table that was replaced by an older copy, also if `verified.json` was replaced with it.
    others = lake.versions(*(table for table in lake.tables() if table != "runs"))
    commit(lake, "runs", [FileChanges(file.close())], job, plan.run_id, versions=others)
    with lake.location.errors():
        lake.files.remove(_plan_file(job))
    return replace(report, versions=lake.versions())


def _plan_file(job: str) -> str:
    return f"plan-{job}.json"
