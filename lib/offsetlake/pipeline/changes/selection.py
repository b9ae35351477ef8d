"""The groups a person means, and what stands in the way of acting on them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from offsetlake.errors import BadRequest
from offsetlake.kafka.placement import partition_for_group
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC
from offsetlake.lake import runs
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.emit.live_state import Tables, plain
from offsetlake.rules.policy import like

OFFSETS_PARTITIONS = 50  # offsets.topic.num.partitions, unless configured
_NAMED = 3  # members told by name
_OF_GROUPS = (
    "group_id", "group_type", "state", "protocol_type", "subscription", "subscribed_topics", "member_count",
    "log_partition", "log_offset",
)  # fmt: skip
_OF_MEMBERS = ("group_id", "member_id", "client_id", "client_host")

Group = dict[str, Any]
"""A row of `groups`; of a group that has offsets only, behind a tombstone of its own, the name and log partition."""


@dataclass(slots=True)
class GroupSelection:
    """Some groups of a lake by name."""

    lake: Lake
    found: dict[str, Group]
    tables: Tables = field(init=False)

    def __post_init__(self) -> None:
        self.tables = Tables(self.lake, {})

    def partitions(self) -> dict[int, pa.Array]:
        """Names of the groups by the log partition they live in."""
        by_partition: dict[int, list[str]] = {}
        for name, group in self.found.items():
            by_partition.setdefault(group["log_partition"], []).append(name)
        return {at: pa.array(names, pa.string()) for at, names in sorted(by_partition.items())}

    def rows(self, table: str, columns: Sequence[str]) -> pa.Table:
        """Read the rows of `offsets` or another state table that are of these groups."""
        parts = [plain(self.tables.rows(table, at, names, columns), columns) for at, names in self.partitions().items()]
        return pa.concat_tables(parts)

    def held(self) -> dict[str, str]:
        """Say which of the groups an open transaction holds an offset of."""
        rows = self.rows("pending_offsets", ("group_id", "producer_id", "log_offset")).to_pylist()
        return {
            row["group_id"]: f"an open transaction of producer {row['producer_id']} holds an offset of it, "
            f"since log offset {row['log_offset']}"
            for row in rows
            if row["producer_id"] is not None  # not a part of a commit that is not complete
        }

    def members(self) -> dict[str, str]:
        """Say of the groups that have members who they are."""
        by_group: dict[str, list[str]] = {}
        for row in self.rows("group_members", _OF_MEMBERS).to_pylist():
            who = f"{row['client_id'] or row['member_id']} at {row['client_host'] or 'an unknown host'}"
            by_group.setdefault(row["group_id"], []).append(who)
        told = {}
        for name, group in self.found.items():
            if group.get("member_count"):
                named = sorted(by_group.get(name, []))
                more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
                told[name] = f"it has members: {', '.join(named[:_NAMED])}{more}"
        return told


def groups_named(lake: Lake, pattern: str) -> GroupSelection:
    """Find the group of this name, or else those like the pattern (`*`, `?`, `[abc]` as in a shell).

    Raises BadRequest where there is none.
    """
    names = lake.query(
        "SELECT group_id, log_partition FROM groups UNION SELECT group_id, log_partition FROM offsets",
        "groups",
        "offsets",
    ).to_pylist()
    places = {row["group_id"]: row["log_partition"] for row in names}
    if pattern in places:
        chosen = [pattern]
    else:
        every = pa.chunked_array([pa.array(sorted(places), pa.string())])
        chosen = every.filter(pa.array(like(every, pattern))).to_pylist()
    if not chosen:
        raise BadRequest(f"there is no group {pattern!r} in the lake {lake.path}: `offsetlake groups` lists them")
    return groups_at(lake, {name: places[name] for name in chosen})


def groups_at(lake: Lake, places: dict[str, int]) -> GroupSelection:
    """Take groups by name and log partition, those too that are not there, or not any more."""
    groups = GroupSelection(lake, {name: {"group_id": name, "log_partition": at} for name, at in places.items()})
    for row in groups.rows("groups", _OF_GROUPS).to_pylist():
        groups.found[row["group_id"]] = row
    return groups


def place_of_new_group(lake: Lake, group_id: str, *, live: bool) -> int:
    """Give the log partition a group belongs in that is not there yet.

    A live cluster says how many there are. A folder has only those with records; it is taken to have the 50 a broker
    makes by default, unless a group that is there says otherwise: then BadRequest.
    """
    count = OFFSETS_PARTITIONS
    if live:
        ingested = runs.last_run(lake, "ingest")
        positions = (ingested.positions if ingested else None) or ()
        count = sum(1 for position in positions if position.topic == OFFSETS_TOPIC)
    known = lake.query("SELECT group_id, log_partition FROM offsets LIMIT 1", "offsets").to_pylist()
    if any(partition_for_group(row["group_id"], count) != row["log_partition"] for row in known):
        raise BadRequest(
            f"where group {group_id!r} belongs is not known: this log has not the {count} partitions a broker makes; "
            "let it commit once"
        )
    return partition_for_group(group_id, count)
