"""The log partitions of groups: one each, unless partitions were added to the log topic."""

import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import is_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import active_files
from offsetlake.lake.history.history_files import file_batches
from offsetlake.lake.lake import Lake

_TABLES = ("offset_commits", "group_records")
_COLUMNS = ["group_id", "log_partition"]
_MAX_LAKES = 8
_MIN_MERGED = 1 << 17  # pairs that occur in several batches are merged when there are so many, or twice those known
_MAX_APART = 3  # questions about some groups each, before those about all groups are answered at once

_Files = frozenset[tuple[str, str]]


@dataclass(slots=True)
class _Places:
    """What is known about the groups in some files of history, which do not change."""

    answers: dict[frozenset[str], list[int]] = field(default_factory=dict)
    every: pa.Table | None = None


_KNOWN: dict[_Files, _Places] = {}
_LISTED: dict[str, tuple[Sequence[object], _Files]] = {}
"""By the place of a lake whose tables stay open: the tables of history at their last version, and their files."""
_READING = threading.Lock()


def group_places(lake: Lake, groups: Collection[str], condition: str) -> list[int]:
    """Return the log partitions with records of groups, which an SQL condition describes, too.

    Each answer reads a column of all of history. A process that has asked _MAX_APART times, or that keeps the tables
    open, reads the log partitions of all groups, and keeps them: about 30 bytes for each group. When history grows,
    only the new files are read.
    """
    names, files = frozenset(groups), _files(lake)
    places = _places_in(files)
    if places.every is None and names not in places.answers:
        if len(places.answers) >= _MAX_APART or lake.pinned:
            _complete(places, lake, files)
        else:
            places.answers[names] = _partitions(_placed(lake, condition))
    return [*places.answers[names]] if places.every is None else _of_groups(places.every, names)


def every_group(lake: Lake) -> pa.Array:
    """Return the groups with records in history, in any order; reads and keeps what `group_places` keeps."""
    files = _files(lake)
    return pc.unique(_complete(_places_in(files), lake, files)["group_id"])


def every_place(lake: Lake) -> pa.Table:
    """Return group_id and log_partition of all records in history, each pair once; reads and keeps them as above."""
    files = _files(lake)
    return _complete(_places_in(files), lake, files)


def condition_if_known(lake: Lake, group_id: str) -> str:
    """Return an SQL condition on log_partition for the rows of a group, if this process has read where all groups are.

    State tables have files for each log partition: with the condition, a query reads one instead of all of them.
    """
    places = _KNOWN.get(_files(lake))
    partitions = [] if places is None or places.every is None else _of_groups(places.every, {group_id})
    return in_log_partitions(partitions) if partitions else "true"


def in_log_partitions(partitions: Iterable[int]) -> str:
    """Return the SQL condition for the rows of some log partitions."""
    return f"log_partition IN ({', '.join(map(str, partitions)) or 'NULL'})"


def _files(lake: Lake) -> _Files:
    """Return the files of history, which are listed once of tables that stay open."""
    place, tables = str(lake.location), [lake.without_rows(name) for name in _TABLES]
    listed = _LISTED.get(place) if lake.pinned else None
    if listed is not None and all(map(is_, listed[0], tables)):
        return listed[1]
    opened = zip(_TABLES, tables, strict=True)
    files = frozenset((name, file["path"]) for name, table in opened for file in active_files(lake, name, table))
    if lake.pinned:
        _LISTED[place] = tables, files
    return files


def _places_in(files: _Files) -> _Places:
    if files not in _KNOWN and len(_KNOWN) >= _MAX_LAKES:
        _KNOWN.clear()
    return _KNOWN.setdefault(files, _Places())


def _complete(places: _Places, lake: Lake, files: _Files) -> pa.Table:
    """Return the log partitions of all groups; read them if that was not done."""
    with _READING:  # other threads wait for the answer instead of reading the same
        if places.every is None:
            places.every = _every_place(lake, files)
        return places.every


def _placed(lake: Lake, condition: str) -> pa.Table:
    every = " UNION ALL ".join(f"SELECT group_id, log_partition FROM {table} WHERE {condition}" for table in _TABLES)  # noqa: S608
    return lake.query(f"SELECT DISTINCT group_id, log_partition FROM ({every})", *_TABLES)  # noqa: S608


def _every_place(lake: Lake, files: _Files) -> pa.Table:
    """Return group_id and log_partition of all groups with records in some files."""
    known = [(read, places.every) for read, places in _KNOWN.items() if places.every is not None and read <= files]
    read, every = max(known, key=lambda each: len(each[0]), default=(_Files(), None))
    empty = pa.table({"group_id": pa.array([], pa.string()), "log_partition": pa.array([], pa.int32())})
    found, parts, waiting = empty if every is None else every, list[pa.Table](), 0
    for table, path in sorted(files - read):
        for batch in file_batches(lake, table, path, _COLUMNS):
            if batch.num_rows:
                parts.append(_distinct(batch))
                waiting += parts[-1].num_rows
            if waiting > max(found.num_rows, _MIN_MERGED):
                found, parts, waiting = _merged(found, parts), [], 0
    return _merged(found, parts)


def _merged(found: pa.Table, parts: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables([found, *parts]).group_by(_COLUMNS, use_threads=False).aggregate([])


def _distinct(batch: pa.RecordBatch) -> pa.Table:
    """Return the pairs of group_id and log_partition that occur in a batch."""
    groups, partitions = batch["group_id"], batch["log_partition"].to_numpy()
    if not pa.types.is_dictionary(groups.type):
        groups = groups.dictionary_encode()
    first = int(partitions.min())
    occurs = np.zeros((len(groups.dictionary), int(partitions.max()) - first + 1), np.bool_)
    occurs[groups.indices.to_numpy(), partitions - first] = True
    group, partition = np.nonzero(occurs)
    return pa.table(
        {"group_id": groups.dictionary.take(pa.array(group)), "log_partition": (partition + first).astype(np.int32)}
    )


def _of_groups(every: pa.Table, names: Collection[str]) -> list[int]:
    if len(names) == 1:  # a comparison takes a fifth of the time of a search in a set
        (name,) = names
        return _partitions(every.filter(pc.equal(every["group_id"], name)))
    return _partitions(every.filter(pc.is_in(every["group_id"], pa.array([*names], pa.string()))))


def _partitions(placed: pa.Table) -> list[int]:
    partitions: list[int] = pc.unique(placed["log_partition"]).to_pylist()
    return sorted(partitions)
