"""Plans of `reset --share`, `restore` and `cleanup` for share groups: the start offsets of their share partitions.

A new start offset discards the delivery states of the records of its share partition: Kafka's admin API cannot set
them, and an undo restores the start offset only.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.changes import targets
from offsetlake.pipeline.changes.alterations import Strategy, unexpected_offsets
from offsetlake.pipeline.changes.execute import rows_of
from offsetlake.pipeline.changes.group_selection import GroupSelection, groups_like, select_groups
from offsetlake.pipeline.changes.reset import Reset
from offsetlake.queries.history.deleted import share_changes
from offsetlake.queries.selection import name_or_pattern
from offsetlake.queries.share import share_partitions
from offsetlake.rules.conditions import SHARE, SHARE_ONLY_THROUGH_CLUSTER
from offsetlake.rules.reduction import KEY
from offsetlake.util.amounts import counted
from offsetlake.util.columns import mapped, taken
from offsetlake.util.row_codes import Ints, among, order_codes, rows_in
from offsetlake.util.times import to_iso

if TYPE_CHECKING:
    from offsetlake.log.cluster.admin import ClusterAdmin

Row = dict[str, Any]
_OFFSETS = ("committed_offset", "requested_offset")
_DECIDED_LATER = "the share partition had no start offset at that time: it does not change"
_UNDECIDED_BEFORE = "the start offset was undecided before: only a member decides it"
_NO_TOPIC = "no record names the topic of this ID: its cluster does not know it any more"


def reset_share_group(lake: Lake, request: Reset, admin: "ClusterAdmin | None", now: int) -> pa.Table:
    """Plan new start offsets of a share group, including rows without a change; columns as `plan_alterations`.

    Raises:
        BadRequest: There is no such share group, or no such topic.
    """
    if request.group_id is None or request.compute is None:
        raise BadRequest("--share takes a group and a strategy of its own: omit --from-file and --from-group.")
    groups = groups_like(lake, request.group_id)
    if groups.found.get(request.group_id, {}).get("group_type") != SHARE:
        raise BadRequest(f"{request.group_id!r} is not a share group: reset its committed offsets without --share.")
    stored = _newest(share_partitions(lake), groups.found)
    offsets = stored.select([*KEY, "start_offset"]).rename_columns([*KEY, "committed_offset"])
    ends = targets.LogEndLookup(admin, request.timestamp)
    wanted = targets.by_strategy(offsets, request.group_id, request.scope, request.compute, ends)
    expected = None if request.only_if is None else pa.array([request.only_if] * wanted.num_rows, pa.int64())
    strategy = Strategy(request.strategy, request.evidence)
    return _plan(groups, stored, wanted, strategy, now, expected, through_cluster=admin is not None)


def share_as_of(
    lake: Lake, pattern: str, timestamp: int, scope: targets.Scope, now: int, *, through_cluster: bool
) -> pa.Table | None:
    """Plan to restore the start offsets of share groups at a time; None if no share group matches the pattern.

    Share partitions that did not exist then, as those of topics that were created again since, or whose start offset
    was undecided, do not change.
    """
    places = share_groups_in_history(lake, pattern)
    if not places:
        return None
    groups = select_groups(lake, places)
    stored, then = (
        _newest(share_partitions(lake), places),
        _newest(share_partitions(lake, instant_ms=timestamp), places),
    )
    created_again = among(then, stored, KEY) & ~among(then, stored, [*KEY, "topic_id"])
    known = then.filter(pc.and_(pc.is_valid(then["start_offset"]), pa.array(~created_again)))
    later = stored.filter(pa.array(~among(stored, known, KEY)))
    none = pa.nulls(later.num_rows, pa.int64())
    note = pa.repeat(pa.scalar(_DECIDED_LATER), later.num_rows)
    wanted = targets.in_scope(
        pa.concat_tables([_wanted(known), _wanted(later, requested_offset=none, note=note)]), scope
    )
    return _plan(groups, stored, wanted, Strategy("as_of", to_iso(timestamp)), now, through_cluster=through_cluster)


def undo_share_changes(lake: Lake, run_id: int, now: int, *, through_cluster: bool) -> pa.Table | None:
    """Plan to restore the start offsets from before a run, where they have not changed since; None if it set none."""
    done = share_changes(lake, run_id)
    if not done.num_rows:
        return None
    places = {row["group_id"]: row["log_partition"] for row in _distinct(done, ["group_id", "log_partition"])}
    groups = select_groups(lake, places)
    offset = done["previous_offset"]
    reason = pc.if_else(pc.is_null(offset), _UNDECIDED_BEFORE, pa.scalar(None, pa.string()))
    wanted = _wanted(done, committed_offset=offset, requested_offset=offset, reason=reason)
    expected = done["set_offset"].combine_chunks().cast(pa.int64())
    stored = _newest(share_partitions(lake), groups.found)
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
    stored = _newest(share_partitions(lake), names)
    if topic is not None:
        stored = stored.filter(pc.equal(stored["topic"], topic))
    columns = {
        **{name: stored[name] for name in KEY},
        "log_partition": _log_partitions(stored, groups),
        "judged_offset": stored["log_offset"],
        "committed_offset": stored["start_offset"],
        "group_type": SHARE,
        "state": mapped(stored["group_id"], {name: groups.found[name]["state"] for name in names}),
        "reason": mapped(stored["group_id"], {name: reasons[name] for name in names}),
    }
    return rows_of("tombstones", {**common, **columns}, stored.num_rows)


def share_groups_in_history(lake: Lake, pattern: str) -> dict[str, int]:
    """Return the log partition of each share group that ever existed and matches the pattern."""
    sql = "SELECT DISTINCT group_id, log_partition FROM group_records WHERE record_type = 11"
    known = {row["group_id"]: row["log_partition"] for row in lake.query(sql, "group_records").to_pylist()}
    match = name_or_pattern(lake, pattern)
    return {name: known[name] for name in sorted(known) if fnmatchcase(name, match)}


def _newest(rows: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return the rows of some groups; of several topics with one name, the newest counts.

    A topic whose name is unknown has its ID as `topic`, and `is_unnamed` is true.
    """
    rows = rows.filter(pc.is_in(rows["group_id"], value_set=pa.array([*names], pa.string())))
    rows = rows.append_column("is_unnamed", pc.is_null(rows["topic"]))
    topics = pc.coalesce(rows["topic"], rows["topic_id"])
    rows = rows.set_column(rows.schema.get_field_index("topic"), "topic", topics)
    by_time = np.argsort(pc.fill_null(rows["log_timestamp"].cast(pa.int64()), 0).to_numpy(), kind="stable")[::-1]
    _, first = np.unique(order_codes(rows, KEY)[by_time], return_index=True)
    return rows.take(pa.array(np.sort(by_time[first])))


def _wanted(rows: pa.Table, **columns: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return rows of `targets.WANTED`; without other columns, these set the start offsets of the rows."""
    offsets = {} if "committed_offset" in columns else dict.fromkeys(_OFFSETS, rows["start_offset"])
    values = {**{name: rows[name] for name in KEY}, **offsets, **columns}
    arrays = [values.get(field.name, pa.nulls(rows.num_rows, field.type)).cast(field.type) for field in targets.WANTED]
    return pa.table(arrays, schema=targets.WANTED)


def _distinct(rows: pa.Table, names: list[str]) -> list[Row]:
    distinct: list[Row] = rows.select(names).group_by(names).aggregate([]).to_pylist()
    return distinct


def _log_partitions(rows: pa.Table, groups: GroupSelection) -> pa.ChunkedArray:
    texts = {name: str(group["log_partition"]) for name, group in groups.found.items()}
    return mapped(rows["group_id"], texts).cast(pa.int32())


def _plan(
    groups: GroupSelection,
    stored: pa.Table,
    wanted: pa.Table,
    strategy: Strategy,
    now: int,
    expected: pa.Array | None = None,
    *,
    through_cluster: bool,
) -> pa.Table:
    """Return rows of `alterations`, with the columns `requested_offset` and `note`; see `plan_alterations`."""
    rows = rows_in(wanted, stored, KEY)
    previous = taken(stored["start_offset"], rows)
    same = pc.fill_null(pc.equal(previous, wanted["committed_offset"]), fill_value=False)
    unnamed = pc.if_else(taken(stored["is_unnamed"], rows), _NO_TOPIC, pa.scalar(None, pa.string()))
    columns = {
        **{name: wanted[name] for name in (*KEY, "committed_offset")},
        "previous_offset": previous,
        "judged_offset": taken(stored["log_offset"], rows),
        "topic_id": taken(stored["topic_id"], rows),
        "run_id": 0,
        "outcome": pc.if_else(pc.or_(same, pc.is_null(wanted["requested_offset"])), "unchanged", "planned"),
        "strategy": strategy.name,
        "evidence": strategy.evidence,
        "log_partition": _log_partitions(wanted, groups),
        "commit_timestamp": now,
        "group_type": SHARE,
        "reason": pc.coalesce(
            wanted["reason"],
            mapped(wanted["group_id"], groups.unknown()),
            mapped(wanted["group_id"], groups.members()),
            pa.scalar(None if through_cluster else SHARE_ONLY_THROUGH_CLUSTER, pa.string()),
            unnamed,
            unexpected_offsets("start", previous, expected),
        ),
    }
    plan = rows_of("alterations", columns, wanted.num_rows).append_column(
        "requested_offset", wanted["requested_offset"]
    )
    discarded = pc.if_else(same, pa.scalar(None, pa.string()), _discarded(stored, rows))
    return plan.append_column("note", pc.coalesce(wanted["note"], discarded))


def _discarded(stored: pa.Table, rows: Ints) -> pa.ChunkedArray:
    """Return notes about the delivery states that new start offsets discard."""
    counts = pa.chunked_array([pa.repeat(pa.scalar(0), stored.num_rows)])
    for state in ("available", "acknowledged", "archived"):
        counts = pc.add(counts, stored[f"{state}_records"])
    counts = pc.fill_null(taken(counts, rows), 0)
    distinct = pc.unique(counts).to_pylist()
    notes = {str(each): f"the delivery states of {counted(each, 'record')} are discarded" for each in distinct if each}
    return mapped(counts.cast(pa.string()), notes)
