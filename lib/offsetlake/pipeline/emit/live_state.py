"""The current state of groups of one log partition: the state tables, and the tail of the log after them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.kafka.records.coordinator_records import OffsetsRecordType
from offsetlake.lake.files import table_schema
from offsetlake.lake.foreign.guard import state_versions
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import StateFile, files_of_groups, list_state_files, read_state_files
from offsetlake.log.address import LogAddress
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition, OffsetRange
from offsetlake.log.reading import decode, plan_readers
from offsetlake.pipeline.ingest.rows import of_others
from offsetlake.rules.conditions import VALUE, CurrentState
from offsetlake.rules.reduction import KEY, latest
from offsetlake.rules.unresolved import Unresolved, concerned, of_groups

_NEWEST = (*KEY, "kind", "log_partition", "log_offset", *VALUE, "commit_timestamp")
_HELD = (*KEY, "log_partition", "log_offset")
_TAIL = (*_NEWEST, "producer_id", "commit_id")
_OF_WHOLE_GROUPS = {
    OffsetsRecordType.GROUP_METADATA,
    OffsetsRecordType.CONSUMER_GROUP_METADATA,
    OffsetsRecordType.SHARE_GROUP_METADATA,
    OffsetsRecordType.STREAMS_GROUP_METADATA,
}


@dataclass(frozen=True, slots=True)
class Tables:
    """The state tables while the lake is locked, and the log position that each log partition is compacted to."""

    lake: Lake
    positions: dict[tuple[str, int], int]
    state_files: dict[str, dict[int, list[StateFile]]] = field(init=False)
    unresolved: pa.Table = field(init=False)
    """The rows of `unresolved_records`, usually none."""

    def __post_init__(self) -> None:
        found = {
            table: list_state_files(self.lake, table, version) for table, version in state_versions(self.lake).items()
        }
        object.__setattr__(self, "state_files", found)
        files = chain(*found["unresolved_records"].values())
        object.__setattr__(self, "unresolved", read_state_files(self.lake, "unresolved_records", files))

    def rows(self, table: str, partition: int, groups: pa.Array, columns: Sequence[str]) -> pa.Table:
        """Read the rows of these groups of one log partition; repeated texts are dictionary-encoded."""
        of = self.state_files[table].get(partition, [])
        wanted = [state_file for found, _ in files_of_groups(of, groups.to_pylist()) for state_file in found]
        rows = read_state_files(self.lake, table, wanted, columns)
        return rows.filter(pc.is_in(rows["group_id"].cast(pa.string()), groups))


def read_current(tables: Tables, log: LogAddress, partition: int, groups: pa.Array, end: int) -> CurrentState:
    """Read the state of these groups, sorted and distinct, as of log offset `end` of a log partition."""
    stored = tables.rows("offsets", partition, groups, tuple(name for name in _NEWEST if name != "kind"))
    stored = stored.append_column("kind", pa.repeat("commit", stored.num_rows))
    pending = tables.rows("pending_offsets", partition, groups, (*_HELD, "producer_id"))
    pending = pending.filter(pc.is_valid(pending["producer_id"]))  # parts of incomplete commits block nothing
    stored_groups = {*tables.rows("groups", partition, groups, ("group_id",))["group_id"].to_pylist()}
    start = tables.positions.get((OFFSETS_TOPIC, partition), 0)
    tail = read_tail(log, partition, OffsetRange(start, end), groups)
    newest = plain(stored, _NEWEST)
    if tail.commits.num_rows:
        newest = latest(pa.concat_tables([newest, plain(tail.commits, _NEWEST)]))
    held = pa.concat_tables([plain(pending, _HELD), plain(tail.waiting, _HELD)])
    unresolved = of_groups(pa.concat_tables([tables.unresolved, tail.unresolved]), groups.to_pylist())
    exist = frozenset(stored_groups - tail.removed.keys())
    return CurrentState(newest, latest(held), exist, tail.changed, partition, Unresolved(unresolved))


@dataclass(slots=True)
class LiveTail:
    """The records of groups in a range of a log partition.

    | Field   | Description |
    |---------|-------------|
    | commits | Commits and tombstones of offsets that are effective by themselves. |
    | waiting | Transactional commits and parts of commits, which may or may not become effective. |
    | changed | The log offset of the last record of each group that changed. |
    | removed | The log offset of the tombstone of each group that was deleted and not created again. |
    | unresolved | What records and batches that cannot be decoded leave unknown: rows of `unresolved_records`. |
    """

    commits: pa.Table
    waiting: pa.Table
    changed: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    unresolved: pa.Table = field(default_factory=table_schema("unresolved_records").empty_table)


def read_tail(log: LogAddress, partition: int, offsets: OffsetRange, groups: pa.Array) -> LiveTail:
    """Read the records of these groups in a range of a log partition."""
    where = LogPartition(OFFSETS_TOPIC, partition)
    wanted = {*groups.to_pylist()}
    parts = [plain(table_schema("offset_commits").empty_table(), _TAIL)]
    tail, quarantined = LiveTail(pa.table({}), pa.table({})), list[dict[str, Any]]()
    for reader in plan_readers(log, {where: offsets} if offsets.start < offsets.end else {}):
        for piece, batches in log.fetch(reader.slices):
            chunk = decode(piece, batches)
            commits = pa.table(chunk.commits)
            parts.append(plain(commits.filter(pc.is_in(commits["group_id"], groups)), _TAIL))
            others = of_others(chunk.others, 0)
            for row in others["group_records"]:
                if row["group_id"] in wanted:
                    _group_record(tail, row)
            quarantined += others["quarantine"]
    commits = pa.concat_tables(parts)
    alone = pc.or_(pc.is_null(commits["producer_id"]), pc.equal(commits["kind"], "tombstone"))
    counts = pc.and_(alone, pc.or_(pc.is_null(commits["commit_id"]), pc.is_valid(commits["producer_id"])))
    if quarantined:
        rows = concerned(pa.Table.from_pylist(quarantined, table_schema("quarantine")))
        tail.unresolved = pa.Table.from_pylist(rows, table_schema("unresolved_records"))
    tail.commits, tail.waiting = commits.filter(counts), commits.filter(pc.invert(counts))
    return tail


def _group_record(tail: LiveTail, row: dict[str, Any]) -> None:
    """Apply a record of a group: its tombstone deletes it, and later tombstones of its parts do not create it again."""
    group_id, gone = row["group_id"], row["kind"] == "tombstone"
    if gone and row["record_type"] in _OF_WHOLE_GROUPS:
        tail.removed.setdefault(group_id, row["log_offset"])
        tail.changed.pop(group_id, None)
    elif not (gone and group_id in tail.removed):
        tail.removed.pop(group_id, None)
        tail.changed[group_id] = row["log_offset"]


def plain(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return these columns as nullable plain columns, so that rows of tables and of the log can be concatenated."""
    chosen = rows.select(names)
    for index, column in enumerate(chosen.schema):
        if pa.types.is_dictionary(column.type):
            chosen = chosen.set_column(index, column.name, chosen[index].cast(pa.string()))
    return pa.table({name: chosen[name] for name in names})
