"""Snapshots of the current state, in memory: the compacted tables with the tail of the log applied to them.

The tail is the log after the compacted positions. It is compacted as the jobs would, so a snapshot equals the tables
after another `ingest` and `compact`. Nothing is written.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake import current_run, plans, runs
from offsetlake.lake.files import table_schema
from offsetlake.lake.foreign.guard import refuse_changed, state_versions
from offsetlake.lake.history.history_files import RecordSource
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import StateFile, files_of_groups, list_state_files, read_state_files
from offsetlake.log.address import LogAddress
from offsetlake.log.positions import OFFSETS_TOPIC, LogExtent, LogPartition, OffsetRange
from offsetlake.log.readiness import repair_after_crash
from offsetlake.log.reading import decode, plan_readers
from offsetlake.pipeline.compact.reduced_history import (
    Compaction,
    ReducedHistory,
    reduce_history,
    replayed_groups,
    still_pending,
    unresolved,
)
from offsetlake.pipeline.compact.task import replaced_groups
from offsetlake.pipeline.ingest.known_log import check_same_log
from offsetlake.pipeline.ingest.rows import of_others
from offsetlake.rules.reduction import KEY, latest, merged
from offsetlake.rules.unresolved import Unresolved
from offsetlake.util.arguments import lists_arguments
from offsetlake.util.row_codes import rows_in

_TABLES = ("offsets", "pending_offsets", "groups", "group_members", "unresolved_records")
_TAIL = ("offset_commits", "transaction_markers", "group_records", "quarantine", "share_state_records")
_POSITION_COLUMNS = (*KEY, "log_partition", "log_offset")
_NO_RUN = 0  # the tail is in no table yet, so no run has ingested it

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The offsets and groups that result from the log up to `ends`.

    | field     | description |
    |-----------|-------------|
    | tables    | by name: the tables in _TABLES, all columns; strings can be dictionaries |
    | ends      | by log partition, the log offset after the last record applied |
    | overtaken | for each row of `pending_offsets`, whether a newer record of its key is already effective |
    | in_doubt  | KEY of the offsets that quarantined records leave unknown, and scope of the record |
    | version   | Delta version of the table `offsets` that was read; the log after it is compacted in memory |
    """

    tables: dict[str, pa.Table]
    ends: dict[int, int]
    overtaken: pa.Array
    version: int
    in_doubt: pa.Table

    @lists_arguments
    def offsets(self, group_id: str, topic: str | None = None) -> pa.Table:
        """Return the rows of `offsets` of a group, for one topic or for all."""
        rows = self.tables["offsets"]
        chosen = pc.equal(rows["group_id"].cast(pa.string()), group_id)
        if topic is not None:
            chosen = pc.and_(chosen, pc.equal(rows["topic"].cast(pa.string()), topic))
        return rows.filter(chosen)


@lists_arguments
def open_snapshot(lake: str | Path, log: str | Path | LogAddress) -> Snapshot:
    """Read the current offsets and groups without a server, from the tables of a lake and the tail of the log.

    `log` is a folder or the address of a live cluster. Nothing is written, and a server can write to the log meanwhile.
    Raises BadRequest for the URI of a lake, LakeUnusable, LogUnavailable, LogMismatch; TypeError if `log` has another
    type.
    """
    if not isinstance(log, str | Path | LogAddress):
        raise TypeError(f"open_snapshot(): log is a str, a Path or a LogAddress, not {type(log).__name__}")
    address = log if isinstance(log, LogAddress) else LogAddress(folder=Path(log))
    return read_snapshot(Lake.open(lake), address)


@dataclass(frozen=True, slots=True)
class LogTail(RecordSource):
    """The new records of the log, in memory."""

    tables: dict[str, pa.Table]

    def batches(
        self,
        table: str,
        partitions: Sequence[int],
        where: pc.Expression | None = None,
        columns: list[str] | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows of some log partitions as one table."""
        chosen = pc.field("log_partition").isin(list(partitions))
        rows = self.tables[table].filter(chosen if where is None else chosen & where)
        yield rows.select(columns) if columns else rows


def read_snapshot(
    lake: Lake, log: LogAddress, ends: Mapping[int, int] | None = None, columns: Sequence[str] | None = None
) -> Snapshot:
    """Read the compacted tables, and apply the log after them up to `ends`, by default up to its current end.

    `columns` selects columns of `offsets`. Raises LogMismatch if the lake was built from another log; LogUnavailable,
    LakeUnusable.
    """
    repair_after_crash(log)
    snapshot, parts = read_snapshot_in_parts(lake, log, lambda rows: rows, ends, columns)
    offsets = pa.concat_tables([snapshot.tables["offsets"], *parts])
    return replace(snapshot, tables=snapshot.tables | {"offsets": offsets})


def read_snapshot_in_parts(
    lake: Lake,
    log: LogAddress,
    convert: Callable[[pa.Table], T],
    ends: Mapping[int, int] | None = None,
    columns: Sequence[str] | None = None,
    *,
    threads: int = 1,
    extent: LogExtent | None = None,
) -> tuple[Snapshot, list[T]]:
    """Read a snapshot as `read_snapshot`, but with an empty table `offsets`, as its rows are many.

    The rows of each log partition are passed to `convert`, in `threads` threads, and are freed after that. The results
    are returned beside the snapshot. `extent` is what `log` contains; None to have it read.
    """
    extent = extent or log.describe()
    available = {source.partition: span for source, span in extent.ranges.items() if source.topic == OFFSETS_TOPIC}
    if runs.last_run(lake, "ingest"):
        check_same_log(lake, log, extent)
    covered, compacted, versions = _compacted(lake)
    upto = dict(ends) if ends is not None else {p: span.end for p, span in available.items()}
    earliest = {p: available[p].start if p in available else 0 for p in upto}
    starts = {p: max(covered.get((OFFSETS_TOPIC, p), 0), earliest[p]) for p in upto}
    tail = _read_tail(lake, log, {p: OffsetRange(starts[p], end) for p, end in upto.items() if starts[p] < end})
    partitions = sorted({*upto, *(p for table in compacted.values() for p in table)})
    compaction = Compaction(tail, compacted)
    new = reduce_history(compaction, partitions)
    decided = new.reduction.decided()
    with ThreadPoolExecutor(threads) as executor:
        parts = executor.map(lambda p: convert(_offsets(compaction, p, decided, columns)), partitions)
        tables = _small_tables(compaction, partitions, new, decided) | {
            "offsets": _stored(compaction, "offsets", -1, columns)
        }
        overtaken = _overtaken(compaction, tables["pending_offsets"], decided)
        in_doubt = _in_doubt(compaction, tables["unresolved_records"], decided)
        return Snapshot(tables, upto, overtaken, versions["offsets"], in_doubt), [*parts]


def _compacted(
    lake: Lake,
) -> tuple[dict[tuple[str, int], int], dict[str, dict[int, list[StateFile]]], dict[str, int]]:
    """Return the log offsets that the compacted tables cover, their state files and versions, of one compaction."""
    while True:
        last = runs.last_run(lake, "compact")
        positions, plan = (
            runs.compacted_positions(lake),
            current_run.unfinished_plan(lake, "compact", plans.CompactPlan),
        )
        refuse_changed(lake, "runs")
        newest = state_versions(lake, [table for table in _TABLES if table in lake.tables()])  # older lakes lack some
        versions = {table: plan.versions.get(table, newest[table]) for table in newest} if plan else newest
        if (
            runs.last_run(lake, "compact") == last
            and current_run.unfinished_plan(lake, "compact", plans.CompactPlan) == plan
        ):
            state_files: dict[str, dict[int, list[StateFile]]] = {table: {} for table in _TABLES}
            state_files |= {table: list_state_files(lake, table, version) for table, version in versions.items()}
            return positions, state_files, versions


def _read_tail(lake: Lake, log: LogAddress, ranges: Mapping[int, OffsetRange]) -> LogTail:
    commits = [table_schema("offset_commits").empty_table()]
    others: dict[str, list[dict[str, Any]]] = {table: [] for table in _TAIL[1:]}
    for reader in plan_readers(log, {LogPartition(OFFSETS_TOPIC, p): span for p, span in ranges.items()}):
        for piece, content in log.fetch(reader.slices):
            chunk = decode(piece, content)
            rows = pa.table(chunk.commits)
            needed = pc.or_(pc.invert(rows["superseded"]), pc.equal(rows["kind"], "tombstone"))
            commits.append(_in_history(rows.filter(needed)))
            rows_by_table = of_others(chunk.others, _NO_RUN)
            for table, table_rows in others.items():
                table_rows.extend(rows_by_table[table])
    tables = {table: pa.Table.from_pylist(table_rows, table_schema(table)) for table, table_rows in others.items()}
    return LogTail(lake, tables | {"offset_commits": pa.concat_tables(commits)})


def _in_history(commits: pa.Table) -> pa.Table:
    run = pa.repeat(pa.scalar(_NO_RUN, pa.int64()), commits.num_rows)
    schema = table_schema("offset_commits")
    steps = {name: pa.nulls(commits.num_rows, schema.field(name).type) for name in ("repeats", "routine")}
    for name, column in ({"ingest_run": run} | steps).items():
        commits = commits.append_column(name, column)
    return commits.select(schema.names).cast(schema)


def _small_tables(
    compaction: Compaction[LogTail], partitions: Sequence[int], new: ReducedHistory, decided: pa.Table | None
) -> dict[str, pa.Table]:
    """Compact the tables other than `offsets` in memory."""
    parts = {table: [_stored(compaction, table, -1)] for table in _TABLES if table != "offsets"}
    pending = still_pending(compaction, partitions, new)
    if pending is not None:
        parts["pending_offsets"].append(pending.select(table_schema("pending_offsets").names))
    for partition in partitions:
        replayed = replayed_groups(compaction, partition, new)
        changed = pa.table({"group_id": pa.array(replayed.group_ids, pa.string())})
        for table, rows in (("groups", replayed.groups), ("group_members", replayed.members)):
            current = pa.Table.from_pylist(rows, table_schema(table))
            parts[table].append(replaced_groups(current, _stored(compaction, table, partition), changed))
    if new.quarantined.stored or new.quarantined.new:
        parts["unresolved_records"].append(unresolved(compaction, partitions, new, decided, pending))
    return {
        table: pa.concat_tables([empty, *(part.cast(empty.schema) for part in others)])
        for table, (empty, *others) in parts.items()
    }


def _overtaken(compaction: Compaction[LogTail], pending: pa.Table, decided: pa.Table | None) -> pa.Array:
    """Return for each row of `pending_offsets` whether a record of its key that is after it in the log is effective."""
    groups: dict[int, set[str]] = {}
    for row in pending.select(["log_partition", "group_id"]).to_pylist():
        groups.setdefault(row["log_partition"], set()).add(row["group_id"])
    effective = [_positions(table_schema("offsets").empty_table())]
    for partition, names in groups.items():
        state_files = [
            state_file
            for files, _ in files_of_groups(compaction.state_files["offsets"].get(partition, []), names)
            for state_file in files
        ]
        rows = read_state_files(compaction.lake, "offsets", state_files, _POSITION_COLUMNS)
        effective.append(
            _positions(rows.filter(pc.is_in(rows["group_id"].cast(pa.string()), pa.array([*names], pa.string()))))
        )
    if decided is not None and groups:
        group_ids = pa.array([*set().union(*groups.values())], pa.string())
        effective.append(_positions(decided.filter(pc.is_in(decided["group_id"].cast(pa.string()), group_ids))))
    newest = latest(pa.concat_tables(effective))
    indices = rows_in(pending, newest, KEY)
    log_offsets = newest["log_offset"].take(np.maximum(indices, 0)).to_numpy() if newest.num_rows else indices
    return pa.array((indices >= 0) & (log_offsets > pending["log_offset"].to_numpy()))


def _in_doubt(compaction: Compaction[LogTail], rows: pa.Table, decided: pa.Table | None) -> pa.Table:
    """Return the keys of unknown offsets, with the scope of the record; `rows` are those of `unresolved_records`."""
    named = rows.filter(pc.equal(rows["scope"], "offset")).select([*KEY, "scope"])
    unresolved, found = Unresolved(rows), [named]
    for partition in unresolved.batches:
        offsets = _offsets(compaction, partition, decided, _POSITION_COLUMNS)
        keys = offsets.filter(pa.array(unresolved.offsets(offsets))).select(KEY)
        found.append(keys.append_column("scope", pa.repeat("log_partition", keys.num_rows)).cast(named.schema))
    return pa.concat_tables(found)


def _positions(rows: pa.Table) -> pa.Table:
    schema = table_schema("offsets")
    nullable = pa.schema([schema.field(name).with_nullable(nullable=True) for name in _POSITION_COLUMNS])
    return rows.select(_POSITION_COLUMNS).cast(nullable)


def _offsets(
    compaction: Compaction[LogTail], partition: int, decided: pa.Table | None, columns: Sequence[str] | None
) -> pa.Table:
    """Return columns of the offsets of a log partition, with the offsets that the tail decided merged into them."""
    newer = None if decided is None else decided.filter(pc.equal(decided["log_partition"], partition))
    if newer is None or not newer.num_rows:
        return _stored(compaction, "offsets", partition, columns)
    needed = None if columns is None else [*dict.fromkeys([*columns, *KEY, "log_partition", "log_offset"])]
    rows = merged(_stored(compaction, "offsets", partition, needed), newer)
    return rows if columns is None else rows.select(columns)


def _stored(
    compaction: Compaction[LogTail], table: str, partition: int, columns: Sequence[str] | None = None
) -> pa.Table:
    return read_state_files(compaction.lake, table, compaction.state_files[table].get(partition, []), columns)
