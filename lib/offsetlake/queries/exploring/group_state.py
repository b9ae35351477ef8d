"""One group at a time: its state, its members, and when its offsets expire."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import active_files, has_files, table_schema
from offsetlake.lake.history.group_places import condition_if_known
from offsetlake.lake.history.moved_groups import in_force_at, moved_places
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.queries.exploring.keys import REBALANCES
from offsetlake.queries.history.reduction import appended_by, group_records
from offsetlake.queries.selection import log_partitions_of
from offsetlake.rules.groups.replay import replay_groups
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.rules.reduction import KEY
from offsetlake.rules.retention import CLOCKS, EXPIRING, NEVER, RULES, GroupFacts, evaluate
from offsetlake.rules.unresolved import Unresolved

Row = Mapping[str, Any]


def group_now(lake: Lake, group_id: str) -> tuple[Row | None, Sequence[Row]]:
    """Return the row of `groups` of a group, None if it does not exist, and its rows of `group_members`."""
    where = f"WHERE group_id = {quoted(group_id)} AND {condition_if_known(lake, group_id)}"
    groups = lake.query(f"SELECT * FROM groups {where}", "groups").to_pylist()  # noqa: S608
    if not groups or not groups[0]["member_count"]:
        return (groups[0] if groups else None), []
    members = lake.query(f"SELECT * FROM group_members {where} ORDER BY member_id", "group_members").to_pylist()  # noqa: S608
    return groups[0], members


def group_at(lake: Lake, group_id: str, instant_ms: int) -> tuple[Row | None, Sequence[Row]]:
    """Return a group and its members as `group_now`, by the group records appended by an instant (ms).

    A group without group records, which only committed, is None.
    """
    partitions = log_partitions_of(lake, [group_id])
    if not partitions:
        return None, []
    records = _records(lake, group_id, partitions, appended_by(instant_ms))
    return _replayed(in_force_at(records, moved_places(lake), instant_ms))


def group_before(
    lake: Lake, group_id: str, log_partition: int, log_offset: int
) -> tuple[Row | None, Sequence[Row], Row | None]:
    """Return a group and its members as `group_at`, by the group records before a position in the log.

    The third value is the newest of these records that is a generation or epoch: its log_offset and log_timestamp; None
    if there is none.
    """
    records = _records(lake, group_id, [log_partition], f"log_offset < {log_offset}")
    is_rebalance = pc.field("record_name").isin(REBALANCES) & (pc.field("kind") == "value")
    rebalances = records.filter(is_rebalance).select(["log_offset", "log_timestamp"]).sort_by("log_offset").to_pylist()
    return *_replayed(records), (rebalances[-1] if rebalances else None)


def _records(lake: Lake, group_id: str, log_partitions: Sequence[int], condition: str) -> pa.Table:
    return group_records(lake, log_partitions, f"group_id = {quoted(group_id)} AND {condition}")


def _replayed(records: pa.Table) -> tuple[Row | None, Sequence[Row]]:
    commits = table_schema("offset_commits").empty_table().select(["group_id", "log_partition", "log_offset"])
    replayed = replay_groups(records, commits, table_schema("groups").empty_table())
    return (replayed.groups[0] if replayed.groups else None), replayed.members


def expiry(lake: Lake, offsets: pa.Table, group: Row | None, policy: RetentionPolicy) -> pa.Table:
    """Return when offsets of a group expire with a policy, by the rules of `expire` except for deleted topics.

    Args:
        lake: The lake.
        offsets: Rows of `offsets` of one group.
        group: The row of `groups` of this group, None if it does not exist.
        policy: The policy.

    | column            | description |
    |-------------------|-------------|
    | topic, partition  | the partition of the offset |
    | kept_by           | the rule that keeps the offset at any age; null if none does |
    | clock             | the timestamp that retention is measured from |
    | expires_timestamp | when the offset expires; null if it never does |
    """
    facts = GroupFacts(pa.Table.from_pylist([group] if group else [], schema=table_schema("groups")))
    unresolved = Unresolved(table_schema("unresolved_records").empty_table())
    if has_files(lake, "unresolved_records"):
        unresolved = Unresolved(lake.query("SELECT * FROM unresolved_records", "unresolved_records").combine_chunks())
    pending = _pending(lake, offsets)
    found = evaluate(offsets, facts, pending, NEVER, policy.retention(offsets), unresolved=unresolved)
    return (
        offsets.select(["topic", "partition"])
        .append_column("kept_by", pa.array(RULES).take(pa.array(found.rule, mask=EXPIRING[found.rule])))
        .append_column("clock", pa.array(CLOCKS).take(pa.array(found.clock)))
        .append_column("expires_timestamp", pa.array(found.expires_at, mask=found.expires_at == NEVER))
    )


def _pending(lake: Lake, offsets: pa.Table) -> pa.Table:
    """Return the keys in `pending_offsets` of the group of some offsets."""
    if not offsets.num_rows or not active_files(lake, "pending_offsets"):  # as almost always
        return table_schema("pending_offsets").empty_table().select(KEY)
    group_id = offsets["group_id"][0].as_py()
    where = f"group_id = {quoted(group_id)} AND {condition_if_known(lake, group_id)}"
    return lake.query(f"SELECT {', '.join(KEY)} FROM pending_offsets WHERE {where}", "pending_offsets")  # noqa: S608
