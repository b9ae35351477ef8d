"""What people review: planned tombstones with their evidence, and what a person has to decide otherwise."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from offsetlake.console.access import Visitor
from offsetlake.console.answers import Answers
from offsetlake.console.changing.forms import Requested
from offsetlake.console.changing.workbench import Decide, Say
from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline import runner
from offsetlake.pipeline.emit.decisions import SELECTION, TOMBSTONE
from offsetlake.pipeline.expire.rejections import reject, rejections
from offsetlake.queries.audits import audit
from offsetlake.queries.questions import like
from offsetlake.queries.review import incomplete_commits, planned_tombstones
from offsetlake.util.row_codes import among

MAX_LISTED = 1000
"""The maximum number of rows of the lists that nobody approves here."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A list to review: its title, its rows, the words of the command that lists it, and what to do about a row."""

    title: str
    rows: Callable[[Lake], pa.Table]
    words: tuple[str, ...]
    advice: str


SUBJECTS: Mapping[str, Subject] = {
    "tombstones": Subject(
        "Planned tombstones",
        planned_tombstones,
        ("tombstones", "--outcome=planned"),
        "Approved tombstones are written now, as by offsetlake emit: only if their offsets have not changed. "
        "Rejected ones are not planned again until their offsets are committed again.",
    ),
    "rejected": Subject(
        "Rejected",
        rejections,
        ("tombstones", "--outcome=withdrawn"),
        "These offsets and groups stay until they are committed again. The page of a group can delete them.",
    ),
    "orphans": Subject(
        "Orphans",
        lambda lake: audit(lake, "orphan_groups", limit=MAX_LISTED),
        ("audit", "orphan_groups"),
        "No consumer uses these groups, or some of their offsets. Delete them on the page of the group.",
    ),
    "incomplete": Subject(
        "Incomplete commits",
        lambda lake: incomplete_commits(lake, MAX_LISTED),
        ("sql", "SELECT * FROM pending_offsets WHERE producer_id IS NULL"),
        "Parts of these commits are missing, so they never take effect. offsetlake repair writes the previous values "
        "again.",
    ),
    "hanging": Subject(
        "Hanging transactions",
        lambda lake: audit(lake, "hanging_transactions", limit=MAX_LISTED),
        ("audit", "hanging_transactions"),
        "Offsets of these groups wait for the end of a transaction. Abort it with kafka-transactions, or restart its "
        "producer, whose initialization aborts it.",
    ),
}
"""The lists by their names in addresses."""


def listed(answers: Answers, subject: Subject, visitor: Visitor, pattern: str | None, rule: str) -> pa.Table:
    """Return the rows of a list about groups that the visitor may read, of a pattern and a rule."""
    rows = like(visitor.visible(answers.rows(subject.rows)), pattern)
    return rows.filter(pa.compute.equal(rows["rule"], rule)) if rule else rows


def key_of(row: Mapping[str, object]) -> str:
    """Return a planned tombstone as the value of a check box."""
    return json.dumps([row[name] for name in SELECTION.names])


def selection(keys: Sequence[str], visitor: Visitor) -> pa.Table:
    """Return the selected decisions; raise BadRequest for one that the visitor may not change, or if there is none."""
    rows = []
    for key in keys:
        try:
            values = json.loads(key)
            rows.append(pa.Table.from_pylist([dict(zip(SELECTION.names, values, strict=True))], schema=SELECTION))
            group = rows[-1]["group_id"][0].as_py()
        except (ValueError, TypeError, pa.ArrowException) as error:
            raise BadRequest("The form contains an invalid tombstone: open the page again.") from error
        if not isinstance(group, str) or not visitor.administers(group):
            raise BadRequest(f"The tombstones of group {group} require the permission admin.")
    if not rows:
        raise BadRequest("Select at least one tombstone.")
    return pa.concat_tables(rows)


def approval(selected: pa.Table, log: LogAddress, requester: str | None) -> tuple[Requested, Decide]:
    """Return what emits the selected tombstones, and no others."""

    def run(lake: Lake, say: Say) -> tuple[pa.Table, int]:
        _check_planned(lake, selected)
        emitted = runner.run_emit(lake.location, log, say, selected, requester).row
        rows = lake.query(f"SELECT * FROM tombstones WHERE run_id = {emitted.run_id}", "tombstones")  # noqa: S608
        return rows, emitted.run_id if emitted.counts.get("emitted") else 0

    return Requested("Approved tombstones", "tombstones", "", ("emit", "--only=FILE")), run


def rejection(selected: pa.Table, principal: str) -> tuple[Requested, Decide]:
    """Return what withdraws the selected tombstones."""

    def run(lake: Lake, say: Say) -> tuple[pa.Table, int]:
        rows, _ = reject(Lake.create(lake.location), selected, principal, say)
        return rows, 0

    return Requested("Rejected tombstones", "tombstones", "", ("reject", "FILE")), run


def _check_planned(lake: Lake, selected: pa.Table) -> None:
    """Raise BadRequest if a decision is not planned any more: then nothing is written."""
    missing = int((~among(selected, planned_tombstones(lake), TOMBSTONE)).sum())
    if missing:
        raise BadRequest(f"{missing:,} of the selected tombstones are not planned any more: select again.")
