"""What the log says now of some groups of one log partition: the compacted tables, and the log's tail behind them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
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
    """The compacted tables as they stand while the lake is locked, and how far they cover the log."""

    lake: Lake
    positions: dict[tuple[str, int], int]
    state_files: dict[str, dict[int, list[StateFile]]] = field(init=False)

    def __post_init__(self) -> None:
        found = {
            table: list_state_files(self.lake, table, version) for table, version in state_versions(self.lake).items()
        }
        object.__setattr__(self, "state_files", found)

    def rows(self, table: str, partition: int, groups: pa.Array, columns: Sequence[str]) -> pa.Table:
        """Read the rows of these groups, all of one log partition; text columns that repeat come as dictionaries."""
        of = self.state_files[table].get(partition, [])
        wanted = [state_file for found, _ in files_of_groups(of, groups.to_pylist()) for state_file in found]
        rows = read_state_files(self.lake, table, wanted, columns)
        return rows.filter(pc.is_in(rows["group_id"].cast(pa.string()), groups))


def read_current(tables: Tables, log: LogAddress, partition: int, groups: pa.Array, end: int) -> CurrentState:
    """Read what stands up to log offset `end` of a log partition for these groups, sorted and each once."""
    stored = tables.rows("offsets", partition, groups, tuple(name for name in _NEWEST if name != "kind"))
    stored = stored.append_column("kind", pa.repeat("commit", stored.num_rows))
    pending = tables.rows("pending_offsets", partition, groups, (*_HELD, "producer_id"))
    pending = pending.filter(pc.is_valid(pending["producer_id"]))  # parts of a commit never completed hold nothing
    there = {*tables.rows("groups", partition, groups, ("group_id",))["group_id"].to_pylist()}
    start = tables.positions.get((OFFSETS_TOPIC, partition), 0)
    tail = read_tail(log, partition, OffsetRange(start, end), groups)
    newest = plain(stored, _NEWEST)
    if tail.commits.num_rows:
        newest = latest(pa.concat_tables([newest, plain(tail.commits, _NEWEST)]))
    held = pa.concat_tables([plain(pending, _HELD), plain(tail.waiting, _HELD)])
    return CurrentState(newest, latest(held), frozenset(there - tail.removed.keys()), tail.changed)


@dataclass(slots=True)
class LiveTail:
    """A stretch of the log: offset records that count by themselves, others, groups changed and groups removed.

    `waiting` are commits of transactions and parts of commits: whether they count, the next compaction tells.
    `removed` tells where the tombstone of a group stands, after which nothing of it came.
    """

    commits: pa.Table
    waiting: pa.Table
    changed: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)


def read_tail(log: LogAddress, partition: int, offsets: OffsetRange, groups: pa.Array) -> LiveTail:
    """Read what a stretch of a log partition says of these groups."""
    where = LogPartition(OFFSETS_TOPIC, partition)
    wanted = {*groups.to_pylist()}
    parts = [plain(table_schema("offset_commits").empty_table(), _TAIL)]
    tail = LiveTail(pa.table({}), pa.table({}))
    for reader in plan_readers(log, {where: offsets} if offsets.start < offsets.end else {}):
        for piece, found in log.fetch(reader.slices):
            chunk = decode(piece, found)
            commits = pa.table(chunk.commits)
            parts.append(plain(commits.filter(pc.is_in(commits["group_id"], groups)), _TAIL))
            for row in of_others(chunk.others, 0)["group_records"]:
                if row["group_id"] in wanted:
                    _group_record(tail, row)
    commits = pa.concat_tables(parts)
    alone = pc.or_(pc.is_null(commits["producer_id"]), pc.equal(commits["kind"], "tombstone"))
    counts = pc.and_(alone, pc.or_(pc.is_null(commits["commit_id"]), pc.is_valid(commits["producer_id"])))
    tail.commits, tail.waiting = commits.filter(counts), commits.filter(pc.invert(counts))
    return tail


def _group_record(tail: LiveTail, row: dict[str, Any]) -> None:
    """Take in a record of a group: its own tombstone ends it, and behind that those of its parts are nothing."""
    group_id, gone = row["group_id"], row["kind"] == "tombstone"
    if gone and row["record_type"] in _OF_WHOLE_GROUPS:
        tail.removed.setdefault(group_id, row["log_offset"])
        tail.changed.pop(group_id, None)
    elif not (gone and group_id in tail.removed):
        tail.removed.pop(group_id, None)
        tail.changed[group_id] = row["log_offset"]


def plain(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Give these columns, nullable and without dictionaries: so rows of tables and of the log go together."""
    chosen = rows.select(names)
    for at, column in enumerate(chosen.schema):
        if pa.types.is_dictionary(column.type):
            chosen = chosen.set_column(at, column.name, chosen[at].cast(pa.string()))
    return pa.table({name: chosen[name] for name in names})
