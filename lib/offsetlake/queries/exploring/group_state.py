"""One group at a time: its state, its members, and when its offsets expire."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import table_schema
from offsetlake.lake.lake import Lake
from offsetlake.queries.group_places import condition_if_known
from offsetlake.queries.history.reduction import appended_by, group_records
from offsetlake.queries.questions import log_partitions_of, quoted
from offsetlake.rules.groups.replay import replay_groups
from offsetlake.rules.policy import RetentionPolicy

Row = Mapping[str, Any]


def group_now(lake: Lake, group_id: str) -> tuple[Row | None, Sequence[Row]]:
    """Return the row of `groups` of a group, None if it does not exist, and its rows of `group_members`."""
    where = f"WHERE group_id = {quoted(group_id)} AND {condition_if_known(lake, group_id)}"
    groups = lake.query(f"SELECT * FROM groups {where}", "groups").to_pylist()  # noqa: S608
    members = lake.query(f"SELECT * FROM group_members {where} ORDER BY member_id", "group_members").to_pylist()  # noqa: S608
    return (groups[0] if groups else None), members


def group_at(lake: Lake, group_id: str, instant_ms: int) -> tuple[Row | None, Sequence[Row]]:
    """Return a group and its members as `group_now`, by the group records appended by an instant (ms).

    A group without group records, which only committed, is None.
    """
    return _replayed(lake, group_id, log_partitions_of(lake, [group_id]), appended_by(instant_ms))


def group_before(lake: Lake, group_id: str, log_partition: int, log_offset: int) -> tuple[Row | None, Sequence[Row]]:
    """Return a group and its members as `group_at`, by the group records before a position in the log."""
    return _replayed(lake, group_id, [log_partition], f"log_offset < {log_offset}")


def _replayed(
    lake: Lake, group_id: str, log_partitions: Sequence[int], condition: str
) -> tuple[Row | None, Sequence[Row]]:
    if not log_partitions:
        return None, []
    records = group_records(lake, log_partitions, f"group_id = {quoted(group_id)} AND {condition}")
    commits = table_schema("offset_commits").empty_table().select(["group_id", "log_partition", "log_offset"])
    replayed = replay_groups(records, commits, table_schema("groups").empty_table())
    return (replayed.groups[0] if replayed.groups else None), replayed.members


def expiry(lake: Lake, group_id: str, policy: RetentionPolicy) -> pa.Table:
    """Return when the offsets of a group expire with a policy.

    The columns are topic, partition, kept_by, clock and clock_timestamp of the view `retention_clocks`, and
    expires_timestamp: null if something keeps the offset at any age.
    """
    columns = "group_id, topic, partition, kept_by, clock, clock_timestamp"
    only = f"group_id = {quoted(group_id)} AND {condition_if_known(lake, group_id)}"
    engine = lake.engine(["retention_clocks"], {}, dict.fromkeys(("offsets", "groups", "pending_offsets"), only))
    rows = engine.query(f"SELECT {columns} FROM retention_clocks ORDER BY topic, partition")  # noqa: S608
    retention = pc.if_else(pc.equal(rows["clock"], "expire_timestamp"), 0, pa.array(policy.retention(rows)))
    expires = pc.if_else(pc.is_null(rows["kept_by"]), pc.add(rows["clock_timestamp"], retention), None)
    return rows.drop_columns(["group_id"]).append_column("expires_timestamp", expires)
