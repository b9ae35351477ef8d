"""Selects the groups that a user names, and determines what prevents changes of them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from offsetlake.errors import BadRequest, NotInLake
from offsetlake.kafka.placement import partition_for_group
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC
from offsetlake.lake import runs
from offsetlake.lake.history.moved_groups import one_place_each
from offsetlake.lake.lake import Lake
from offsetlake.lake.unread import check_read
from offsetlake.pipeline.emit.live_state import Tables, plain
from offsetlake.queries.selection import name_or_pattern
from offsetlake.queries.similar_names import similar_group
from offsetlake.rules.policy import like
from offsetlake.rules.unresolved import Unresolved

DEFAULT_LOG_PARTITIONS = 50  # the default of offsets.topic.num.partitions
_MAX_LISTED_MEMBERS = 3
_OF_GROUPS = (
    "group_id", "group_type", "state", "protocol_type", "subscription", "subscribed_topics", "member_count",
    "log_partition", "log_offset",
)  # fmt: skip
_OF_MEMBERS = ("group_id", "member_id", "client_id", "client_host")

Group = dict[str, Any]
"""A row of `groups`; only the name and log partition of a group that was deleted or has only offsets."""


@dataclass(slots=True)
class GroupSelection:
    """Groups of a lake by name."""

    lake: Lake
    found: dict[str, Group]
    tables: Tables = field(init=False)
    _unresolved: Unresolved = field(init=False)

    def __post_init__(self) -> None:
        self.tables = Tables(self.lake, {})
        self._unresolved = Unresolved(self.tables.unresolved)

    def partitions(self) -> dict[int, pa.Array]:
        """Return the names of the groups by log partition."""
        by_partition: dict[int, list[str]] = {}
        for name, group in self.found.items():
            by_partition.setdefault(group["log_partition"], []).append(name)
        return {partition: pa.array(names, pa.string()) for partition, names in sorted(by_partition.items())}

    def rows(self, table: str, columns: Sequence[str]) -> pa.Table:
        """Read the rows of these groups in `offsets` or another state table."""
        parts = [self.tables.rows(table, partition, names, columns) for partition, names in self.partitions().items()]
        return pa.concat_tables([plain(part, columns) for part in parts])

    def unknown(self, *, deleted: bool = False) -> dict[str, str]:
        """Return a text for each group whose state is unknown; `deleted` as of `Unresolved.group_reasons`."""
        places = {name: group["log_partition"] for name, group in self.found.items()}
        return self._unresolved.group_reasons(places, deleted=deleted) if self.tables.unresolved.num_rows else {}

    def unknown_offsets(self, offsets: pa.Table) -> dict[int, str]:
        """Return a text by row for each offset that is unknown; columns as of `Unresolved.offsets`."""
        if not self.tables.unresolved.num_rows:
            return {}
        of_groups, names = self.unknown(), offsets["group_id"].to_pylist()
        reasons = {row: of_groups[name] for row, name in enumerate(names) if name in of_groups}
        return self._unresolved.offset_reasons(offsets) | reasons

    def blocked(self) -> dict[str, str]:
        """Return a text for each group with an offset in an open transaction."""
        rows = self.rows("pending_offsets", ("group_id", "producer_id", "log_offset")).to_pylist()
        return {
            row["group_id"]: f"an open transaction of producer {row['producer_id']} includes an offset of it, "
            f"since log offset {row['log_offset']}"
            for row in rows
            if row["producer_id"] is not None  # not a part of an incomplete commit
        }

    def members(self) -> dict[str, str]:
        """Return a text with the members of each group that has members."""
        by_group: dict[str, list[str]] = {}
        for row in self.rows("group_members", _OF_MEMBERS).to_pylist():
            member = f"{row['client_id'] or row['member_id']} at {row['client_host'] or 'an unknown host'}"
            by_group.setdefault(row["group_id"], []).append(member)
        texts = {}
        for name, group in self.found.items():
            if group.get("member_count"):
                members = sorted(by_group.get(name, []))
                more = len(members) - _MAX_LISTED_MEMBERS
                listed = ", ".join(members[:_MAX_LISTED_MEMBERS])
                texts[name] = f"it has members: {listed}{f' and {more} more' if more > 0 else ''}"
        return texts


def groups_like(lake: Lake, pattern: str) -> GroupSelection:
    """Select the groups that a name or a shell pattern means, as `queries.selection.name_or_pattern`.

    Raises NotInLake if no group matches, NotRead if the log partition of the group was not read.
    """
    log_partitions = stored_places(lake)
    known = pa.chunked_array([pa.array(sorted(log_partitions), pa.string())])
    names = known.filter(pa.array(like(known, name_or_pattern(lake, pattern)))).to_pylist()
    if not names:
        check_read(lake, pattern)
        suggestion = similar_group(lake, pattern)  # now: the lake can be a copy that is removed
        raise NotInLake(
            f"There is no group {pattern!r} in the lake {lake.location}: `offsetlake groups` lists all groups.",
            lambda: suggestion,
        )
    return select_groups(lake, {name: log_partitions[name] for name in names})


def stored_places(lake: Lake) -> dict[str, int]:
    """Return the log partition of every group that exists or has offsets."""
    sql = "SELECT group_id, log_partition FROM groups UNION SELECT group_id, log_partition FROM offsets"
    rows = lake.query(sql, "groups", "offsets").to_pylist()
    return {row["group_id"]: row["log_partition"] for row in rows}


def select_groups(lake: Lake, log_partitions: dict[str, int]) -> GroupSelection:
    """Select groups by name and log partition, including groups that do not exist."""
    rows = {name: {"group_id": name, "log_partition": number} for name, number in log_partitions.items()}
    groups = GroupSelection(lake, rows)
    for row in groups.rows("groups", _OF_GROUPS).to_pylist():
        groups.found[row["group_id"]] = row
    return groups


def groups_named(lake: Lake, names: Collection[str], *, live: bool) -> GroupSelection:
    """Select groups by name, including groups that do not exist yet; `live` is whether the log is a live cluster.

    The number of log partitions of a live cluster is known. A folder contains only those with records; the default of
    a broker is assumed for groups that never committed. Raises BadRequest if an existing group contradicts it, and
    NotRead if the log partition of a group was not read.
    """
    known = {} if live else _all_places(lake)
    count = DEFAULT_LOG_PARTITIONS
    if live:
        ingested = runs.last_run(lake, "ingest")
        positions = (ingested.positions if ingested else None) or ()
        count = sum(1 for position in positions if position.topic == OFFSETS_TOPIC)
    if new := sorted({*names} - known.keys()):
        for name in new:
            check_read(lake, name)
        _check_count(lake, count, new[0])
    return select_groups(lake, {name: known.get(name, partition_for_group(name, count)) for name in sorted(names)})


def _check_count(lake: Lake, count: int, group_id: str) -> None:
    known = lake.query("SELECT group_id, log_partition FROM offsets LIMIT 1", "offsets").to_pylist()
    if any(partition_for_group(row["group_id"], count) != row["log_partition"] for row in known):
        raise BadRequest(
            f"Cannot determine the log partition of the new group {group_id!r}: this log does not have {count} "
            "partitions. Commit an offset with the group first."
        )


def _all_places(lake: Lake) -> dict[str, int]:
    """Return the log partition of every group that ever committed."""
    rows = lake.query("SELECT DISTINCT group_id, log_partition FROM offset_commits", "offset_commits")
    return one_place_each(lake, rows)
