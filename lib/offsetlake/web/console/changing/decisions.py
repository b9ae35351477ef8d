"""What the decisions of a review do: each is a change that a command of `offsetlake` makes as well."""

import json
from collections.abc import Callable

import pyarrow as pa

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
from offsetlake.util.amounts import noun
from offsetlake.util.row_codes import among
from offsetlake.util.times import now_ms
from offsetlake.web.console.access import Visitor
from offsetlake.web.console.answers import PageAnswers
from offsetlake.web.console.changing.forms import STDIN, ChangeRequest, Requested
from offsetlake.web.console.changing.review import SUBJECTS, described
from offsetlake.web.console.changing.workbench import Decide, Say, Work, Workbench

_REPAIRED = "There is no undo: the offsets have the values that were in effect before, which the repair wrote again."
_REJECTED = (
    "These offsets and groups stay, and no tombstone is planned for them, until they are committed again. "
    "A rejection is taken back in the list of rejected tombstones."
)
_KEPT = (
    "They stay as they are, and are not listed for review until their offsets change. Audits and the report list them "
    "nevertheless. The list of kept rows takes that back."
)
_LISTED = "They are listed for review again."
_TAKEN_BACK = (
    "The next `offsetlake expire` plans the tombstones again, provided that a rule still expires the offsets. "
    "A tombstone that is planned again can be rejected again."
)


def decide_on(
    bench: Workbench, answers: PageAnswers, show: str, decision: str, selected: pa.Table, visitor: Visitor
) -> Work:
    """Begin what a decision about selected rows of a list of the review requires; raise BadRequest if it cannot be."""
    by = _principal(visitor)
    if show == "kept" or (show in dismissals.SUBJECTS and decision == "reject"):
        requested, run = _listing_again(selected, by) if show == "kept" else _keeping(show, selected, by)
        return bench.decide(requested, visitor.principal, run)
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


def _principal(visitor: Visitor) -> str:
    return visitor.principal if visitor.is_signed_in else process_principal()


def _approval(selected: pa.Table, log: LogAddress, requester: str | None) -> tuple[Requested, Decide]:
    """Return what emits the selected tombstones, and no others."""

    def run(lake: Lake, say: Say) -> tuple[pa.Table, int]:
        missing = int((~among(selected, planned_tombstones(lake), TOMBSTONE)).sum())
        if missing:
            raise BadRequest(
                f"{missing:,} of the selected tombstones {noun(missing, 'is', 'are')} not planned any more: "
                "select again."
            )
        emitted = runner.run_emit(lake.location, log, say, selected, requester).row
        rows = lake.query(f"SELECT * FROM tombstones WHERE run_id = {emitted.run_id}", "tombstones")  # noqa: S608
        rows = rows.sort_by([(name, "ascending") for name in KEY])
        return rows, emitted.run_id if emitted.counts.get("emitted") else 0

    commands = (("emit", f"--only={STDIN}"),)
    return Requested("Approved tombstones", "tombstones", "", commands, "tombstones", inputs=_lines(selected)), run


def _rejection(selected: pa.Table, principal: str) -> tuple[Requested, Decide]:
    """Return what withdraws the selected tombstones."""
    commands = (("reject", STDIN),)
    decided = "The tombstones were rejected"
    requested = Requested(
        "Rejected tombstones", "tombstones", "", commands, "tombstones", _REJECTED, decided, inputs=_lines(selected)
    )
    return requested, _without_undo(rejecting.reject, selected, principal)


def _taking_back(selected: pa.Table, principal: str) -> tuple[Requested, Decide]:
    """Return what takes back the selected rejections."""
    commands = (("reject", "--take-back", STDIN),)
    decided = "The rejections were taken back"
    requested = Requested(
        "Rejected tombstones", "tombstones", "", commands, "rejected", _TAKEN_BACK, decided, inputs=_lines(selected)
    )
    return requested, _without_undo(rejecting.take_back, selected, principal)


def _keeping(show: str, selected: pa.Table, principal: str) -> tuple[Requested, Decide]:
    """Return what rejects selected rows of an audit, as `offsetlake reject --of` does."""
    commands, decided = (("reject", f"--of={show}", STDIN),), "The rows were rejected"
    requested = Requested(SUBJECTS[show].title, "", "", commands, show, _KEPT, decided, "kept", _lines(selected))

    def run(lake: Lake, say: Say) -> tuple[pa.Table, int]:
        dismissals.dismiss(Lake.create(lake.location), show, selected, principal, say)
        return _decided(dismissals.keys_of(show, selected), f"rejected by {principal}"), 0

    return requested, run


def _listing_again(selected: pa.Table, principal: str) -> tuple[Requested, Decide]:
    """Return what takes back selected rejections of rows of audits, as `offsetlake reject --of --take-back` does."""
    subjects = sorted({*selected["subject"].to_pylist()})
    commands = tuple(("reject", f"--of={subject}", "--take-back", STDIN) for subject in subjects)
    inputs = tuple(_lines_of_kept(selected, subject) for subject in subjects)
    decided = "The rejections were taken back"
    requested = Requested(SUBJECTS["kept"].title, "", "", commands, "kept", _LISTED, decided, "kept", inputs)

    def run(lake: Lake, say: Say) -> tuple[pa.Table, int]:
        dismissals.readmit(Lake.create(lake.location), selected, say)
        return _decided(selected, f"rejection taken back by {principal}"), 0

    return requested, run


def _lines(selected: pa.Table) -> tuple[str, ...]:
    """Return the rows as the commands of decisions read them: a line of JSON for each."""
    return ("\n".join(map(json.dumps, selected.to_pylist())),)


def _lines_of_kept(selected: pa.Table, subject: str) -> str:
    """Return the kept rows of an audit as lines of JSON with the columns of its key."""
    rows = zip(selected["subject"].to_pylist(), selected["key"].to_pylist(), strict=True)
    names = dismissals.SUBJECTS[subject].key.names
    return "\n".join(
        json.dumps(dict(zip(names, json.loads(key), strict=True))) for name, key in rows if name == subject
    )


def _decided(rows: pa.Table, reason: str) -> pa.Table:
    """Return rows with `subject`, `group_id` and `key` as the page shows them, and with an outcome."""
    texts = map(described, rows["subject"].to_pylist(), rows["key"].to_pylist())
    done = {"outcome": ["done"] * rows.num_rows, "reason": [reason] * rows.num_rows}
    return pa.table({"group_id": rows["group_id"], "row": [*texts]} | done)


def _deletion_of_orphans(answers: PageAnswers, selected: pa.Table, log: LogAddress) -> ChangeRequest:
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
