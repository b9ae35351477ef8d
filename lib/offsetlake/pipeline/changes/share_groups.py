"""Plans of `reset --share`, `restore` and `cleanup` for share groups: the start offsets of their share partitions.

A new start offset discards the delivery states of the records of its share partition: Kafka's admin API cannot set
them, and an undo restores the start offset only.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.log.cluster.admin import ClusterAdmin
from offsetlake.pipeline.changes import targets
from offsetlake.pipeline.changes.alterations import Strategy, unexpected_offsets
from offsetlake.pipeline.changes.execute import rows_of
from offsetlake.pipeline.changes.group_selection import GroupSelection, groups_like, select_groups
from offsetlake.pipeline.changes.reset import Reset
from offsetlake.queries.deleted import share_changes
from offsetlake.queries.share import share_partitions
from offsetlake.rules.conditions import SHARE, SHARE_ONLY_THROUGH_CLUSTER
from offsetlake.rules.reduction import KEY
from offsetlake.util.times import to_iso

Row = dict[str, Any]
SharePartitions = dict[tuple[str, str, int], Row]
"""Rows of `queries.share.share_partitions` by group, topic and partition."""

_DECIDED_LATER = "the share partition had no start offset at that time: it does not change"
_UNDECIDED_BEFORE = "the start offset was undecided before: only a member decides it"
_NO_TOPIC = "no record names the topic of this ID: its cluster does not know it any more"


def reset_share_group(lake: Lake, request: Reset, admin: ClusterAdmin | None, now: int) -> pa.Table:
    """Plan new start offsets of a share group, including rows without a change; columns as `plan_alterations`.

    Raises:
        BadRequest: There is no such share group, or no such topic.
    """
    if request.group_id is None or request.compute is None:
        raise BadRequest("--share takes a group and a strategy of its own: omit --from-file and --from-group.")
    groups = groups_like(lake, request.group_id)
    if groups.found.get(request.group_id, {}).get("group_type") != SHARE:
        raise BadRequest(f"{request.group_id!r} is not a share group: reset its committed offsets without --share.")
    stored = _stored(lake, groups.found)
    offsets = {(topic, number): row["start_offset"] for (_, topic, number), row in stored.items()}
    ends = targets.LogEndLookup(admin, request.timestamp)
    wanted = targets.by_strategy(offsets, request.group_id, request.scope, request.compute, ends)
    expected = None if request.only_if is None else pa.array([request.only_if] * wanted.num_rows, pa.int64())
    strategy = Strategy(request.strategy, request.evidence)
    return _plan(groups, stored, wanted, strategy, now, expected, through_cluster=admin is not None)


def share_as_of(
    lake: Lake, pattern: str, timestamp: int, topic: str | None, now: int, *, through_cluster: bool
) -> pa.Table | None:
    """Plan to restore the start offsets of share groups at a time; None if no share group matches the pattern.

    Share partitions that did not exist then, or whose start offset was undecided, do not change.
    """
    places = share_groups_in_history(lake, pattern)
    if not places:
        return None
    groups = select_groups(lake, places)
    stored = _stored(lake, places)
    then = _by_key(row for row in share_partitions(lake, instant_ms=timestamp).to_pylist() if row["group_id"] in places)
    known = {key: row["start_offset"] for key, row in then.items() if row["start_offset"] is not None}
    unchanged = {"requested_offset": None, "note": _DECIDED_LATER}
    rows = [
        *(_wanted(key, offset) for key, offset in known.items()),
        *(_wanted(key, row["start_offset"]) | unchanged for key, row in stored.items() if key not in known),
    ]
    wanted = pa.Table.from_pylist([row for row in rows if topic in (None, row["topic"])], schema=targets.WANTED)
    return _plan(groups, stored, wanted, Strategy("as_of", to_iso(timestamp)), now, through_cluster=through_cluster)


def undo_share_changes(lake: Lake, run_id: int, now: int, *, through_cluster: bool) -> pa.Table | None:
    """Plan to restore the start offsets from before a run, where they have not changed since; None if it set none."""
    done = share_changes(lake, run_id).to_pylist()
    if not done:
        return None
    groups = select_groups(lake, {row["group_id"]: row["log_partition"] for row in done})
    rows = [
        _wanted((row["group_id"], row["topic"], row["partition"]), row["previous_offset"])
        | {"reason": _UNDECIDED_BEFORE if row["previous_offset"] is None else None}
        for row in done
    ]
    wanted = pa.Table.from_pylist(rows, schema=targets.WANTED)
    expected = pa.array([row["set_offset"] for row in done], pa.int64())
    stored = _stored(lake, groups.found)
    return _plan(
        groups, stored, wanted, Strategy("undo", f"run {run_id}"), now, expected, through_cluster=through_cluster
    )


def share_tombstones(
    lake: Lake,
    groups: GroupSelection,
    topic: str | None,
    common: Mapping[str, object],
    reasons: Mapping[str, str | None],
) -> pa.Table:
    """Return rows of `tombstones` for the share partitions of those `groups` that are share groups.

    Args:
        lake: The lake.
        groups: The groups to clean up.
        topic: Only share partitions of this topic; None for all.
        common: The columns that are the same in all rows.
        reasons: Why a group cannot be changed, by group; None if it can.
    """
    names = [name for name, group in groups.found.items() if group.get("group_type") == SHARE]
    stored = {key: row for key, row in _stored(lake, names).items() if topic in (None, key[1])}
    rows = list(stored.values())
    columns = {
        **_keys(stored),
        "log_partition": pa.array([groups.found[row["group_id"]]["log_partition"] for row in rows], pa.int32()),
        "judged_offset": pa.array([row["log_offset"] for row in rows], pa.int64()),
        "committed_offset": pa.array([row["start_offset"] for row in rows], pa.int64()),
        "group_type": SHARE,
        "state": pa.array([groups.found[row["group_id"]]["state"] for row in rows], pa.string()),
        "reason": pa.array([reasons[row["group_id"]] for row in rows], pa.string()),
    }
    return rows_of("tombstones", {**common, **columns}, len(rows))


def share_groups_in_history(lake: Lake, pattern: str) -> dict[str, int]:
    """Return the log partition of each share group that ever existed and matches the pattern."""
    sql = "SELECT DISTINCT group_id, log_partition FROM group_records WHERE record_type = 11"
    known = {row["group_id"]: row["log_partition"] for row in lake.query(sql, "group_records").to_pylist()}
    names = [pattern] if pattern in known else [name for name in sorted(known) if fnmatchcase(name, pattern)]
    return {name: known[name] for name in names}


def _stored(lake: Lake, names: Iterable[str]) -> SharePartitions:
    wanted = {*names}
    return _by_key(row for row in share_partitions(lake).to_pylist() if row["group_id"] in wanted)


def _by_key(rows: Iterable[Row]) -> SharePartitions:
    """Return rows by key; of several topics with one name, the newest counts."""
    ordered = sorted(rows, key=lambda row: row["log_timestamp"] or 0)
    return {(row["group_id"], row["topic"] or row["topic_id"], row["partition"]): row for row in ordered}


def _wanted(key: tuple[str, str, int], offset: int | None) -> Row:
    return {**dict(zip(KEY, key, strict=True)), "committed_offset": offset, "requested_offset": offset}


def _keys(keys: Iterable[tuple[str, str, int]]) -> dict[str, pa.Array]:
    columns = {"group_id": pa.string(), "topic": pa.string(), "partition": pa.int32()}
    values = [*keys]
    return {name: pa.array([key[at] for key in values], of) for at, (name, of) in enumerate(columns.items())}


def _plan(
    groups: GroupSelection,
    stored: SharePartitions,
    wanted: pa.Table,
    strategy: Strategy,
    now: int,
    expected: pa.Array | None = None,
    *,
    through_cluster: bool,
) -> pa.Table:
    """Return rows of `alterations`, with the columns `requested_offset` and `note`; see `plan_alterations`."""
    keys = [*zip(*(wanted[name].to_pylist() for name in KEY), strict=True)]
    rows: list[Row] = [stored.get(key, {}) for key in keys]
    previous = pa.array([row.get("start_offset") for row in rows], pa.int64())
    same = pc.fill_null(pc.equal(previous, wanted["committed_offset"]), fill_value=False)
    members = groups.members()
    obstacles = [
        members.get(key[0]) or (None if through_cluster else SHARE_ONLY_THROUGH_CLUSTER) or _unnamed(row)
        for key, row in zip(keys, rows, strict=True)
    ]
    columns = {
        **{name: wanted[name] for name in (*KEY, "committed_offset")},
        "previous_offset": previous,
        "judged_offset": pa.array([row.get("log_offset") for row in rows], pa.int64()),
        "topic_id": pa.array([row.get("topic_id") for row in rows], pa.string()),
        "run_id": 0,
        "outcome": pc.if_else(pc.or_(same, pc.is_null(wanted["requested_offset"])), "unchanged", "planned"),
        "strategy": strategy.name,
        "evidence": strategy.evidence,
        "log_partition": pa.array([groups.found[key[0]]["log_partition"] for key in keys], pa.int32()),
        "commit_timestamp": now,
        "group_type": SHARE,
        "reason": pc.coalesce(
            wanted["reason"], pa.array(obstacles, pa.string()), unexpected_offsets("start", previous, expected)
        ),
    }
    plan = rows_of("alterations", columns, len(keys)).append_column("requested_offset", wanted["requested_offset"])
    discarded = pa.array([_discarded(row) for row in rows], pa.string())
    return plan.append_column("note", pc.coalesce(wanted["note"], pc.if_else(same, None, discarded)))


def _unnamed(row: Row) -> str | None:
    return _NO_TOPIC if row and row["topic"] is None else None


def _discarded(row: Row) -> str | None:
    """Return a note about the delivery states that a new start offset discards."""
    count = sum(row.get(f"{state}_records", 0) for state in ("available", "acknowledged", "archived"))
    return f"the delivery states of {count:,} records are discarded" if count else None
