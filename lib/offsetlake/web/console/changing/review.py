"""What people review: planned tombstones with their evidence, and what a person has to decide otherwise."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from offsetlake.errors import BadRequest, LakeUnusable
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.dismissals import DISMISSED, dismissed, open_rows
from offsetlake.pipeline.dismissals import SUBJECTS as KINDS
from offsetlake.pipeline.emit.decisions import SELECTION
from offsetlake.pipeline.emit.job import check_evaluated_since_compaction
from offsetlake.pipeline.expire.rejections import rejections
from offsetlake.queries.review import planned_tombstones
from offsetlake.queries.selection import like
from offsetlake.util.times import about, to_duration, to_iso
from offsetlake.web.console.access import Visitor
from offsetlake.web.console.answers import PageAnswers
from offsetlake.web.console.changing.workbench import Workbench

UNUSED_TOPICS = "unused_topics"
"""The column of orphans whose value None stands for all topics."""

MAX_LISTED = 1000
"""The maximum number of rows of the lists that grow with the history."""
COUNTED = ("tombstones", "rejected", "incomplete", "kept")
"""The lists that are read from state tables and small files."""

_KEEP = "Reject the selected: they stay as they are"


@dataclass(frozen=True, slots=True)
class ReviewedList:
    """A list to review.

    | Field     | Description |
    |-----------|-------------|
    | title     | Its title. |
    | rows      | Returns its rows. |
    | commands  | The words after `offsetlake` of each command that lists it. |
    | advice    | What to do about a row. |
    | key       | The columns that identify a row that is decided; None if nothing is decided here. |
    | decisions | The decisions by name, with the texts of their buttons. |
    """

    title: str
    rows: Callable[[Lake], pa.Table]
    commands: Sequence[Sequence[str]]
    advice: str
    key: pa.Schema | None = None
    decisions: Mapping[str, str] = field(default_factory=dict)


SUBJECTS: Mapping[str, ReviewedList] = {
    "tombstones": ReviewedList(
        "Planned tombstones",
        planned_tombstones,
        (("tombstones", "--outcome=planned"),),
        "Approved tombstones are written now, as by `offsetlake emit`: only if their offsets have not changed. "
        "Rejected ones are not planned again until their offsets are committed again.",
        SELECTION,
        {"approve": "Approve the selected", "reject": "Reject the selected"},
    ),
    "rejected": ReviewedList(
        "Rejected",
        rejections,
        (("reject",),),
        "These offsets and groups stay until they are committed again. If a rejection is taken back, the next "
        "`offsetlake expire` plans the tombstone again, provided that a rule still expires the offset.",
        SELECTION,
        {"take_back": "Take back the selected rejections"},
    ),
    "orphans": ReviewedList(
        "Orphans",
        lambda lake: open_rows(lake, "orphans", MAX_LISTED),
        (KINDS["orphans"].question,),
        "No consumer uses these groups, or their offsets of the unused topics. An approval plans their deletion, as "
        "`offsetlake cleanup` does, and shows the plan first. Groups with members keep the offsets of other topics.",
        KINDS["orphans"].key,
        {"approve": "Plan the deletion of the selected", "reject": _KEEP},
    ),
    "incomplete": ReviewedList(
        "Incomplete commits",
        lambda lake: open_rows(lake, "incomplete", MAX_LISTED),
        (KINDS["incomplete"].question,),
        "Parts of these commits are missing, so they never take effect, but log compaction would delete the values "
        "that are in effect. An approval plans to write these values again, as `offsetlake repair` does for all "
        "incomplete commits. The log must be one that offsetlake serves.",
        KINDS["incomplete"].key,
        {"approve": "Plan the repair of the selected", "reject": _KEEP},
    ),
    "hanging": ReviewedList(
        "Hanging transactions",
        lambda lake: open_rows(lake, "hanging", MAX_LISTED),
        (KINDS["hanging"].question,),
        "Offsets of these groups wait for the end of a transaction. offsetlake never aborts one, because only its "
        "coordinator can do so in all of its partitions. Restart the producer: its initialization aborts it. If the "
        "producer is gone, `kafka-transactions describe-producers`, with the log partition of __consumer_offsets, "
        "shows where the transaction starts, and `kafka-transactions abort` aborts it there.",
        KINDS["hanging"].key,
        {"reject": _KEEP},
    ),
    "kept": ReviewedList(
        "Kept",
        dismissed,
        tuple(("reject", f"--of={name}") for name in KINDS),
        "Orphans, incomplete commits and hanging transactions that somebody rejected, as `offsetlake reject --of` "
        "does. They are not listed until their offsets change; audits and the report list them nevertheless.",
        pa.schema([DISMISSED.field(name) for name in ("subject", "group_id", "key")]),
        {"take_back": "List the selected again"},
    ),
}
"""The lists by their names in addresses."""


def listed(answers: PageAnswers, subject: ReviewedList, visitor: Visitor, pattern: str | None) -> pa.Table:
    """Return the rows of a list about groups that the visitor may read, of a pattern."""
    return like(visitor.visible(answers.rows(subject.rows)), pattern)


def counts(answers: PageAnswers, visitor: Visitor) -> dict[str, int]:
    """Return the number of rows that a visitor may read of the lists which do not grow with history, by their names.

    A list is omitted while it is still being read.
    """
    groups = {name: answers.soon(f"groups of {name}", partial(_groups, SUBJECTS[name])) for name in COUNTED}
    return {name: visitor.visible(rows).num_rows for name, rows in groups.items() if rows is not None}


def _groups(subject: ReviewedList, lake: Lake) -> pa.Table:
    return subject.rows(lake).select(["group_id"])


def approval_problem(answers: PageAnswers, bench: Workbench, show: str) -> str:
    """Return why nothing in a list can be approved now; empty if it can."""
    if problem := bench.log_problem():
        return problem
    if show == "tombstones":
        try:
            check_evaluated_since_compaction(answers.open())
        except LakeUnusable as error:
            return str(error)
    return ""


def key_of(subject: ReviewedList, row: Mapping[str, object]) -> str:
    """Return the key of a row as the value of a check box; empty if nothing is decided about it here."""
    return "" if subject.key is None else json.dumps([row[name] for name in subject.key.names])


def selection(subject: ReviewedList, keys: Sequence[str], visitor: Visitor) -> pa.Table:
    """Return the keys of the selected rows.

    Raises BadRequest for a row that the visitor may not change, if there is none, or if nothing is decided here.
    """
    if not keys or subject.key is None:
        raise BadRequest("Select at least one row.")
    return pa.concat_tables([_selected(subject.key, key, visitor) for key in keys])


def _selected(schema: pa.Schema, key: str, visitor: Visitor) -> pa.Table:
    try:
        values = json.loads(key)
        row = pa.Table.from_pylist([dict(zip(schema.names, values, strict=True))], schema=schema)
        group = row["group_id"][0].as_py()
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise BadRequest("The form contains an invalid row: open the page again.") from error
    if not isinstance(group, str) or not visitor.administers(group):
        raise BadRequest(f"A change of group {group} requires the permission admin.")
    return row


def described(subject: str, key: str) -> str:
    """Return what identifies a row of an audit besides its group, as people read it: `since 2026-01-21T15:00:00Z`."""
    values = zip(KINDS[subject].key.names, json.loads(key), strict=True)
    return ", ".join(f"{heading(name).lower()} {text(name, value)}" for name, value in values if name != "group_id")


def heading(name: str) -> str:
    """Return the heading of a column, without the unit of values that `text` formats."""
    shown = {"group_id": "group", "since_timestamp": "since", "judged_timestamp": "evaluated", "key": "row"}.get(
        name, name.removesuffix("_ms")
    )
    return shown.replace("_timestamp", "_time").replace("_", " ").capitalize()


def text(name: str, value: object) -> str:
    """Return a value of a column as people read it."""
    if value is None:
        return "all" if name == UNUSED_TOPICS else ""
    if isinstance(value, int) and name.endswith("_timestamp"):
        return to_iso(value)
    if isinstance(value, int) and name.endswith("_ms"):
        return to_duration(about(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
