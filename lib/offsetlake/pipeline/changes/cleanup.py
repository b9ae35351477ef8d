"""`cleanup`: plans the deletion of groups, or of their offsets of one topic, that a user requests."""

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.changes.execute import rows_of
from offsetlake.pipeline.changes.group_selection import (
    Group,
    GroupSelection,
    groups_like,
    select_groups,
    stored_places,
)
from offsetlake.pipeline.changes.share_groups import share_tombstones
from offsetlake.pipeline.emit.decisions import BY_HAND
from offsetlake.queries.review import orphans
from offsetlake.rules.conditions import SHARE, SHARE_ONLY_THROUGH_CLUSTER
from offsetlake.util.amounts import noun

_OF_OFFSETS = ("group_id", "topic", "partition", "log_partition", "log_offset", "committed_offset")


def plan_cleanup(lake: Lake, pattern: str, topic: str | None, now: int, *, live: bool) -> pa.Table:
    """Plan tombstones for groups and their offsets, or for their offsets of one topic; rows of `tombstones`.

    The offsets of a share group are the start offsets of its share partitions. A row that cannot be deleted has a
    reason: members use the group, or an open transaction includes the offset.

    Args:
        lake: The lake.
        pattern: The name of a group, or a shell pattern.
        topic: Only offsets of this topic, and not the groups themselves; None for everything.
        now: The time of the plan in ms since the epoch.
        live: Whether the log is a live cluster, which can also delete share groups.

    Raises:
        BadRequest: No group matches, or none has offsets of the topic.

    """
    rows = _plan(groups_like(lake, pattern), topic, now, live=live)
    if topic is not None and not rows.num_rows:
        raise BadRequest(f"No group that matches {pattern!r} has an offset of topic {topic!r}.")
    return rows


def plan_cleanup_of_orphans(lake: Lake, names: Collection[str], now: int, *, live: bool) -> pa.Table:
    """Plan what `plan_cleanup` plans for groups that nobody uses, or for their topics that nobody uses.

    Args are those of `plan_cleanup`; `names` are groups of `queries.review.orphans`. Raises BadRequest if one of them
    is in use again.
    """
    found = {row["group_id"]: row["unused_topics"] for row in orphans(lake, names=names).to_pylist()}
    if missing := len({*names} - found.keys()):
        raise BadRequest(
            f"Of the selected groups, {missing:,} {noun(missing, 'is', 'are')} in use or "
            f"{noun(missing, 'does', 'do')} not exist any more: select again."
        )
    by_topic: dict[str | None, list[str]] = {}
    for name, topics in found.items():
        for topic in (None,) if topics is None else topics:
            by_topic.setdefault(topic, []).append(name)
    places = stored_places(lake)
    plans = [
        _plan(select_groups(lake, {name: places[name] for name in groups}), topic, now, live=live)
        for topic, groups in by_topic.items()
    ]
    return pa.concat_tables(plans)


def _plan(groups: GroupSelection, topic: str | None, now: int, *, live: bool) -> pa.Table:
    offsets = groups.rows("offsets", _OF_OFFSETS)
    reasons = _reasons(groups, topic, live=live)
    of_share_groups = share_tombstones(groups.lake, groups, topic, _common([], now), reasons)
    if topic is not None:
        offsets = offsets.filter(pc.equal(offsets["topic"], topic))
    parts = [_of_offsets(offsets, groups, reasons, now), of_share_groups]
    if topic is None:
        parts.append(_of_groups(groups, offsets, reasons, now))
    return pa.concat_tables(parts)


def _reasons(groups: GroupSelection, topic: str | None, *, live: bool) -> dict[str, str | None]:
    members, blocked, unknown = groups.members(), groups.blocked(), groups.unknown(deleted=True)
    reasons: dict[str, str | None] = {}
    for name, group in groups.found.items():
        in_use = members.get(name) if topic is None or _uses(group, topic) else None
        if in_use and topic is not None:
            in_use = f"it is subscribed to {topic}, and {in_use.removeprefix('it ')}"
        only_cluster = group.get("group_type") == SHARE and not live
        reasons[name] = (
            unknown.get(name) or in_use or blocked.get(name) or (SHARE_ONLY_THROUGH_CLUSTER if only_cluster else None)
        )
    return reasons


def _uses(group: Group, topic: str) -> bool:
    """Return whether members of a group use the offsets of a topic, by the rules of OffsetDelete (KIP-496).

    All members of a share group use all of its offsets: DeleteShareGroupOffsets requires a group without members.
    """
    if group.get("protocol_type") != "consumer":
        return True
    return group["subscription"] in ("everything", "unknown") or topic in group["subscribed_topics"]


def _of_offsets(offsets: pa.Table, groups: GroupSelection, reasons: dict[str, str | None], now: int) -> pa.Table:
    names = offsets["group_id"].to_pylist()
    columns = {
        **{name: offsets[name] for name in ("group_id", "topic", "partition", "log_partition", "committed_offset")},
        "judged_offset": offsets["log_offset"],
        "reason": pa.array([reasons[name] for name in names], pa.string()),
        **_common([groups.found[name] for name in names], now),
    }
    return rows_of("tombstones", columns, offsets.num_rows)


def _of_groups(groups: GroupSelection, offsets: pa.Table, reasons: dict[str, str | None], now: int) -> pa.Table:
    """Return the rows of the groups themselves; a group that already has a tombstone needs none."""
    newest = {row["group_id"]: row["log_offset_max"] for row in _newest(offsets).to_pylist()}
    existing = [group for group in groups.found.values() if "group_type" in group]
    columns = {
        "group_id": pa.array([group["group_id"] for group in existing], pa.string()),
        "log_partition": pa.array([group["log_partition"] for group in existing], pa.int32()),
        "judged_offset": pa.array(
            [max(newest.get(g["group_id"], -1), -1 if g["log_offset"] is None else g["log_offset"]) for g in existing],
            pa.int64(),
        ),
        "reason": pa.array([reasons[group["group_id"]] for group in existing], pa.string()),
        **_common(existing, now),
    }
    return rows_of("tombstones", columns, len(existing))


def _newest(offsets: pa.Table) -> pa.Table:
    return offsets.group_by("group_id").aggregate([("log_offset", "max")])


def _common(groups: list[Group], now: int) -> dict[str, object]:
    return {
        "run_id": 0,
        "outcome": "planned",
        "rule": BY_HAND,
        "judged_timestamp": now,
        "group_type": pa.array([group.get("group_type") for group in groups], pa.string()),
        "state": pa.array([group.get("state") for group in groups], pa.string()),
    }
