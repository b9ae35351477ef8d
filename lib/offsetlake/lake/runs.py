"""Table `runs` and the plan of the run under way: how a job knows where the last one ended, and what a kill cut short.

A job first writes its plan to a file of the lake, then its tables, each write tagged with the run, then its row in
`runs`, and takes the plan away. Whatever is missing after a kill, the next run of the job does first, by the same plan.
"""

from typing import Any

import pyarrow.parquet as pq

from offsetlake.errors import LakeBusy
from offsetlake.lake.definitions import definition
from offsetlake.lake.files import FileChanges, TableFile, active_files, commit, table_schema
from offsetlake.lake.lake import Lake, disk_errors
from offsetlake.util.times import now_ms

Plan = dict[str, Any]
"""Plain JSON: `run_id`, `started_at` (ms), `notes`, and what the job needs to do the same again."""

BY_HAND = ("cleanup", "reset", "restore", "undelete", "repair")
"""Jobs that write decisions down and have them emitted."""

JOBS = ("ingest", "compact", "expire", "emit", *BY_HAND, "maintain", "rebuild")

RESUMED = "finished after an interruption"
"""The note of a run that was cut short, and that a later call of its job finished by its plan."""


def last_run(lake: Lake, job: str, outcome: str | None = None, through: int | None = None) -> dict[str, Any] | None:
    """Newest row of a job in `runs`, or None; with that outcome; `through` passes over runs behind that one."""
    found: list[dict[str, Any]] = []
    for file in sorted(_files(lake), key=_newest, reverse=True):
        if found and _newest(file) < found[-1]["run_id"]:
            break
        if file["min.job"] <= job <= file["max.job"]:
            rows = pq.read_table(lake.table_path("runs") / file["path"], schema=table_schema("runs")).to_pylist()
            of_job = [row for row in rows if row["job"] == job and outcome in (None, row["outcome"])]
            found += [row for row in of_job if through is None or row["run_id"] <= through]
            found.sort(key=lambda row: int(row["run_id"]))
    return found[-1] if found else None


def _files(lake: Lake) -> list[dict[str, Any]]:
    """List the files of `runs`, mostly one a run, with the bounds of their columns: a query would open all of them."""
    return active_files(lake, "runs")


def _newest(file: dict[str, Any]) -> int:
    return int(file["max.run_id"])


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
    others = [other["run_id"] for name in JOBS if (other := lake.read_file(_plan_file(name)))]
    newest = max([0, *others, *map(_newest, _files(lake))])
    numbered = {"run_id": newest + 1, "started_at": now_ms(), "notes": [], **plan}
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
    commit(lake, "runs", [FileChanges(file.close())], job, plan["run_id"])
    with disk_errors(lake.path):
        lake.remove_file(_plan_file(job))
    return row | {"versions": lake.versions()}


def _plan_file(job: str) -> str:
    return f"plan-{job}.json"
