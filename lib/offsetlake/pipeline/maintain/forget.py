"""`forget`: replaces the name and addresses of a principal in the audit events and in old versions of their table."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake import current_run, plans, runs, upkeep
from offsetlake.lake.files import FileChanges, TableFile
from offsetlake.lake.foreign.guard import record, refuse_changed, writing
from offsetlake.lake.history.history_cuts import replace_files
from offsetlake.lake.history.history_files import History
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.lake.upkeep import VacuumRetention
from offsetlake.util.amounts import counted

JOB = "forget"
FORGOTTEN = "forgotten"
"""What a forgotten principal is called in `audit_events`; its client ids and addresses are null."""

_TABLE = "audit_events"


def rows_about(lake: Lake, principal: str) -> pa.Table:
    """Return how many rows of each table contain the principal or a host from which it connected, and what is done.

    | column | description |
    |--------|-------------|
    | table  | the table |
    | column | the column with the name or the host |
    | rows   | number of such rows |
    | action | replace; or keep: the column does not say which principal the client was |
    """
    name = f"principal = {quoted(principal)}"
    named = lake.count(_TABLE, name)
    found = [{"table": _TABLE, "column": "principal", "rows": named, "action": "replace"}]
    addresses = lake.query(f"SELECT DISTINCT address FROM {_TABLE} WHERE {name} AND address IS NOT NULL", _TABLE)  # noqa: S608
    hosts = sorted({address.rpartition(":")[0] or address for address in addresses["address"].to_pylist()})
    for table, column, condition in (
        ("group_members", "client_host", "client_host IN ({0}, {1})"),
        (
            "group_records",
            "value",
            "strpos(value, concat('\"', {0}, '\"')) > 0 OR strpos(value, concat('\"', {1}, '\"')) > 0",
        ),
    ):
        either = " OR ".join(condition.format(quoted(host), quoted(f"/{host}")) for host in hosts)
        rows = lake.count(table, either) if hosts else 0
        found.append({"table": table, "column": column, "rows": rows, "action": "keep"})
    return pa.Table.from_pylist(found)


def forget(lake: Lake, principal: str, say: Callable[[str], None]) -> runs.FinishedRun:
    """Replace the name, client ids and addresses of a principal, and remove what older versions of the table contain.

    An interrupted run is resumed first. The row of `runs` counts the replaced rows, and does not name the principal.

    Args:
        lake: The lake.
        principal: The principal as audit events name it, such as `User:alice`.
        say: Called with a text for each step.

    Returns:
        The row of `runs`.

    Raises:
        LakeBusy: Another job writes to the lake.
        LakeUnusable: The lake cannot be written.

    """
    with writing(lake, JOB, say):
        plan = current_run.unfinished_plan(lake, JOB, plans.ForgetPlan)
        if plan:
            say(f"run {plan.run_id} was interrupted: resuming it first")
            report = _run(lake, plan.with_notes(runs.RESUMED), say)
            if plan.principal == principal and not _count(lake, principal):
                return report
        return _run(
            lake, current_run.begin(lake, JOB, plans.ForgetPlan(principal=principal, rows=_count(lake, principal))), say
        )


def _count(lake: Lake, principal: str) -> int:
    return lake.count(_TABLE, f"principal = {quoted(principal)}")


def _run(lake: Lake, plan: plans.ForgetPlan, say: Callable[[str], None]) -> runs.FinishedRun:
    say(f"replacing the principal in {counted(plan.rows, 'audit event')}")
    replace_files(lake, _TABLE, _without_principal(lake, plan.principal), JOB, plan.run_id)
    say("removing the files and the log entries of older versions of the table")
    upkeep.vacuum(lake, _TABLE, VacuumRetention(0, 0), dry_run=False)
    upkeep.checkpoint(lake, _TABLE)
    record(lake, {_TABLE: refuse_changed(lake, _TABLE)[_TABLE].version})  # their commits cannot be verified later
    upkeep.remove_log(lake, _TABLE)  # its entries contain the least and the greatest name of each file
    outcome = "done" if plan.rows else "nothing new"
    return current_run.finish(lake, JOB, plan, outcome=outcome, counts={_TABLE: plan.rows})


def _without_principal(lake: Lake, principal: str) -> FileChanges:
    """Write each file that contains the principal again without its name, client ids and addresses."""
    history, changes = History.open(lake, [_TABLE]), FileChanges()
    for listed in history.files[_TABLE]:
        one = replace(history, files={_TABLE: [listed]})
        partitions = range(listed.first_partition, listed.last_partition + 1)
        if not one.rows(_TABLE, partitions, pc.field("principal") == principal, ["log_offset"]).num_rows:
            continue
        file = TableFile(lake, _TABLE)
        for batch in one.batches(_TABLE, partitions):
            file.write(_replaced(batch, principal))
        changes.added += file.close()
        changes.removed.append(listed.path)
    return changes


def _replaced(rows: pa.Table, principal: str) -> pa.Table:
    about = pc.equal(rows["principal"], principal)
    for name, value in (("principal", FORGOTTEN), ("client_id", None), ("address", None)):
        column = pc.if_else(about, pa.scalar(value, pa.string()), rows[name])
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows
