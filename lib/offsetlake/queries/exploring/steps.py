"""The steps of the offsets of a group as arrays, by the rules of the view `commit_steps`, in little memory."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.history.history_files import History, deciding_rows
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.history.reduction import COMMIT_TABLES
from offsetlake.queries.selection import log_partitions_of
from offsetlake.rules.reduction import COMMITTED, PART, completions, next_markers, positions
from offsetlake.util.row_codes import Ints

NONE = -(2**63)
"""The value of a deleted or unknown offset, and of an unknown time."""

_COLUMNS = ["log_partition", "log_offset", "log_timestamp", "kind", "committed_offset", "producer_id", *PART[2:]]
_MIN_AHEAD = 3
_BATCH_ROWS = 1 << 16
_PARTITION_BITS = 32

Flags = npt.NDArray[np.bool_]


class IntegerColumn(Protocol):
    """Integers, of which some are read at a time: an array, or `packed.PackedInts`."""

    def __len__(self) -> int:
        """Return the number of integers."""

    def __getitem__(self, rows: slice | Ints, /) -> Ints:
        """Return the integers of a slice, or those at some indexes."""


Column_co = TypeVar("Column_co", bound=IntegerColumn, covariant=True)


@dataclass(frozen=True, slots=True)
class OffsetSteps(Generic[Column_co]):
    """The steps of some offsets of a group in the order of the log; NONE stands for null. They take 58 bytes each.

    | Field           | Description |
    |-----------------|-------------|
    | offsets         | topic and partition of each offset |
    | number          | the number of the offset in `offsets` |
    | log_partition, log_offset | where the record is |
    | time            | effective_timestamp, in ms since the epoch |
    | new, old        | the offset in force afterwards and before |
    | old_log_offset  | log offset of the preceding step |
    | is_transactional | whether it is a commit of a transaction |
    | skips_ahead     | whether the increase is larger than all others of the offset together, at least two |
    """

    offsets: Sequence[tuple[str, int]]
    number: Column_co
    log_partition: Column_co
    log_offset: Column_co
    time: Column_co
    new: Column_co
    old: Column_co
    old_log_offset: Column_co
    is_transactional: Flags
    skips_ahead: Flags

    def index(self, log_partition: int, log_offset: int) -> int | None:
        """Return the index of the step of a record; None if the record never took effect."""

        def place(index: int) -> tuple[int, int]:
            row = slice(index, index + 1)
            return int(self.log_partition[row][0]), int(self.log_offset[row][0])

        wanted = (log_partition, log_offset)
        found = bisect_left(range(len(self.log_offset)), wanted, key=place)
        return found if found < len(self.log_offset) and place(found) == wanted else None

    def at(self, chosen: Ints) -> "OffsetSteps[Ints]":
        """Return some of the steps, by their indexes."""
        columns: Iterator[Any] = (getattr(self, field.name)[chosen] for field in fields(self)[1:])
        return OffsetSteps(self.offsets, *columns)

    def of(self, topic: str, partition: int) -> Ints:
        """Return the indexes of the steps of an offset."""
        numbers = [number for number, offset in enumerate(self.offsets) if offset == (topic, partition)]
        return np.flatnonzero(np.isin(self.number[:], numbers))

    def rows(self) -> pa.Table:
        """Return the columns effective_timestamp, old_offset, new_offset, log_partition, log_offset."""
        columns = {"effective_timestamp": self.time[:], "old_offset": self.old[:], "new_offset": self.new[:]}
        places = {"log_partition": self.log_partition[:], "log_offset": self.log_offset[:]}
        return pa.table({name: pa.array(values, mask=values == NONE) for name, values in columns.items()} | places)


def key_steps(lake: Lake, key: Key) -> OffsetSteps[Ints]:
    """Return the steps of an offset, or of all offsets of a group."""
    return _in_order(key, _read(lake, key, "true"))


def steps_of_few(lake: Lake, key: Key, max_records: int) -> OffsetSteps[Ints] | None:
    """Return the steps of the offsets of a group; None if more than `max_records` records of it took effect."""
    parts, count = [], 0
    for part in _read(lake, key, "true"):
        parts.append(part)
        count += len(part["log_offset"])
        if count > max_records:
            return None
    return _in_order(key, parts)


def steps_in_portions(lake: Lake, key: Key, max_records: int) -> Iterator[OffsetSteps[Ints]]:
    """Yield the steps of all offsets of a group: those of some offsets at a time, which have `max_records` records.

    An offset that has more is yielded alone. Memory is about 150 bytes for each record of a portion.
    """
    where = f"{key.placed(lake)} AND {key.condition}"
    sql = f"SELECT topic, partition, count(*) AS records FROM offset_commits WHERE {where}"  # noqa: S608
    rows = lake.query(f"{sql} GROUP BY topic, partition ORDER BY topic, partition", "offset_commits")
    portion, total = list[str](), 0
    for row in rows.to_pylist():
        if portion and total + row["records"] > max_records:
            yield _in_order(key, _read(lake, key, " OR ".join(portion)))
            portion, total = [], 0
        portion.append(f"(topic = {quoted(row['topic'])} AND partition = {row['partition']})")
        total += row["records"]
    if portion:
        yield _in_order(key, _read(lake, key, " OR ".join(portion)))


def _read(lake: Lake, key: Key, condition: str) -> Iterator[dict[str, Any]]:
    """Yield arrays of the records of a key that satisfy an SQL condition and took effect, and when, batch by batch."""
    # The engine needs a tenth of the memory of a dataset of Arrow, and a third of the time, to filter by key.
    columns = ", ".join(_COLUMNS if key.topic is not None else ["topic", "partition", *_COLUMNS])
    sql = f"SELECT {columns} FROM offset_commits WHERE {key.placed(lake)} AND {key.condition} AND ({condition})"  # noqa: S608
    return _placed(lake, key, lake.engine(["offset_commits"], {}).stream(sql))


def _in_order(key: Key, placed: Iterable[dict[str, Any]]) -> OffsetSteps[Ints]:
    """Return the steps of records that took effect."""
    parts = [*placed]
    offsets, number = _numbered(key, parts)
    names = ("log_partition", "log_offset", "effective", "time", "value", "is_transactional")
    partition, offset, effective, time, new, is_transactional = (
        np.concatenate([np.empty(0, np.int64), *(part.pop(name) for part in parts)]) for name in names
    )
    keys = _keys(number, partition)
    order = np.lexsort((-offset, effective, keys))
    if np.any(effective != offset):  # a transaction or a commit in parts can be decided when a newer commit is in force
        newest = keys[order] * len(order) + np.unique(offset, return_inverse=True)[1][order]
        order = order[np.maximum.accumulate(newest) == newest]
    number, keys, partition, offset, time, new = (
        column[order] for column in (number, keys, partition, offset, time, new)
    )
    is_first = np.diff(keys, prepend=-1) != 0
    old, old_offset = (np.where(is_first, NONE, np.roll(column, 1)) for column in (new, offset))
    skips = _skips_ahead(keys, old, new)
    steps = (number, partition, offset, time, new, old, old_offset, is_transactional[order].astype(bool), skips)
    if len(offsets) == 1 and not np.any(np.diff(partition)):
        return OffsetSteps(offsets, *steps)
    return OffsetSteps(offsets, *steps).at(np.lexsort((offset, partition)))


def _numbered(key: Key, parts: Sequence[dict[str, Any]]) -> tuple[list[tuple[str, int]], Ints]:
    """Return the offsets of some records, and the number of that of each record."""
    if key.topic is not None and key.partition is not None:
        return [(key.topic, key.partition)], np.zeros(sum(len(part["log_offset"]) for part in parts), np.int64)
    if not parts:
        return [], np.empty(0, np.int64)
    topics = pa.chunked_array([part.pop("topic") for part in parts]).unify_dictionaries().combine_chunks()
    partitions = np.concatenate([part.pop("partition") for part in parts])
    codes = topics.indices.to_numpy().astype(np.int64) << _PARTITION_BITS | partitions
    found, number = np.unique(codes, return_inverse=True)
    names = topics.dictionary.to_pylist()
    mask = (1 << _PARTITION_BITS) - 1
    return [(names[code >> _PARTITION_BITS], code & mask) for code in found.tolist()], number


def _keys(number: Ints, partition: Ints) -> Ints:
    """Return a number for each offset in each log partition, whose coordinators do not know the records of others."""
    if not np.any(np.diff(partition)):
        return number
    keys: Ints = np.unique(number << _PARTITION_BITS | partition, return_inverse=True)[1]
    return keys


def _skips_ahead(keys: Ints, old: Ints, new: Ints) -> Flags:
    is_ahead = (new > old) & (old != NONE)
    ahead = np.where(is_ahead, new.astype(float) - old.astype(float), 0.0)
    every, count = np.bincount(keys, ahead), np.bincount(keys, is_ahead)
    flags: Flags = is_ahead & (ahead > every[keys] - ahead) & (count[keys] >= _MIN_AHEAD)
    return flags


def _placed(lake: Lake, key: Key, records: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yield the records that took effect, batch by batch, and when."""
    markers, parts = None, None
    for batch in _joined(records):
        columns = {
            "log_partition": batch["log_partition"].to_numpy().astype(np.int64),
            "log_offset": batch["log_offset"].to_numpy(),
            "time": _filled(batch["log_timestamp"]),
            "value": _filled(batch["committed_offset"]),
        }
        effective = columns["log_offset"].copy()
        is_commit = pc.equal(batch["kind"], "commit").to_numpy()
        is_transactional = batch["producer_id"].is_valid().to_numpy() & is_commit
        is_part = batch["commit_id"].is_valid().to_numpy() & ~batch["producer_id"].is_valid().to_numpy()
        if markers is None and (is_transactional.any() or is_part.any()):
            history, partitions = History.open(lake, COMMIT_TABLES), log_partitions_of(lake, [key.group_id])
            markers, parts = deciding_rows(history, partitions, [*PART, "log_timestamp"])
        if is_transactional.any():
            at, time = _markers(batch.filter(pa.array(is_transactional)), markers)
            effective[is_transactional] = at
            columns["time"][is_transactional] = np.maximum(columns["time"][is_transactional], time)
        if is_part.any():
            effective[is_part], columns["time"][is_part] = _completions(batch.filter(pa.array(is_part)), parts)
        decided = effective != NONE
        columns |= {"effective": effective, "is_transactional": is_transactional.astype(np.int64)}
        placed = {name: column[decided] for name, column in columns.items()}
        if key.topic is None:
            placed["topic"] = batch["topic"].combine_chunks().dictionary_encode().filter(pa.array(decided))
            placed["partition"] = batch["partition"].to_numpy()[decided].astype(np.int64)
        yield placed


def _joined(records: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield records in few batches: the engine returns many small ones."""
    waiting, rows = list[pa.RecordBatch](), 0
    for batch in records:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _BATCH_ROWS:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _markers(commits: pa.Table, markers: pa.Table) -> tuple[Ints, Ints]:
    """Return log offset and time of the marker that committed each commit; the log offset is NONE without one."""
    rows = next_markers(commits, markers)
    is_committed = pc.equal(markers["marker"], COMMITTED).to_numpy()
    ended = (rows >= 0) & np.append(is_committed, [False])[rows]
    offset, time = (np.append(_filled(markers[name]), [NONE])[rows] for name in ("log_offset", "log_timestamp"))
    return np.where(ended, offset, NONE), time


def _completions(records: pa.Table, parts: pa.Table) -> tuple[Ints, Ints]:
    """Return log offset and time at which the commits in parts of some records were complete; NONE if they are not."""
    position, last = completions(parts)
    time = _filled(parts["log_timestamp"])[np.argsort(positions(parts).to_numpy(), kind="stable")]
    begins = np.flatnonzero(np.diff(last, prepend=last[0] - 1))  # the parts of a commit have the same last one
    latest = np.repeat(np.maximum.reduceat(time, begins), np.diff(np.append(begins, len(last))))
    rows = np.searchsorted(position, positions(records).to_numpy())
    complete_at = records["log_offset"].to_numpy() + last[rows] - position[rows]
    return np.where(last[rows] < 0, NONE, complete_at), latest[rows]


def _filled(column: pa.ChunkedArray) -> Ints:
    return column.cast(pa.int64()).fill_null(NONE).to_numpy().copy()  # type: ignore[no-any-return]
