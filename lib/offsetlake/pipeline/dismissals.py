"""Rejected rows of audits: a person decides that unused groups, incomplete commits or transactions stay as they are.

A review does not list a row that was rejected until its key changes: when the group commits again, or when other
records are incomplete or wait. Audits list it nevertheless. The keys are in a file of the lake, without those that
ended.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake import current_run, plans
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.expire.rejecting import JOB
from offsetlake.queries.review import hanging_transactions, incomplete_commits, orphans
from offsetlake.util.amounts import noun
from offsetlake.util.row_codes import among

_FILE = "dismissals.json"
DISMISSED = pa.schema({"subject": pa.string(), "group_id": pa.string(), "key": pa.string(), "requester": pa.string()})


@dataclass(frozen=True, slots=True)
class Subject:
    """Rows that can be rejected.

    | Field    | Description |
    |----------|-------------|
    | rows     | Returns them, at most a number of them. |
    | question | The words after `offsetlake` of the command that lists them. |
    | key      | The columns that identify a row. |
    """

    rows: Callable[[Lake, int | None], pa.Table]
    question: Sequence[str]
    key: pa.Schema


SUBJECTS: Mapping[str, Subject] = {
    "orphans": Subject(
        orphans, ("audit", "orphan_groups"),
        pa.schema({"group_id": pa.string(), "since_timestamp": pa.int64()}),
    ),
    "incomplete": Subject(
        incomplete_commits, ("sql", "SELECT * FROM pending_offsets WHERE producer_id IS NULL"),
        pa.schema(
            {"group_id": pa.string(), "topic": pa.string(), "partition": pa.int32(), "log_partition": pa.int32(),
             "log_offset": pa.int64()}
        ),
    ),
    "hanging": Subject(
        hanging_transactions, ("audit", "hanging_transactions"),
        pa.schema(
            {"group_id": pa.string(), "producer_id": pa.int64(), "log_partition": pa.int32(),
             "first_log_offset": pa.int64()}
        ),
    ),
}  # fmt: skip
"""The kinds of rows by name."""


def dismissed(lake: Lake, subject: str | None = None) -> pa.Table:
    """Return the rejected rows, of a subject if named: `subject`, `group_id`, `key` (values as JSON), `requester`."""
    stored: dict[str, list[Any]] = lake.files.read(_FILE) or {}
    try:
        rows = pa.table({field.name: pa.array(stored.get(field.name, []), field.type) for field in DISMISSED})
    except (pa.ArrowException, TypeError) as error:
        raise lake.files.damaged(_FILE, error) from error
    return rows if subject is None else rows.filter(pc.equal(rows["subject"], subject))


def open_rows(lake: Lake, subject: str, limit: int) -> pa.Table:
    """Return the first rows of a subject that were not rejected."""
    rejected = {*dismissed(lake, subject)["key"].to_pylist()}
    rows = SUBJECTS[subject].rows(lake, limit + len(rejected))
    if rejected and rows.num_rows:
        rows = rows.filter(pa.array([key not in rejected for key in _keys(SUBJECTS[subject].key, rows)]))
    return rows.slice(0, limit)


def dismiss(lake: Lake, subject: str, selected: pa.Table, requester: str, say: Callable[[str], None]) -> pa.Table:
    """Reject rows, and return all of the subject that are rejected.

    Args:
        lake: The lake.
        subject: A key of SUBJECTS.
        selected: The keys of the rows.
        requester: The principal that rejects them.
        say: Shows the current step.

    Raises:
        BadRequest: There is no such row any more.
        LakeBusy: Another job writes to the lake.

    """
    key = SUBJECTS[subject].key
    with writing(lake, JOB, say):
        rows = SUBJECTS[subject].rows(lake, None)
        existing = rows.select(key.names).cast(key) if rows.num_rows else key.empty_table()
        missing = int((~among(selected, existing, key.names)).sum())
        if missing:
            raise BadRequest(f"{missing:,} of the selected rows {noun(missing, 'is', 'are')} not listed any more.")
        left = {*_keys(key, existing)}
        kept = [row for row in dismissed(lake).to_pylist() if row["subject"] != subject or row["key"] in left]
        known = {(row["subject"], row["key"]) for row in kept}
        own = [
            {"subject": subject, "group_id": group, "key": text, "requester": requester}
            for group, text in zip(selected["group_id"].to_pylist(), _keys(key, selected), strict=True)
            if (subject, text) not in known
        ]
        return _record(lake, [*kept, *own], len(own))


def readmit(lake: Lake, selected: pa.Table, say: Callable[[str], None]) -> pa.Table:
    """Take back rejections, rows of `dismissed`, and return all that are left; raises as `dismiss`."""
    names = ["subject", "group_id", "key"]
    with writing(lake, JOB, say):
        every = dismissed(lake)
        taken = among(every, selected, names)
        missing = selected.num_rows - int(taken.sum())
        if missing > 0:
            raise BadRequest(f"{missing:,} of the selected rows {noun(missing, 'is', 'are')} not rejected any more.")
        return _record(lake, every.filter(pa.array(~taken)).to_pylist(), int(taken.sum()))


def keys_of(subject: str, rows: pa.Table) -> pa.Table:
    """Return rows of a subject as `readmit` needs them."""
    texts = _keys(SUBJECTS[subject].key, rows)
    return pa.table({"subject": [subject] * len(texts), "group_id": rows["group_id"], "key": texts})


def _record(lake: Lake, rows: list[dict[str, Any]], changed: int) -> pa.Table:
    plan = current_run.begin(lake, JOB, plans.Plan())
    table = pa.Table.from_pylist(rows, schema=DISMISSED)
    with lake.location.errors():
        lake.files.write(_FILE, table.to_pydict())
    current_run.finish(lake, JOB, plan, outcome="done", counts={"rows": changed})
    return table


def _keys(key: pa.Schema, rows: pa.Table) -> list[str]:
    return [json.dumps([*row.values()]) for row in rows.select(key.names).to_pylist()]
