"""What a person asks for: planned where everyone can see it, then written like every decision, conditional on it.

A plan is a table with the columns of `tombstones` or `alterations`, and others that no table has. The outcome of a row
is `planned`, or `unchanged` if there is nothing to do; `reason` says why it cannot be done. A plan is made from tables
that are up to date, and holds only as long as what it is about stays as it is.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake import runs
from offsetlake.lake.files import FileChanges, TableFile, commit, table_schema
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.emit.decisions import replaced
from offsetlake.pipeline.emit.job import close_cut_short, emit_through
from offsetlake.pipeline.emit.log_writer import open_writer
from offsetlake.rules.reduction import KEY
from offsetlake.util.row_codes import rows_in

Make = Callable[[], pa.Table]
"""Makes a plan from the tables as they are."""


def execute(
    lake: Lake, log: LogAddress, job: str, table: str, make: Make, say: Callable[[str], None], notes: Sequence[str] = ()
) -> tuple[pa.Table, runs.Report]:
    """Plan, write the plan down in `table`, and do it; gives what came of each row, and the row of `runs` of the emit.

    Columns of the plan that no table has are beside what came of each row; rows without a change are as in the plan.

    The lake is locked throughout, and a log of our own too: what is planned is what is done. Killed in between, the
    plan stands, and the next `emit` goes on with it. Raises what `emit` raises.
    """
    with writing(lake, job, say), open_writer(log, job) as writer:
        close_cut_short(lake)
        plan = runs.begin(lake, job, runs.Plan(notes=(*notes,)))
        rows = replaced(with_outcome(make()), run_id=plan.run_id)
        unchanged = pc.equal(rows["outcome"], "unchanged")
        asked, rest = rows.filter(pc.invert(unchanged)), rows.filter(unchanged)
        file = TableFile(lake, table)
        file.write(asked)
        commit(lake, table, [FileChanges(file.close())], job, plan.run_id)
        counts = {name: count_of(asked, name) for name in ("planned", "refused")}
        runs.finish(lake, job, plan, outcome="done" if asked.num_rows else "nothing new", log=str(log), counts=counts)
        done = emit_through(writer, lake, log, say, planned_by=plan.run_id)
    ended = _came_of_it(lake, table, plan.run_id, done.run_id)
    for name in (name for name in rows.column_names if name not in ended.column_names):
        ended = ended.append_column(name, asked[name].take(pa.array(rows_in(ended, asked, KEY))))
    if rest.num_rows:
        ended = pa.concat_tables([ended, rest.select(ended.column_names).cast(ended.schema)])
    return ended.sort_by([(name, "ascending") for name in KEY]), done


def with_outcome(plan: pa.Table) -> pa.Table:
    """Call the rows refused that say why they cannot be done."""
    outcome = pc.if_else(pc.is_null(plan["reason"]), plan["outcome"], "refused")
    return plan.set_column(plan.schema.get_field_index("outcome"), "outcome", outcome)


def count_of(rows: pa.Table, outcome: str) -> int:
    """Count the rows that came to an outcome."""
    return int(pc.sum(pc.equal(rows["outcome"], outcome)).as_py() or 0)


def _came_of_it(lake: Lake, table: str, planned_by: int, emitted_by: int) -> pa.Table:
    """Give the rows that ended: refused when planned, or by the emit."""
    sql = f"""
        SELECT * FROM {table} WHERE run_id = {emitted_by} OR (run_id = {planned_by} AND outcome = 'refused')
        ORDER BY group_id, topic NULLS LAST, "partition\""""  # noqa: S608 - our own numbers
    return lake.query(sql, table)


def rows_of(table: str, columns: dict[str, pa.Array | pa.ChunkedArray | object], count: int) -> pa.Table:
    """Make rows of a table: columns as given, single values repeated, the others null."""
    made = {}
    for column in table_schema(table):
        value = columns.get(column.name)
        if not isinstance(value, pa.Array | pa.ChunkedArray):
            value = pa.repeat(pa.scalar(value, column.type), count)
        made[column.name] = value.cast(column.type)
    return pa.table(made)
