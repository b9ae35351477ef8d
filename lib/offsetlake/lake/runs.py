"""Table `runs` and the plan of the run under way: how a job knows where the last one ended, and what a kill cut short.

A job first writes its plan to a file of the lake, then its tables, each write tagged with the run, then its row in
`runs`, and takes the plan away. Whatever is missing after a kill, the next run of the job does first, by the same plan.
"""

from typing import Any

from offsetlake.errors import LakeBusy
from offsetlake.lake.definitions import definition
from offsetlake.lake.files import Exchange, TableFile, commit
from offsetlake.lake.lake import Lake, disk_errors
from offsetlake.times import now_ms

Plan = dict[str, Any]
"""Plain JSON: `run_id`, `started_at` (ms), `notes`, and what the job needs to do the same again."""

BY_HAND = ("cleanup", "reset", "restore", "undelete", "repair")
"""Jobs that write decisions down and have them emitted."""

JOBS = ("ingest", "compact", "expire", "emit", *BY_HAND, "maintain")

RESUMED = "finished after an interruption"
"""The note of a run that was cut short, and that a later call of its job finished by its plan."""


def last_run(lake: Lake, job: str, outcome: str = "%", through: int | None = None) -> dict[str, Any] | None:
    """Newest row of a job in `runs`, or None; `through` passes over runs behind that one."""
    # The number first, then its row from its one file: whole rows of all runs take several times as long to read.
    sql = f"SELECT max(run_id) AS newest FROM runs WHERE job = '{job}' AND outcome LIKE '{outcome}'"  # noqa: S608
    sql += "" if through is None else f" AND run_id <= {through}"
    newest = lake.query(sql, "runs")["newest"][0].as_py()
    if newest is None:
        return None
    row: dict[str, Any] = lake.query(f"SELECT * FROM runs WHERE run_id = {newest}", "runs").to_pylist()[0]  # noqa: S608
    return row


def jobs(lake: Lake) -> dict[int, str]:
    """Give of each run which job it was."""
    rows = lake.query("SELECT run_id, job FROM runs", "runs").to_pylist()
    return {row["run_id"]: row["job"] for row in rows}


def compacted_positions(lake: Lake) -> dict[tuple[str, int], int]:
    """Give the log offset up to which the compacted tables cover each log partition, by log topic and partition."""
    compacted = last_run(lake, "compact")
    rows = positions_after(lake, compacted["through_run"]) if compacted else []
    return {(row["topic"], row["partition"]): row["position"] for row in rows}


def positions_after(lake: Lake, ingested: int) -> list[dict[str, Any]]:
    """Give `positions` of the ingest of that run number; nothing where there was none."""
    found = lake.query(f"SELECT positions FROM runs WHERE run_id = {ingested}", "runs").to_pylist()  # noqa: S608
    return list(found[0]["positions"]) if found else []


def unfinished_plan(lake: Lake, job: str) -> Plan | None:
    """Plan of a run of this job that was cut short, or None."""
    plan = lake.read_file(_plan_file(job))
    if plan is None or lake.query(f"SELECT 1 FROM runs WHERE run_id = {plan['run_id']}", "runs").num_rows:  # noqa: S608
        return None
    return plan


def refuse_unfinished(lake: Lake, what: str) -> None:
    """Raise LakeBusy where a run has not finished, of any job but maintain, which changes no row; `what` says why."""
    for job in JOBS:
        plan = unfinished_plan(lake, job) if job != "maintain" else None
        if plan:
            raise LakeBusy(
                f"run {plan['run_id']} of {job} in {lake.path} {what}, and goes on with what is there now: "
                f"run `offsetlake {'emit' if job in BY_HAND else job}` again first"
            )


def begin(lake: Lake, job: str, plan: Plan) -> Plan:
    """Give the run its number and write its plan down, before anything else of it."""
    newest = lake.query("SELECT coalesce(max(run_id), 0) AS newest FROM runs", "runs")["newest"][0].as_py()
    others = [other["run_id"] for name in JOBS if (other := lake.read_file(_plan_file(name)))]
    numbered = {"run_id": max(newest, *others, 0) + 1, "started_at": now_ms(), "notes": [], **plan}
    with disk_errors(lake.path):
        lake.write_file(_plan_file(job), numbered)
    return numbered


def finish(lake: Lake, job: str, plan: Plan, **columns: Any) -> dict[str, Any]:
    """Write the run's row, once, and take its plan away; gives the row.

    With it, as `versions`, the Delta version of each table: how the run, which holds the lake's lock, leaves them.
    """
    row = dict.fromkeys(definition("runs").column_names) | {
        "run_id": plan["run_id"],
        "job": job,
        "started_at": plan["started_at"],
        "finished_at": max(now_ms(), plan["started_at"]),
        "notes": plan["notes"],
        **columns,
    }
    file = TableFile(lake, "runs")
    file.write_rows([row])
    commit(lake, "runs", [Exchange(file.close())], job, plan["run_id"])
    with disk_errors(lake.path):
        lake.remove_file(_plan_file(job))
    return row | {"versions": lake.versions()}


def _plan_file(job: str) -> str:
    return f"plan-{job}.json"
