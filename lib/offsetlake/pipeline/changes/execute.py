"""Executes changes that a user requests: writes the plan to its table, then emits it like any other decision.

A plan has the columns of `tombstones` or `alterations`, and further columns that are only shown. The outcome of a row
is `planned`, or `unchanged` if there is nothing to do; `reason` is set if the change cannot be made. Plans are made
from tables that are up to date; `emit` refuses rows whose offset has changed since.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake import current_run, plans, runs
from offsetlake.lake.files import FileChanges, TableFile, commit, table_schema
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.writer.os_users import process_principal
from offsetlake.pipeline.changes.live import LIMIT
from offsetlake.pipeline.emit.decisions import replaced
from offsetlake.pipeline.emit.job import close_cut_short, emit_through
from offsetlake.pipeline.emit.log_writer import open_writer
from offsetlake.rules.reduction import KEY
from offsetlake.util.row_codes import rows_in

Make = Callable[[], pa.Table]
"""Makes a plan from the current tables."""


def execute(
    lake: Lake,
    log: LogAddress,
    job: str,
    table: str,
    make: Make,
    say: Callable[[str], None],
    notes: Sequence[str] = (),
    requester: str | None = None,
) -> tuple[pa.Table, runs.FinishedRun]:
    """Make a plan, write it to `table`, and emit it.

    The lake, and a log that offsetlake owns, stay locked in between. If the process is killed, the plan remains, and
    the next `emit` continues with it, except for offsets of groups with members. Raises what `make` raises, before
    anything is written, and what `emit` raises.

    Args:
        lake: The lake.
        log: The log.
        job: The job that the run is recorded as.
        table: The table of the plan: `tombstones` or `alterations`.
        make: Makes the plan.
        say: Shows the current step.
        notes: Notes of the run.
        requester: The principal for whom the user of this process makes the change, in the audit events; None for the
            user of this process. The notes of the runs contain either.

    Returns:
        The rows of the plan with their outcomes, and the row of `runs` of the emit.

    """
    owner = job if requester is None else f"{job} for {requester}"
    requested = runs.requested_by(requester or process_principal())
    with writing(lake, job, say), open_writer(log, owner) as writer:
        close_cut_short(lake)
        writer.notes.append(requested)
        made = with_outcome(make())
        plan = current_run.begin(lake, job, plans.Plan(notes=(*notes, requested)))
        rows = replaced(made, run_id=plan.run_id)
        unchanged, live = pc.equal(rows["outcome"], "unchanged"), _is_live(rows)
        changes, rest = rows.filter(pc.invert(pc.or_(unchanged, live))), rows.filter(unchanged)
        rewinds = rows.filter(live).select(table_schema(table).names).cast(table_schema(table))
        file = TableFile(lake, table)
        file.write(changes)
        commit(lake, table, [FileChanges(file.close())], job, plan.run_id)
        counts = {name: count_of(changes, name) for name in ("planned", "refused")}
        outcome = "done" if changes.num_rows or rewinds.num_rows else "nothing new"
        current_run.finish(lake, job, plan, outcome=outcome, log=str(log), counts=counts)
        run = emit_through(writer, lake, log, say, planned_by=plan.run_id, live=rewinds)
    ended = _ended_rows(lake, table, plan.run_id, run.run_id)
    for name in (name for name in rows.column_names if name not in ended.column_names):
        ended = ended.append_column(name, rows[name].take(pa.array(rows_in(ended, rows, KEY))))
    if rest.num_rows:
        ended = pa.concat_tables([ended, rest.select(ended.column_names).cast(ended.schema)])
    return ended.sort_by([(name, "ascending") for name in KEY]), run


def _is_live(rows: pa.Table) -> pa.ChunkedArray:
    """Return which rows are offsets to set while members run."""
    if LIMIT not in rows.column_names:
        return pc.is_null(rows["outcome"])  # of none
    return pc.and_(pc.is_valid(rows[LIMIT]), pc.equal(rows["outcome"], "planned"))


def with_outcome(plan: pa.Table) -> pa.Table:
    """Set the outcome of rows with a reason to `refused`."""
    outcome = pc.if_else(pc.is_null(plan["reason"]), plan["outcome"], "refused")
    return plan.set_column(plan.schema.get_field_index("outcome"), "outcome", outcome)


def count_of(rows: pa.Table, outcome: str) -> int:
    """Return the number of rows with this outcome."""
    return int(pc.sum(pc.equal(rows["outcome"], outcome)).as_py() or 0)


def _ended_rows(lake: Lake, table: str, planned_by: int, emitted_by: int) -> pa.Table:
    """Return the rows with an outcome: refused in the plan, or recorded by the emit."""
    sql = f"""
        SELECT * FROM {table} WHERE run_id = {emitted_by} OR (run_id = {planned_by} AND outcome = 'refused')
        ORDER BY group_id, topic NULLS LAST, "partition\""""  # noqa: S608 - numbers
    return lake.query(sql, table)


def rows_of(table: str, columns: dict[str, pa.Array | pa.ChunkedArray | object], count: int) -> pa.Table:
    """Return rows of a table from columns and constants; the other columns are null."""
    arrays = {}
    for column in table_schema(table):
        value = columns.get(column.name)
        if not isinstance(value, pa.Array | pa.ChunkedArray):
            value = pa.repeat(pa.scalar(value, column.type), count)
        arrays[column.name] = value.cast(column.type)
    return pa.table(arrays)
