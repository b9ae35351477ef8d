"""The log partitions of groups: one each, unless partitions were added to the log topic."""

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import active_files
from offsetlake.lake.history_files import file_dataset
from offsetlake.lake.lake import Lake

_MAX_LAKES = 8
_MAX_APART = 3  # questions about some groups each, before those about all groups are answered at once


@dataclass(slots=True)
class _Places:
    """What is known about the groups in some files of history, which do not change."""

    answers: dict[frozenset[str], list[int]] = field(default_factory=dict)
    every: pa.Table | None = None


_KNOWN: dict[frozenset[str], _Places] = {}


def group_places(lake: Lake, groups: Collection[str], condition: str) -> list[int]:
    """Return the log partitions with commits of groups, which an SQL condition describes, too.

    Each answer reads a column of all commits. A process that has asked _MAX_APART times, or that keeps the tables open,
    reads the log partitions of all groups, and keeps them: about 30 bytes for each group. When history grows, only the
    new files are read.
    """
    names, files = frozenset(groups), frozenset(file["path"] for file in active_files(lake, "offset_commits"))
    if files not in _KNOWN and len(_KNOWN) >= _MAX_LAKES:
        _KNOWN.clear()
    places = _KNOWN.setdefault(files, _Places())
    if places.every is not None:
        return _partitions(places.every.filter(pc.is_in(places.every["group_id"], pa.array([*names], pa.string()))))
    if names not in places.answers:
        if len(places.answers) >= _MAX_APART or lake.kept:
            places.every = _every_place(lake, files)
            return group_places(lake, groups, condition)
        places.answers[names] = _partitions(_placed(lake, condition))
    return [*places.answers[names]]


def _placed(lake: Lake, condition: str) -> pa.Table:
    sql = f"SELECT DISTINCT group_id, log_partition FROM offset_commits WHERE {condition}"  # noqa: S608
    return lake.query(sql, "offset_commits")


def _every_place(lake: Lake, files: frozenset[str]) -> pa.Table:
    """Return group_id and log_partition of all groups with commits in some files."""
    known = [(read, places.every) for read, places in _KNOWN.items() if places.every is not None and read <= files]
    read, every = max(known, key=lambda each: len(each[0]), default=(frozenset[str](), None))
    parts = [] if every is None else [every]
    for path in sorted(files - read):
        dataset = file_dataset(lake, "offset_commits", [path], dictionaries=True)
        rows = dataset.to_table(["group_id", "log_partition"], use_threads=False)
        parts += [_distinct(batch) for batch in rows.to_batches()]
    empty = pa.table({"group_id": pa.array([], pa.string()), "log_partition": pa.array([], pa.int32())})
    return pa.concat_tables([empty, *parts]).group_by(["group_id", "log_partition"]).aggregate([])


def _distinct(batch: pa.RecordBatch) -> pa.Table:
    """Return the pairs of group_id, which is a dictionary, and log_partition that occur in a batch."""
    groups, partitions = batch["group_id"], batch["log_partition"].to_numpy()
    first = int(partitions.min())
    occurs = np.zeros((len(groups.dictionary), int(partitions.max()) - first + 1), np.bool_)
    occurs[groups.indices.to_numpy(), partitions - first] = True
    group, partition = np.nonzero(occurs)
    return pa.table(
        {"group_id": groups.dictionary.take(pa.array(group)), "log_partition": (partition + first).astype(np.int32)}
    )


def _partitions(placed: pa.Table) -> list[int]:
    partitions: list[int] = pc.unique(placed["log_partition"]).to_pylist()
    return sorted(partitions)
