"""Rejects planned tombstones, and takes rejections back (`offsetlake.pipeline.expire.rejections`)."""

from collections.abc import Callable

import pyarrow as pa

from offsetlake.errors import BadRequest
from offsetlake.lake import current_run, plans, runs
from offsetlake.lake.files import FileChanges, TableFile, commit, table_schema
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.statements import statement
from offsetlake.pipeline.emit.decisions import SELECTION, TOMBSTONE, replaced
from offsetlake.pipeline.emit.job import close_cut_short
from offsetlake.pipeline.expire.rejections import rejections, store
from offsetlake.queries.review import planned_tombstones
from offsetlake.util.amounts import noun
from offsetlake.util.row_codes import among

JOB = "reject"


def reject(
    lake: Lake, selected: pa.Table, requester: str, say: Callable[[str], None]
) -> tuple[pa.Table, runs.FinishedRun]:
    """Withdraw planned tombstones, and do not plan them again for the same commits.

    Args:
        lake: The lake.
        selected: The decisions, with the columns of `decisions.TOMBSTONE`.
        requester: The principal that rejects them.
        say: Shows the current step.

    Returns:
        The rows of `tombstones`, with the outcome `withdrawn` and the requester in the reason, and the row of `runs`.

    Raises:
        BadRequest: A decision is not planned.
        LakeBusy: Another job writes to the lake.

    """
    with writing(lake, JOB, say):
        close_cut_short(lake)
        planned = planned_tombstones(lake)
        rows = planned.filter(pa.array(among(planned, selected, TOMBSTONE)))
        if rows.num_rows < selected.num_rows:
            missing = selected.num_rows - rows.num_rows
            raise BadRequest(
                f"{missing:,} of the selected tombstones {noun(missing, 'is', 'are')} not planned any more."
            )
        by = pa.repeat(pa.scalar(requester, pa.string()), rows.num_rows)
        own = rows.select(TOMBSTONE).cast(SELECTION).append_column("requester", by)
        store(lake, pa.concat_tables([rejections(lake), own]))
        return _withdraw(lake, rows, f"rejected by {requester}")


def take_back(
    lake: Lake, selected: pa.Table, requester: str, say: Callable[[str], None]
) -> tuple[pa.Table, runs.FinishedRun]:
    """Remove rejections, so that the next evaluation plans their tombstones again if a rule still expires them.

    Args and results are those of `reject`. The tombstones stay withdrawn until then.

    Raises:
        BadRequest: A decision is not rejected.
        LakeBusy: Another job writes to the lake.

    """
    with writing(lake, JOB, say):
        close_cut_short(lake)
        rejected = rejections(lake)
        taken = among(rejected, selected, TOMBSTONE)
        missing = selected.num_rows - int(taken.sum())
        if missing:
            raise BadRequest(
                f"{missing:,} of the selected tombstones {noun(missing, 'is', 'are')} not rejected any more."
            )
        decisions = lake.query(statement("newest_decisions", since_run=0), "tombstones").drop_columns(["newest"])
        rows = decisions.filter(pa.array(among(decisions, selected, TOMBSTONE)))
        # An evaluation is skipped if no table has changed: these rows cause one, also if this process is killed here.
        withdrawn = _withdraw(lake, rows, f"rejection taken back by {requester}")
        store(lake, rejected.filter(pa.array(~taken)))
        return withdrawn


def _withdraw(lake: Lake, rows: pa.Table, reason: str) -> tuple[pa.Table, runs.FinishedRun]:
    """Record decisions as withdrawn; return them, and the row of `runs`."""
    plan = current_run.begin(lake, JOB, plans.Plan())
    rows = replaced(rows.cast(table_schema("tombstones")), run_id=plan.run_id, outcome="withdrawn", reason=reason)
    file = TableFile(lake, "tombstones")
    file.write(rows)
    commit(lake, "tombstones", [FileChanges(file.close())], JOB, plan.run_id)
    return rows, current_run.finish(lake, JOB, plan, outcome="done", counts={"withdrawn": rows.num_rows})
