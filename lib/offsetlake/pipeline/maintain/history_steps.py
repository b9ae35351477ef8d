"""Compares the commits that an older version of the program ingested: the columns `repeats` and `routine` of history.

They are null in such rows, and queries about changes then compare every commit with the one before it. A file is
written again with the rows that it has, in the order of the log. As `ingest` does, this compares the commits of a key
that one file has of one run, up to a commit of that run and log partition that another file has. Commits of different
runs are not compared, because `maintain` drops history by runs.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.kafka.batches.reader import Records
from offsetlake.kafka.commits.steps import UNKNOWN, find_steps
from offsetlake.lake.files import FileChanges, TableFile, active_files
from offsetlake.lake.history.history_cuts import replace_files
from offsetlake.lake.history.history_files import file_dataset
from offsetlake.lake.lake import Lake
from offsetlake.util.amounts import counted

_JOB = "steps"  # of the commits that replace files, because `maintain` also compacts the files of the table
_TABLE = "offset_commits"
_ROWS_AT_ONCE = 1 << 20
_BATCH_ROWS = 1 << 17
_RANGE = ["ingest_run", "log_partition"]
_KEY = np.dtype(
    [("unused", "u1", 2), ("segment", "i4"), ("group_id", "i4"), ("topic", "i4"), ("partition", "i4")]
)  # `find_steps` ignores the first two bytes of a key

_Ints = npt.NDArray[np.int64]
Borders = dict[int, _Ints]
"""Log offsets of a file by log partition; a commit at one is not compared with those before it."""


class Position(NamedTuple):
    """A position in the log; positions compare in the order of history."""

    log_partition: int
    log_offset: int


def commits_without_steps(lake: Lake) -> dict[str, int]:
    """Return the number of commits that were not compared, for each file of history that has some."""
    unknown = pc.field("routine").is_null()
    counts = {
        path: file_dataset(lake, _TABLE, [path]).count_rows(filter=unknown)
        for path in sorted(file["path"] for file in active_files(lake, _TABLE))
    }
    return {path: count for path, count in counts.items() if count}


def compute_steps(lake: Lake, run_id: int, say: Callable[[str], None]) -> int:
    """Compare the commits that were not compared, and replace their files in one commit; return their number.

    Columns that are known do not change. Memory is bounded by a million commits, and by the largest number of commits
    that one file has of one run and one log partition, with 16 bytes each.

    Raises LakeBusy if another program has rearranged the files.
    """
    counts, changes = commits_without_steps(lake), FileChanges()
    if counts:
        compared = f"comparing {counted(sum(counts.values()), 'commit')} that an older version ingested"
        say(compared)
        ranges = {file["path"]: _ranges(lake, file["path"]) for file in active_files(lake, _TABLE)}
        borders = _borders(lake, ranges)
        for number, path in enumerate(counts, 1):
            say(f"{compared}: file {number} of {len(counts)}")
            changes.added += _compared_file(lake, path, ranges[path], borders[path]).added
            changes.removed.append(path)
    replace_files(lake, _TABLE, changes, _JOB, run_id)
    return sum(counts.values())


def _ranges(lake: Lake, path: str) -> pa.Table:
    """Return the `first` and `last` log offset of each `ingest_run` and `log_partition` in a file, and its `rows`."""
    parts = []
    for batch in _scan(lake, path, [*_RANGE, "log_offset"]):
        spans = pa.Table.from_batches([batch]).group_by(_RANGE)
        parts.append(spans.aggregate([("log_offset", name) for name in ("min", "max", "count")]))
    names = [*_RANGE, "first", "last", "rows"]
    spans = pa.concat_tables(parts).rename_columns(names).group_by(_RANGE)
    return spans.aggregate([("first", "min"), ("last", "max"), ("rows", "sum")]).rename_columns(names)


def _borders(lake: Lake, ranges: dict[str, pa.Table]) -> dict[str, Borders]:
    """Return for each file the log offsets before which another file has a commit of the same run and log partition.

    Those are omitted of which all commits before are in other files: nothing is compared across them.
    """
    borders: dict[str, Borders] = {path: {} for path in ranges}
    for run, partition in _interleaved(ranges.values()):
        of_range = (pc.field("ingest_run") == run) & (pc.field("log_partition") == partition)
        found = [_log_offsets(lake, path, of_range) for path in ranges]
        file = np.repeat(np.arange(len(found)), [len(log_offsets) for log_offsets in found])
        log_offsets = np.concatenate(found)
        order = np.argsort(log_offsets)
        log_offsets, file = log_offsets[order], file[order]
        begins = np.flatnonzero(file[1:] != file[:-1]) + 1
        for number, path in enumerate(ranges):
            of_file = log_offsets[begins[file[begins] == number]]
            borders[path][partition] = np.concatenate([borders[path].get(partition, of_file[:0]), of_file])
    return borders


def _interleaved(ranges: Iterable[pa.Table]) -> list[tuple[int, int]]:
    """Return the run and the log partition of the ranges of a file that can have rows of another file in between."""
    ordered = pa.concat_tables(ranges).sort_by([(name, "ascending") for name in (*_RANGE, "first")])
    run, partition, first, last = (_numpy(ordered[name]) for name in (*_RANGE, "first", "last"))
    overlaps = (run[1:] == run[:-1]) & (partition[1:] == partition[:-1]) & (first[1:] <= last[:-1])
    return sorted({*zip(run[1:][overlaps].tolist(), partition[1:][overlaps].tolist(), strict=True)})


def _log_offsets(lake: Lake, path: str, where: pc.Expression) -> _Ints:
    found = [batch["log_offset"].to_numpy() for batch in _scan(lake, path, ["log_offset"], where)]
    return np.concatenate([np.zeros(0, np.int64), *found])


def _compared_file(lake: Lake, path: str, ranges: pa.Table, borders: Borders) -> FileChanges:
    """Write the rows of a file with their steps to a new file, and return it."""
    file = TableFile(lake, _TABLE)
    conditions = [_from(start) for start in _starts(lake, path, ranges)]
    for where, later in pairwise([*conditions, pc.scalar(value=False)]):
        file.write(_compared(_in_log_order(lake, path, where & ~later), borders))
    return FileChanges(file.close())


def _in_log_order(lake: Lake, path: str, where: pc.Expression) -> pa.Table:
    rows = pa.Table.from_batches(_scan(lake, path, None, where)).unify_dictionaries().combine_chunks()
    return rows.take(np.lexsort([_numpy(rows[name]) for name in ("log_offset", "log_partition")]))


def _starts(lake: Lake, path: str, ranges: pa.Table) -> Iterator[Position]:
    """Yield positions that divide a file into portions of at most _ROWS_AT_ONCE rows, if possible between ranges."""
    ordered = ranges.sort_by([("log_partition", "ascending"), ("first", "ascending")])
    filled = _ROWS_AT_ONCE
    for run, partition, first, rows in zip(*(ordered[n].to_pylist() for n in (*_RANGE, "first", "rows")), strict=True):
        if filled + rows > _ROWS_AT_ONCE:
            yield Position(partition, first)
            filled = 0
        filled += rows
        if rows > _ROWS_AT_ONCE:
            of_range = (pc.field("ingest_run") == run) & (pc.field("log_partition") == partition)
            for log_offset in np.sort(_log_offsets(lake, path, of_range))[_ROWS_AT_ONCE::_ROWS_AT_ONCE].tolist():
                yield Position(partition, log_offset)
                filled = rows % _ROWS_AT_ONCE


def _from(start: Position) -> pc.Expression:
    """Return the condition of rows at or after a position."""
    partition = pc.field("log_partition")
    at_or_after = pc.field("log_offset") >= start.log_offset
    return (partition > start.log_partition) | ((partition == start.log_partition) & at_or_after)


def _scan(
    lake: Lake, path: str, columns: list[str] | None, where: pc.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    dataset = file_dataset(lake, _TABLE, [path], dictionaries=True)
    scanner = dataset.scanner(columns=columns, filter=where, batch_size=_BATCH_ROWS, batch_readahead=2)
    return iter(scanner.to_batches())


def _compared(rows: pa.Table, borders: Borders) -> pa.Table:
    """Return rows in log order with `repeats` and `routine` where they were not known."""
    final = pc.and_(
        pc.or_(pc.is_null(rows["producer_id"]), pc.equal(rows["kind"], "tombstone")), pc.is_null(rows["commit_id"])
    )
    offsets = pc.fill_null(rows["committed_offset"], 0)
    steps = find_steps(_records(rows, borders), _numpy(final), _numpy(offsets))
    unknown = pc.is_null(rows["routine"])
    for name, computed in (
        ("repeats", pa.array(steps.repeats, mask=steps.repeats == UNKNOWN)),
        ("routine", pa.array(steps.routine)),
    ):
        rows = rows.set_column(rows.column_names.index(name), name, pc.if_else(unknown, computed, rows[name]))
    return rows


def _records(rows: pa.Table, borders: Borders) -> Records:
    """Return rows as records whose keys are equal if they may be compared; their values have no content."""
    count = rows.num_rows
    keys = np.zeros(count, _KEY)
    keys["segment"] = _segments(rows, borders)
    keys["partition"] = rows["partition"]
    for name in ("group_id", "topic"):
        keys[name] = rows[name].combine_chunks().indices
    buffer = np.frombuffer(keys.tobytes(), np.uint8)
    none, empty = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    return Records(
        buffer=buffer,
        spans=np.zeros((2, 0), np.int64),
        log_offset=_numpy(rows["log_offset"]),
        log_timestamp=_numpy(pc.fill_null(rows["log_timestamp"], -1)),
        producer_id=none,
        producer_epoch=none,
        control=np.zeros(count, np.bool_),
        key_at=np.arange(count) * _KEY.itemsize,
        key_length=np.full(count, _KEY.itemsize),
        value_at=empty,
        value_length=np.where(_numpy(pc.equal(rows["kind"], "commit")), empty, none),
        headers_at=none,
    )


def _segments(rows: pa.Table, borders: Borders) -> _Ints:
    """Return the number of the segment of each row: successive rows of a run and a log partition without a border."""
    run, partition, log_offset = (_numpy(rows[name]) for name in (*_RANGE, "log_offset"))
    begins = np.ones(rows.num_rows, np.bool_)
    begins[1:] = (run[1:] != run[:-1]) | (partition[1:] != partition[:-1])
    for number, log_offsets in borders.items():
        begins |= (partition == number) & np.isin(log_offset, log_offsets)
    return np.cumsum(begins)


def _numpy(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = column.to_numpy()
    return values
