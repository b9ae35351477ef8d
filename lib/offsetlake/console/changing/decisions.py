"""What the decisions of a review do: each is a change that a command of `offsetlake` makes as well."""

from collections.abc import Callable

import pyarrow as pa

from offsetlake.console.access import Visitor
from offsetlake.console.answers import Answers
from offsetlake.console.changing.forms import ChangeRequest, Requested
from offsetlake.console.changing.workbench import Decide, Say, Work, Workbench
from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.writer.os_users import process_principal
from offsetlake.pipeline import dismissals, runner
from offsetlake.pipeline.changes import repair
from offsetlake.pipeline.changes.cleanup import plan_cleanup_of_orphans
from offsetlake.pipeline.emit.decisions import TOMBSTONE
from offsetlake.pipeline.expire import rejecting
from offsetlake.queries.review import orphans, planned_tombstones
from offsetlake.rules.reduction import KEY
from offsetlake.util.row_codes import among
from offsetlake.util.times import now_ms

_REPAIRED = "There is no undo: the offsets have the values that were in effect before, which the repair wrote again."
_REJECTED = (
    "These offsets and groups stay, and no tombstone is planned for them, until they are committed again. "
    "A rejection is taken back in the list of rejected tombstones."
)
_TAKEN_BACK = (
    "The next `offsetlake expire` plans the tombstones again, provided that a rule still expires the offsets. "
    "A tombstone that is planned again can be rejected again."
)


def decide_on(
    bench: Workbench, answers: Answers, show: str, decision: str, selected: pa.Table, visitor: Visitor
) -> Work:
    """Begin what a decision about selected rows of a list of the review requires; raise BadRequest if it cannot be."""
    by = _principal(visitor)
    if show == "orphans":
        return bench.plan(_deletion_of_orphans(answers, selected, bench.log), visitor.principal, visitor.administers)
    if show == "incomplete":
        return bench.plan(_repair_of_commits(selected, bench.log), visitor.principal, visitor.administers)
    if decision == "approve":
        requested, run = _approval(selected, bench.log, visitor.principal if visitor.is_signed_in else None)
    elif decision == "reject":
        requested, run = _rejection(selected, by)
    else:
        requested, run = _taking_back(selected, by)
    return bench.decide(requested, visitor.principal, run)


def keep_or_list(lake: Lake, show: str, selected: pa.Table, visitor: Visitor) -> None:
    """Reject selected rows of audits, or take that back, as `offsetlake reject --of` does; raises as it does."""
    if show == "kept":
        dismissals.readmit(Lake.create(lake.location), selected, _ignore)
    else:
        dismissals.dismiss(Lake.create(lake.location), show, selected, _principal(visitor), _ignore)


def _ignore(_step: str) -> None:
    pass


def _principal(visitor: Visitor) -> str:
    return visitor.principal if visitor.is_signed_in else process_principal()


def _approval(selected: pa.Table, log: LogAddress, requester: str | None) -> tuple[Requested, Decide]:
    """Return what emits the selected tombstones, and no others."""

    def run(lake: Lake, say: Say) -> tuple[pa.Table, int]:
        missing = int((~among(selected, planned_tombstones(lake), TOMBSTONE)).sum())
        if missing:
            raise BadRequest(f"{missing:,} of the selected tombstones are not planned any more: select again.")
        emitted = runner.run_emit(lake.location, log, say, selected, requester).row
        rows = lake.query(f"SELECT * FROM tombstones WHERE run_id = {emitted.run_id}", "tombstones")  # noqa: S608
        return rows, emitted.run_id if emitted.counts.get("emitted") else 0

    return Requested("Approved tombstones", "tombstones", "", (("emit", "--only=FILE"),), "tombstones"), run


def _rejection(selected: pa.Table, principal: str) -> tuple[Requested, Decide]:
    """Return what withdraws the selected tombstones."""
    commands = (("reject", "FILE"),)
    decided = "The tombstones were rejected"
    requested = Requested("Rejected tombstones", "tombstones", "", commands, "tombstones", _REJECTED, decided)
    return requested, _without_undo(rejecting.reject, selected, principal)


def _taking_back(selected: pa.Table, principal: str) -> tuple[Requested, Decide]:
    """Return what takes back the selected rejections."""
    commands = (("reject", "--take-back", "FILE"),)
    decided = "The rejections were taken back"
    requested = Requested("Rejected tombstones", "tombstones", "", commands, "rejected", _TAKEN_BACK, decided)
    return requested, _without_undo(rejecting.take_back, selected, principal)


def _deletion_of_orphans(answers: Answers, selected: pa.Table, log: LogAddress) -> ChangeRequest:
    """Return what deletes the selected groups of `orphans`, or their offsets of unused topics."""
    names = selected["group_id"].to_pylist()
    live = log.connection is not None

    def plan(lake: Lake) -> pa.Table:
        return plan_cleanup_of_orphans(lake, names, now_ms(), live=live)

    commands = tuple(
        ("cleanup", *(() if topic is None else (f"--topic={topic}",)), "--", row["group_id"])
        for row in answers.rows(lambda lake: orphans(lake, names=names)).to_pylist()
        for topic in ((None,) if row["unused_topics"] is None else row["unused_topics"])
    )
    return ChangeRequest("Unused groups", "tombstones", "", commands, "orphans", job="cleanup", plan=plan)


def _repair_of_commits(selected: pa.Table, log: LogAddress) -> ChangeRequest:
    """Return what repairs the offsets of the selected parts of incomplete commits; raise BadRequest for a cluster."""
    if log.connection is not None:
        raise BadRequest("Cannot repair a live cluster: a broker repairs its own log.")

    def plan(lake: Lake) -> pa.Table:
        rows = repair.plan_repair(lake, now_ms())
        rows = rows.filter(pa.array(among(rows, selected, KEY)))
        if not rows.num_rows:
            raise BadRequest("None of the selected commits is incomplete any more: select again.")
        return rows

    return ChangeRequest(
        "Incomplete commits", "alterations", "", ((repair.JOB,),), "incomplete", _REPAIRED, job=repair.JOB, plan=plan
    )


def _without_undo(
    decide: Callable[[Lake, pa.Table, str, Say], tuple[pa.Table, object]], selected: pa.Table, principal: str
) -> Decide:
    def run(lake: Lake, say: Say) -> tuple[pa.Table, int]:
        rows, _ = decide(Lake.create(lake.location), selected, principal, say)
        return rows, 0

    return run
