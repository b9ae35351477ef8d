"""Rejected tombstones: a person decides that offsets and groups stay although a rule would expire them.

The rejections are in a file of the lake, and end when their offset is committed again or deleted, or no rule expires it
any more: then an evaluation removes them, so that the file does not grow with the history.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from offsetlake.errors import BadRequest
from offsetlake.lake import plans, runs
from offsetlake.lake.files import FileChanges, TableFile, commit, table_schema
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.statements import statement
from offsetlake.pipeline.emit.decisions import SELECTION, TOMBSTONE, replaced
from offsetlake.pipeline.emit.job import close_cut_short
from offsetlake.queries.review import planned_tombstones
from offsetlake.rules.retention import Bools
from offsetlake.util.row_codes import among

JOB = "reject"
_FILE = "rejections.json"
_COLUMNS = SELECTION.append(pa.field("requester", pa.string()))


@dataclass(slots=True)
class Rejections:
    """The rejections of an evaluation, and those of them that have kept something."""

    rows: pa.Table
    found: list[pa.Table] = field(default_factory=list)

    def matches(self, expiring: pa.Table) -> Bools:
        """Return which decisions, with the columns of `decisions.TOMBSTONE`, were rejected."""
        if not self.rows.num_rows:
            return np.zeros(expiring.num_rows, bool)
        self.found.append(self.rows.filter(pa.array(among(self.rows, expiring, TOMBSTONE))))
        return among(expiring, self.rows, TOMBSTONE)


def rejections(lake: Lake) -> pa.Table:
    """Return the rejected decisions: the columns of `decisions.TOMBSTONE`, and `requester`, who rejected them."""
    stored: dict[str, list[Any]] = lake.read_file(_FILE) or {}
    return pa.table({field.name: pa.array(stored.get(field.name, []), field.type) for field in _COLUMNS})


def keep_rejections(lake: Lake, kept: pa.Table) -> None:
    """Replace the rejections by some of them; the lake must be locked."""
    if kept.num_rows < rejections(lake).num_rows:
        _store(lake, kept)


def reject(lake: Lake, selected: pa.Table, requester: str, say: Callable[[str], None]) -> tuple[pa.Table, runs.Report]:
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
            raise BadRequest(
                f"{selected.num_rows - rows.num_rows:,} of the selected tombstones are not planned any more."
            )
        by = pa.repeat(pa.scalar(requester, pa.string()), rows.num_rows)
        own = rows.select(TOMBSTONE).cast(SELECTION).append_column("requester", by)
        _store(lake, pa.concat_tables([rejections(lake), own]))
        return _withdraw(lake, rows, f"rejected by {requester}")


def take_back(
    lake: Lake, selected: pa.Table, requester: str, say: Callable[[str], None]
) -> tuple[pa.Table, runs.Report]:
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
        if int(taken.sum()) < selected.num_rows:
            raise BadRequest(
                f"{selected.num_rows - int(taken.sum()):,} of the selected tombstones are not rejected any more."
            )
        decisions = lake.query(statement("newest_decisions", since_run=0), "tombstones").drop_columns(["newest"])
        rows = decisions.filter(pa.array(among(decisions, selected, TOMBSTONE)))
        # An evaluation is skipped if no table has changed: these rows cause one, also if this process is killed here.
        withdrawn = _withdraw(lake, rows, f"rejection taken back by {requester}")
        _store(lake, rejected.filter(pa.array(~taken)))
        return withdrawn


def _store(lake: Lake, rejected: pa.Table) -> None:
    with lake.location.errors():
        lake.write_file(_FILE, rejected.to_pydict())


def _withdraw(lake: Lake, rows: pa.Table, reason: str) -> tuple[pa.Table, runs.Report]:
    """Record decisions as withdrawn; return them, and the row of `runs`."""
    plan = runs.begin(lake, JOB, plans.Plan())
    rows = replaced(rows.cast(table_schema("tombstones")), run_id=plan.run_id, outcome="withdrawn", reason=reason)
    file = TableFile(lake, "tombstones")
    file.write(rows)
    commit(lake, "tombstones", [FileChanges(file.close())], JOB, plan.run_id)
    return rows, runs.finish(lake, JOB, plan, outcome="done", counts={"withdrawn": rows.num_rows})
