"""Plans alterations: the offsets that groups should have, compared with those that they have."""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.pipeline.changes.execute import rows_of
from offsetlake.pipeline.changes.group_selection import GroupSelection
from offsetlake.pipeline.changes.live import LIMIT, LiveChange
from offsetlake.rules.reduction import KEY
from offsetlake.util.columns import by_row, taken
from offsetlake.util.row_codes import rows_in

VALUES = ("committed_offset", "leader_epoch", "metadata", "expire_timestamp")
"""The columns of a commit other than its key, its time and its topic id.

Requested offsets have no topic id: the lake does not know the present one, and an offset with the id of a topic that
was deleted since would be invisible to the consumers of a topic of the same name, and would be deleted.
"""

OFFSET = (*KEY, "log_partition", "log_offset", *VALUES, "commit_timestamp")
_PREVIOUS = {
    "judged_offset": "log_offset",
    "previous_offset": "committed_offset",
    "previous_leader_epoch": "leader_epoch",
    "previous_metadata": "metadata",
}


_OF_ANY_GROUP = ("import", "from_file", "from_group")
_NEW = "the group does not exist yet: it is new"


class Strategy(NamedTuple):
    """The strategy that determined new offsets, by its name in `alterations`, and their source."""

    name: str
    evidence: str | None = None


def plan_alterations(
    groups: GroupSelection,
    wanted: pa.Table,
    strategy: Strategy,
    now: int,
    expected: pa.Array | None = None,
    live: LiveChange | None = None,
) -> pa.Table:
    """Return rows of `alterations`, with the columns `requested_offset` and `note`, and `live.LIMIT` with `live`.

    The outcome is `planned`, or `unchanged` if the offset already has the value. Rows of groups with members or with
    an offset in an open transaction have a `reason`, unless the members can be changed while they run, and those that a
    quarantined record leaves unknown.

    Args:
        groups: All groups of `wanted`.
        wanted: Rows of `targets.WANTED`; a null committed_offset deletes the offset, a reason refuses the row.
        strategy: The strategy to record.
        now: The commit timestamp in ms since the epoch.
        expected: The value that each offset must have now, null for none; None if any value is accepted.
        live: How groups with members are changed; None if they are not.

    """
    stored = groups.rows("offsets", OFFSET)
    rows = rows_in(wanted, stored, KEY)
    previous = {name: taken(stored[column], rows) for name, column in _PREVIOUS.items()}
    names = wanted["group_id"].to_pylist()
    limits = {} if live is None else live.limits({*names})
    obstacles = {
        name: obstacle for name, obstacle in (groups.blocked() | groups.members()).items() if name not in limits
    }
    obstacle = pa.array([obstacles.get(name) for name in names], pa.string())
    limit = pa.array([limits.get(name) for name in names], pa.int64())
    stays = pc.or_(pc.is_null(limit), pc.is_null(wanted["requested_offset"]))  # others may change until they are set
    unexpected = unexpected_offsets("committed", previous["previous_offset"], expected)
    if live is not None and live.replaces_commits:
        unexpected = pc.if_else(pc.is_null(limit), unexpected, pa.scalar(None, pa.string()))
    partitions = pa.array([groups.found[name]["log_partition"] for name in names], pa.int32())
    position = {"log_partition": partitions, "log_offset": previous["judged_offset"]}
    unknown = groups.unknown_offsets(pa.table({name: wanted[name] for name in KEY} | position))
    columns = {
        **{name: wanted[name] for name in (*KEY, *VALUES)},
        **previous,
        "run_id": 0,
        "outcome": pc.if_else(pc.and_(_unchanged(wanted, previous), stays), "unchanged", "planned"),
        "strategy": strategy.name,
        "evidence": strategy.evidence,
        "log_partition": partitions,
        "commit_timestamp": now,
        "reason": pc.coalesce(by_row(unknown, len(names)), wanted["reason"], obstacle, unexpected),
    }
    note = wanted["note"]
    if strategy.name in _OF_ANY_GROUP:
        existing = {*stored["group_id"].to_pylist(), *(name for name in names if "state" in groups.found[name])}
        new = pa.array([None if name in existing else _NEW for name in names], pa.string())
        note = pc.binary_join_element_wise(new, note, "; ", null_handling="skip")
        note = pc.if_else(pc.equal(note, ""), None, note)
    plan = rows_of("alterations", columns, len(names))
    plan = plan.append_column("requested_offset", wanted["requested_offset"]).append_column("note", note)
    return plan if live is None else plan.append_column(LIMIT, limit)


def unexpected_offsets(kind: str, offsets: pa.Array | pa.ChunkedArray, expected: pa.Array | None) -> pa.Array:
    """Return a text for each offset that is not the expected one; `kind` is committed or start."""
    if expected is None:
        return pa.nulls(len(offsets), pa.string())
    pairs = zip(offsets.to_pylist(), expected.to_pylist(), strict=True)
    reasons = [
        None
        if now == then
        else f"the {kind} offset is {'deleted' if now is None else now} now, not {'deleted' if then is None else then}"
        for now, then in pairs
    ]
    return pa.array(reasons, pa.string())


def _unchanged(wanted: pa.Table, previous: dict[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    """Return for each row whether the offset already has the wanted value."""
    old, new = previous["previous_offset"], wanted["committed_offset"]
    texts = (pc.fill_null(text, "") for text in (previous["previous_metadata"], wanted["metadata"]))
    same = pc.and_(pc.fill_null(pc.equal(old, new), fill_value=False), pc.equal(*texts))
    return pc.or_(same, pc.and_(pc.is_null(old), pc.is_null(new)))
