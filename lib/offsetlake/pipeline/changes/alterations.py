"""`reset`, `restore`, `undelete`: offsets that groups are to have, planned against those they have now."""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.pipeline.changes.execute import rows_of
from offsetlake.pipeline.changes.selection import GroupSelection
from offsetlake.rules.reduction import KEY
from offsetlake.util.row_codes import rows_in

VALUES = ("committed_offset", "leader_epoch", "metadata", "expire_timestamp", "topic_id")
"""What makes up a commit, beside its key and its time."""

OFFSET = (*KEY, "log_partition", "log_offset", *VALUES, "commit_timestamp")
_PREVIOUS = {
    "judged_offset": "log_offset",
    "previous_offset": "committed_offset",
    "previous_leader_epoch": "leader_epoch",
    "previous_metadata": "metadata",
}


class Strategy(NamedTuple):
    """How new offsets were found: its name in `alterations`, and what they rest on."""

    name: str
    evidence: str | None = None


def plan_alterations(
    groups: GroupSelection, wanted: pa.Table, of: Strategy, now: int, expected: pa.Array | None = None
) -> pa.Table:
    """Set the offsets wanted beside those there are; rows of `alterations`, with `requested_offset` and `note`.

    `wanted` has the columns KEY, VALUES (committed_offset null: the offset is to be deleted), requested_offset, reason
    (why it cannot be) and note; its groups are all among `groups`. `expected`: what each offset must be now, null: not
    there. Rows of groups that have members, or of which a transaction holds an offset, say so in `reason`. The outcome
    is `planned`, or `unchanged` if the offset is already as it is wanted.
    """
    stored = groups.rows("offsets", OFFSET)
    at = rows_in(wanted, stored, KEY)
    rows = pa.array(at, mask=at < 0)
    before = {name: stored[of].take(rows) for name, of in _PREVIOUS.items()}
    names = wanted["group_id"].to_pylist()
    in_the_way = groups.held() | groups.members()
    why = pa.array([in_the_way.get(name) for name in names], pa.string())
    columns = {
        **{name: wanted[name] for name in (*KEY, *VALUES)},
        **before,
        "run_id": 0,
        "outcome": pc.if_else(_unchanged(wanted, before), "unchanged", "planned"),
        "strategy": of.name,
        "evidence": of.evidence,
        "log_partition": pa.array([groups.found[name]["log_partition"] for name in names], pa.int32()),
        "commit_timestamp": now,
        "reason": pc.coalesce(wanted["reason"], why, _unexpected(before["previous_offset"], expected)),
    }
    plan = rows_of("alterations", columns, len(names))
    return plan.append_column("requested_offset", wanted["requested_offset"]).append_column("note", wanted["note"])


def _unexpected(offsets: pa.ChunkedArray, expected: pa.Array | None) -> pa.Array:
    if expected is None:
        return pa.nulls(len(offsets), pa.string())
    pairs = zip(offsets.to_pylist(), expected.to_pylist(), strict=True)
    said = [
        None
        if now == then
        else f"it is {'not there' if now is None else f'at {now}'}, "
        f"and was to be {'gone' if then is None else f'at {then}'}"
        for now, then in pairs
    ]
    return pa.array(said, pa.string())


def _unchanged(wanted: pa.Table, before: dict[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    """Check of each row whether the offset already is as it is wanted."""
    was, new = before["previous_offset"], wanted["committed_offset"]
    texts = (pc.fill_null(text, "") for text in (before["previous_metadata"], wanted["metadata"]))
    same = pc.and_(pc.fill_null(pc.equal(was, new), fill_value=False), pc.equal(*texts))
    return pc.or_(same, pc.and_(pc.is_null(was), pc.is_null(new)))
