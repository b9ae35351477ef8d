"""The partitions that the members of groups read: those assigned to them, and the others of their subscribed topics."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import active_files, table_schema
from offsetlake.lake.history.history_files import ALL_RUNS, HistoryFile, partition_files, row_groups
from offsetlake.lake.lake import Lake
from offsetlake.queries.history.reduction import group_records
from offsetlake.queries.selection import like
from offsetlake.rules.groups.replay import replay_groups
from offsetlake.rules.reduction import KEY
from offsetlake.util.columns import mapped
from offsetlake.util.row_codes import Ints, among, order_codes, rows_in

OWNER = ("member_id", "client_id", "client_host")
"""The columns of the member that a partition is assigned to."""

SCHEMA = pa.schema(
    [("group_id", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), *((n, pa.string()) for n in OWNER)]
)

_GROUPS, _MEMBERS = ["group_id", "group_type", "subscribed_topics"], ["group_id", *OWNER, "assignment"]
_WITH_MEMBERS = (pc.field("member_count") > 0) & (pc.field("group_type") != "share")


class _Membership(NamedTuple):
    """Groups with members, except share groups, with the columns _GROUPS; and the members, with those of _MEMBERS."""

    groups: pa.Table
    members: pa.Table


class Assignments:
    """The assignments of groups as an ingest and those before it read them.

    They are those in the tables `groups` and `group_members`, which a compaction has updated since. If a later ingest
    has read group records, the records up to the ingest are replayed. Share groups commit no offsets, and are omitted.

    Args:
        lake: The lake.
        run: The ingest.
        ends: The log end offsets of that ingest, as `ends_asked_by` returns them: the partitions of topics, and the
            names of topic IDs.
    """

    def __init__(self, lake: Lake, run: int, ends: pa.Table) -> None:
        self._lake, self._run = lake, run
        self._partitions = ends.select(["topic", "partition"])
        named = ends.filter(pc.is_valid(ends["topic_id"])).group_by(["topic_id", "topic"]).aggregate([])
        self._names = dict(zip(named["topic_id"].to_pylist(), named["topic"].to_pylist(), strict=True))
        newest = (file.get("max.ingest_run") for file in active_files(lake, "group_records"))
        self._is_past = any((ALL_RUNS if read is None else read) > run for read in newest)
        self._files = {
            table: partition_files(lake, table)
            for table in (("group_records",) if self._is_past else ("groups", "group_members"))
        }

    def log_partitions(self) -> list[int]:
        """Return the log partitions that may have groups."""
        files: list[HistoryFile] = self._files["group_records" if self._is_past else "groups"]
        return sorted({p for file in files for p in range(file.first_partition, file.last_partition + 1)})

    def of(
        self, partitions: Sequence[int], pattern: str | None, topic: str | None, committed: pa.Table | None = None
    ) -> pa.Table:
        """Return the partitions that members of groups in some log partitions read, in any order, each once.

        The columns are those of SCHEMA; OWNER is null for a partition of a subscribed topic that no member is assigned.

        Args:
            partitions: The log partitions.
            pattern: A pattern that the names of the groups must match; None for all.
            topic: The topic; None for all.
            committed: Partitions with commits, by group_id, topic and partition: groups are omitted that have one in
                each partition of the topics that they are subscribed to. None omits no group.

        """
        found = self._replayed(partitions) if self._is_past else self._stored(partitions, committed)
        groups, members = like(found.groups, pattern), like(found.members, pattern)
        parts = pa.concat_tables([self._assigned(members), self._subscribed(groups)])
        if topic is not None:
            parts = parts.filter(pc.equal(parts["topic"], topic))
        # The first row of each partition is the one with its owner.
        first = np.unique(order_codes(parts, KEY), return_index=True)[1]
        return parts.take(pa.array(first))

    def _stored(self, partitions: Sequence[int], committed: pa.Table | None) -> _Membership:
        groups = self._rows("groups", partitions, _WITH_MEMBERS, _GROUPS)
        if committed is not None:
            groups = groups.filter(pa.array(self._lack_commits(groups, committed)))
        if not groups.num_rows:
            return _Membership(groups, table_schema("group_members").empty_table().select(_MEMBERS))
        members = self._rows("group_members", partitions, pc.scalar(value=True), _MEMBERS)
        return _Membership(groups, members.filter(pa.array(among(members, groups, ["group_id"]))))

    def _lack_commits(self, groups: pa.Table, committed: pa.Table) -> npt.NDArray[np.bool_]:
        """Return which groups may read a partition without a commit."""
        groups = groups.combine_chunks()
        group = pc.list_parent_indices(groups["subscribed_topics"])
        topics = pc.list_flatten(groups["subscribed_topics"])
        pairs = pa.table({"group_id": groups["group_id"].take(group), "topic": topics})
        have = _counted(pairs, committed, ["group_id", "topic"])
        are_all = (have > 0) & (have == _counted(pairs, self._partitions, ["topic"]))
        lack: npt.NDArray[np.bool_] = pc.equal(pc.list_value_length(groups["subscribed_topics"]), 0).to_numpy()
        lack[group.to_numpy()[~are_all]] = True
        return lack

    def _rows(self, table: str, partitions: Sequence[int], where: pc.Expression, columns: list[str]) -> pa.Table:
        schema = pa.schema([table_schema(table).field(name) for name in columns])
        if not partitions:
            return schema.empty_table()
        rows = row_groups(self._lake, table, self._files[table], partitions, where, columns)
        return pa.concat_tables(rows).cast(schema)

    def _replayed(self, partitions: Sequence[int]) -> _Membership:
        records = group_records(self._lake, partitions, f"ingest_run <= {self._run}")
        commits = table_schema("offset_commits").empty_table().select(["group_id", "log_partition", "log_offset"])
        replayed = replay_groups(records, commits, table_schema("groups").empty_table())
        groups = pa.Table.from_pylist(replayed.groups, table_schema("groups")).filter(_WITH_MEMBERS).select(_GROUPS)
        members = pa.Table.from_pylist(replayed.members, table_schema("group_members")).select(_MEMBERS)
        return _Membership(groups, members.filter(pa.array(among(members, groups, ["group_id"]))))

    def _assigned(self, members: pa.Table) -> pa.Table:
        """Return the assigned partitions; those of topics whose names are unknown, and tasks, are omitted."""
        members = members.combine_chunks()
        entries = pc.list_flatten(members["assignment"])
        ids = mapped(pc.struct_field(entries, "topic_id"), self._names)
        topics = pc.coalesce(pc.struct_field(entries, "topic"), ids)
        numbers = pc.struct_field(entries, "partitions")
        entry = pc.list_parent_indices(numbers)
        rows = members.take(pc.list_parent_indices(members["assignment"]).take(entry))
        columns = {"topic": topics.take(entry), "partition": pc.list_flatten(numbers)}
        columns |= {name: rows[name] for name in ("group_id", *OWNER)}
        found = pa.table(columns).select(SCHEMA.names).cast(SCHEMA)
        return found.filter(pc.is_valid(found["topic"]))

    def _subscribed(self, groups: pa.Table) -> pa.Table:
        """Return all partitions of the topics that groups are subscribed to, as far as the cluster returned them."""
        groups = groups.combine_chunks()
        group = pc.list_parent_indices(groups["subscribed_topics"])
        wanted = pa.table({"topic": pc.list_flatten(groups["subscribed_topics"]), "group": group})
        known = self._partitions.filter(pc.is_in(self._partitions["topic"], pc.unique(wanted["topic"])))
        rows = wanted.join(known, "topic", join_type="inner")
        columns = {"group_id": groups["group_id"].take(rows["group"]), "topic": rows["topic"]}
        owners = {name: pa.nulls(rows.num_rows, pa.string()) for name in OWNER}
        return pa.table({**columns, "partition": rows["partition"], **owners}).cast(SCHEMA)


def _counted(rows: pa.Table, others: pa.Table, names: list[str]) -> Ints:
    """Return for each row the number of rows of `others` with the same values in these columns."""
    _, first, counts = np.unique(order_codes(others, names), return_index=True, return_counts=True)
    same = rows_in(rows, others.select(names).take(pa.array(first)), names)
    number: Ints = np.append(counts, 0)[same]
    return number
