"""What stands now: the compacted tables and the tail of the log behind them, in memory; nothing is written.

The tail is compacted as `compact` would, so a snapshot is what the tables are after another ingest and compact.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import feather

from offsetlake.errors import BadRequest
from offsetlake.lake import runs
from offsetlake.lake.files import table_schema
from offsetlake.lake.foreign.guard import state_versions
from offsetlake.lake.history_files import RecordSource
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import StateFile, files_of_groups, list_state_files, read_state_files
from offsetlake.log.address import LogAddress
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition, OffsetRange
from offsetlake.log.reading import decode, plan_readers
from offsetlake.pipeline.compact.task import (
    COMPACTED,
    Compaction,
    reduced,
    replaced_groups,
    replayed_groups,
    still_pending,
)
from offsetlake.pipeline.ingest.plan import check_same_log
from offsetlake.pipeline.ingest.rows import of_others
from offsetlake.rules.reduction import KEY, latest, merged
from offsetlake.util.arguments import lists_arguments
from offsetlake.util.atomic_files import replacing
from offsetlake.util.row_codes import rows_in

_TAIL = ("offset_commits", "transaction_markers", "group_records")
_PLACE = (*KEY, "log_partition", "log_offset")
_NO_RUN = 0  # it read what is in no table yet


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the log says up to `ends`.

    | field     | is |
    |-----------|----|
    | tables    | `offsets`, `pending_offsets`, `groups`, `group_members`, all columns; texts may be dictionaries |
    | ends      | by log partition, the log offset behind what was taken in |
    | overtaken | one a row of `pending_offsets`: whether a newer record of its key counts already |
    | version   | Delta version of the table `offsets` that was read; the log behind it is compacted in memory |
    """

    tables: dict[str, pa.Table]
    ends: dict[int, int]
    overtaken: pa.Array
    version: int

    @lists_arguments
    def offsets(self, group_id: str, topic: str | None = None) -> pa.Table:
        """Give the offsets of a group, rows of `offsets`; of one topic, or of all."""
        rows = self.tables["offsets"]
        chosen = pc.equal(rows["group_id"].cast(pa.string()), group_id)
        if topic is not None:
            chosen = pc.and_(chosen, pc.equal(rows["topic"].cast(pa.string()), topic))
        return rows.filter(chosen)


@lists_arguments
def open_snapshot(lake: str | Path, log: str | Path | LogAddress) -> Snapshot:
    """Read what stands now, without a server: the tables of a lake, and the tail of the log behind them.

    `log` is a folder, or an address of a live cluster. Nothing is written, and a server may write to the log meanwhile.
    Raises LakeUnusable, LogUnavailable, LogMismatch; TypeError for anything else in place of the log.
    """
    if not isinstance(log, str | Path | LogAddress):
        raise TypeError(f"open_snapshot(): log is a str, a Path or a LogAddress, not {type(log).__name__}")
    address = log if isinstance(log, LogAddress) else LogAddress(folder=Path(log))
    return read_snapshot(Lake.open(Path(lake)), address)


def export(table: pa.Table, path: Path) -> None:
    """Write a table to a file, by its name Parquet (`.parquet`) or Arrow (`.arrow`): all of it, or no file.

    Raises BadRequest for another name, or where it cannot be written.
    """
    writers = {".parquet": pq.write_table, ".arrow": feather.write_feather}
    if path.suffix not in writers:
        raise BadRequest(f"{path} is neither a .parquet nor an .arrow file: name one of them")
    plain = pa.table({name: _without_dictionary(table[name]) for name in table.column_names})
    try:
        with replacing(path) as file:
            writers[path.suffix](plain, str(file))
    except OSError as error:
        raise BadRequest(f"{path} cannot be written: {error.strerror or error}") from error


def _without_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


@dataclass(frozen=True, slots=True)
class LogTail(RecordSource):
    """New records of the log, in memory."""

    tables: dict[str, pa.Table]

    def batches(
        self,
        table: str,
        partitions: Sequence[int],
        where: pc.Expression | None = None,
        columns: list[str] | None = None,
    ) -> Iterator[pa.Table]:
        """Give the rows of some log partitions in one."""
        chosen = pc.field("log_partition").isin(list(partitions))
        rows = self.tables[table].filter(chosen if where is None else chosen & where)
        yield rows.select(columns) if columns else rows


def read_snapshot(
    lake: Lake, log: LogAddress, ends: Mapping[int, int] | None = None, columns: Sequence[str] | None = None
) -> Snapshot:
    """Read the compacted tables, and the log behind them up to `ends`, or to where it ends now.

    `columns` limits those of `offsets`. Raises LogMismatch where the log is not the one the lake holds, LogUnavailable,
    LakeUnusable.
    """
    extent = log.describe()
    held = {where.partition: of for where, of in extent.ranges.items() if where.topic == OFFSETS_TOPIC}
    if runs.last_run(lake, "ingest"):
        check_same_log(lake, log, extent)
    covered, compacted, versions = _compacted(lake)
    upto = dict(ends) if ends is not None else {p: of.end for p, of in held.items()}
    starts = {p: max(covered.get((OFFSETS_TOPIC, p), 0), held[p].start if p in held else 0) for p in upto}
    tail = _read_tail(lake, log, {p: OffsetRange(starts[p], end) for p, end in upto.items() if starts[p] < end})
    partitions = sorted({*upto, *(p for table in compacted.values() for p in table)})
    compaction = Compaction(tail, compacted)
    tables, decided = _compacted_with(compaction, partitions, columns)
    return Snapshot(tables, upto, _overtaken(compaction, tables["pending_offsets"], decided), versions["offsets"])


def _compacted(
    lake: Lake,
) -> tuple[dict[tuple[str, int], int], dict[str, dict[int, list[StateFile]]], dict[str, int]]:
    """Give the log offsets the compacted tables cover, their state files and versions, as one compaction left them."""
    while True:
        last = runs.last_run(lake, "compact")
        positions, plan = runs.compacted_positions(lake), runs.unfinished_plan(lake, "compact", runs.CompactPlan)
        now = state_versions(lake)
        versions = plan.versions if plan else now
        if runs.last_run(lake, "compact") == last and runs.unfinished_plan(lake, "compact", runs.CompactPlan) == plan:
            found = {table: list_state_files(lake, table, version) for table, version in versions.items()}
            return positions, found, versions


def _read_tail(lake: Lake, log: LogAddress, ranges: Mapping[int, OffsetRange]) -> LogTail:
    commits = [table_schema("offset_commits").empty_table()]
    others: dict[str, list[dict[str, Any]]] = {table: [] for table in _TAIL[1:]}
    for reader in plan_readers(log, {LogPartition(OFFSETS_TOPIC, p): of for p, of in ranges.items()}):
        for piece, found in log.fetch(reader.slices):
            chunk = decode(piece, found)
            rows = pa.table(chunk.commits)
            counting = pc.or_(pc.invert(rows["superseded"]), pc.equal(rows["kind"], "tombstone"))
            commits.append(_in_history(rows.filter(counting)))
            of_tables = of_others(chunk.others, _NO_RUN)
            for table, known in others.items():
                known.extend(of_tables[table])
    tables = {table: pa.Table.from_pylist(of, table_schema(table)) for table, of in others.items()}
    return LogTail(lake, tables | {"offset_commits": pa.concat_tables(commits)})


def _in_history(commits: pa.Table) -> pa.Table:
    run = pa.repeat(pa.scalar(_NO_RUN, pa.int64()), commits.num_rows)
    schema = table_schema("offset_commits")
    return commits.append_column("ingest_run", run).select(schema.names).cast(schema)


def _compacted_with(
    compaction: Compaction, partitions: Sequence[int], columns: Sequence[str] | None
) -> tuple[dict[str, pa.Table], pa.Table | None]:
    """Compact in memory; `columns` of `offsets` are given, all if none are named. Gives also what the tail decided."""
    new = reduced(compaction, partitions)
    decided, pending = new.reduction.decided(), still_pending(compaction, partitions, new)
    parts: dict[str, list[pa.Table]] = {table: [] for table in COMPACTED}
    if pending is not None:
        parts["pending_offsets"].append(pending.select(table_schema("pending_offsets").names))
    for partition in partitions:
        parts["offsets"].append(_offsets(compaction, partition, decided, columns))
        replayed = replayed_groups(compaction, partition, new.commits)
        changed = pa.table({"group_id": pa.array(replayed.group_ids, pa.string())})
        for table, rows in (("groups", replayed.groups), ("group_members", replayed.members)):
            now = pa.Table.from_pylist(rows, table_schema(table))
            parts[table].append(replaced_groups(now, _stored(compaction, table, partition), changed))
    empty = {table: _stored(compaction, table, -1, columns if table == "offsets" else None) for table in COMPACTED}
    tables = {
        table: pa.concat_tables([empty[table], *(of.cast(empty[table].schema) for of in parts[table])])
        for table in COMPACTED
    }
    return tables, decided


def _overtaken(compaction: Compaction, pending: pa.Table, decided: pa.Table | None) -> pa.Array:
    """Tell of each row of `pending_offsets` whether a record of its key counts that stands behind it in the log."""
    groups: dict[int, set[str]] = {}
    for row in pending.select(["log_partition", "group_id"]).to_pylist():
        groups.setdefault(row["log_partition"], set()).add(row["group_id"])
    counting = [_place(table_schema("offsets").empty_table())]
    for partition, names in groups.items():
        of = [
            state_file
            for found, _ in files_of_groups(compaction.state_files["offsets"].get(partition, []), names)
            for state_file in found
        ]
        rows = read_state_files(compaction.lake, "offsets", of, _PLACE)
        counting.append(
            _place(rows.filter(pc.is_in(rows["group_id"].cast(pa.string()), pa.array([*names], pa.string()))))
        )
    if decided is not None and groups:
        named = pa.array([*set().union(*groups.values())], pa.string())
        counting.append(_place(decided.filter(pc.is_in(decided["group_id"].cast(pa.string()), named))))
    newest = latest(pa.concat_tables(counting))
    at = rows_in(pending, newest, KEY)
    behind = newest["log_offset"].take(np.maximum(at, 0)).to_numpy() if newest.num_rows else at
    return pa.array((at >= 0) & (behind > pending["log_offset"].to_numpy()))


def _place(rows: pa.Table) -> pa.Table:
    schema = table_schema("offsets")
    return rows.select(_PLACE).cast(pa.schema([schema.field(name).with_nullable(nullable=True) for name in _PLACE]))


def _offsets(
    compaction: Compaction, partition: int, decided: pa.Table | None, columns: Sequence[str] | None
) -> pa.Table:
    """Give the offsets of a log partition, some columns of them; what was decided in the tail is merged into them."""
    newer = None if decided is None else decided.filter(pc.equal(decided["log_partition"], partition))
    if newer is None or not newer.num_rows:
        return _stored(compaction, "offsets", partition, columns)
    needed = None if columns is None else [*dict.fromkeys([*columns, *KEY, "log_partition", "log_offset"])]
    rows = merged(_stored(compaction, "offsets", partition, needed), newer)
    return rows if columns is None else rows.select(columns)


def _stored(compaction: Compaction, table: str, partition: int, columns: Sequence[str] | None = None) -> pa.Table:
    return read_state_files(compaction.lake, table, compaction.state_files[table].get(partition, []), columns)
