"""What the log says now of some groups of one log partition: the compacted tables, and the log's tail behind them."""

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import table_schema
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import Leaf, leaves, read_leaves, touched
from offsetlake.lifecycle.conditions import VALUE, Current
from offsetlake.lifecycle.reduction import KEY, latest
from offsetlake.log.address import LogAddress
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition, OffsetRange
from offsetlake.log.source import decode, plan_readers
from offsetlake.pipeline.history_rows import of_others

_NEWEST = (*KEY, "kind", "log_partition", "log_offset", *VALUE, "commit_timestamp")
_HELD = (*KEY, "log_partition", "log_offset")
_TAIL = (*_NEWEST, "producer_id")
_TABLES = ("offsets", "pending_offsets", "groups")


@dataclass(frozen=True, slots=True)
class Tables:
    """The compacted tables as they stand while the lake is locked, and how far they cover the log."""

    lake: Lake
    positions: dict[tuple[str, int], int]
    leaves: dict[str, dict[int, list[Leaf]]] = field(init=False)

    def __post_init__(self) -> None:
        found = {table: leaves(self.lake, table, version) for table, version in self.lake.versions(*_TABLES).items()}
        object.__setattr__(self, "leaves", found)

    def rows(self, table: str, partition: int, groups: pa.Array, columns: tuple[str, ...]) -> pa.Table:
        """Read the rows of these groups; text columns that repeat come as dictionaries."""
        of = self.leaves[table].get(partition, [])
        wanted = [leaf for found, _ in touched(of, groups.to_pylist()) for leaf in found]
        rows = read_leaves(self.lake, table, wanted, columns)
        return rows.filter(pc.is_in(rows["group_id"].cast(pa.string()), groups))


def read_current(tables: Tables, log: LogAddress, partition: int, groups: pa.Array, end: int) -> Current:
    """Read what stands up to log offset `end` of a log partition for these groups, sorted and each once."""
    stored = tables.rows("offsets", partition, groups, tuple(name for name in _NEWEST if name != "kind"))
    stored = stored.append_column("kind", pa.repeat("commit", stored.num_rows))
    pending = tables.rows("pending_offsets", partition, groups, _HELD)
    there = {*tables.rows("groups", partition, groups, ("group_id",))["group_id"].to_pylist()}
    tail = _read_tail(tables, log, partition, groups, end)
    newest = latest(pa.concat_tables([_plain(stored, _NEWEST), _plain(tail.commits, _NEWEST)]))
    held = pa.concat_tables([_plain(pending, _HELD), _plain(tail.transactional, _HELD)])
    return Current(newest, latest(held), frozenset(there - tail.removed), tail.changed)


@dataclass(slots=True)
class _Tail:
    """The log behind the tables: plain and transactional offset records, groups changed and groups removed."""

    commits: pa.Table
    transactional: pa.Table
    changed: dict[str, int] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)


def _read_tail(tables: Tables, log: LogAddress, partition: int, groups: pa.Array, end: int) -> _Tail:
    where = LogPartition(OFFSETS_TOPIC, partition)
    start = tables.positions.get(where, 0)
    wanted = {*groups.to_pylist()}
    parts = [_plain(table_schema("offset_commits").empty_table(), _TAIL)]
    tail = _Tail(pa.table({}), pa.table({}))
    for reader in plan_readers(log, {where: OffsetRange(start, end)} if start < end else {}):
        for piece, found in log.fetch(reader.slices):
            chunk = decode(piece, found)
            commits = pa.table(chunk.commits)
            parts.append(_plain(commits.filter(pc.is_in(commits["group_id"], groups)), _TAIL))
            for row in of_others(chunk.others, 0)["group_records"]:
                if row["group_id"] in wanted:
                    _group_record(tail, row["group_id"], row["log_offset"], removes=_removes(row))
    commits = pa.concat_tables(parts)
    plain = pc.or_(pc.is_null(commits["producer_id"]), pc.equal(commits["kind"], "tombstone"))
    tail.commits, tail.transactional = commits.filter(plain), commits.filter(pc.invert(plain))
    return tail


def _removes(row: dict[str, object]) -> bool:
    """Say whether a group record ends its group: the last of the tombstones is one of the group, not of a member."""
    return row["kind"] == "tombstone" and row["member_id"] is None


def _group_record(tail: _Tail, group_id: str, log_offset: int, *, removes: bool) -> None:
    if removes:
        tail.removed.add(group_id)
        tail.changed.pop(group_id, None)
    else:
        tail.removed.discard(group_id)
        tail.changed[group_id] = log_offset


def _plain(rows: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """Give these columns, with dictionaries opened: rows of tables and of the log must go together."""
    chosen = rows.select(names)
    for at, column in enumerate(chosen.schema):
        if pa.types.is_dictionary(column.type):
            chosen = chosen.set_column(at, column.name, chosen[at].cast(pa.string()))
    return pa.table({name: chosen[name] for name in names})
