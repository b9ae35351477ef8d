"""The log partitions of groups: one each, unless partitions were added to the log topic."""

from collections.abc import Collection
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import active_files
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

    Each answer reads a column of all commits. A process that has asked _MAX_APART times reads the log partitions of all
    groups, and keeps them until history changes: about 30 bytes for each group.
    """
    names, files = frozenset(groups), frozenset(file["path"] for file in active_files(lake, "offset_commits"))
    if files not in _KNOWN and len(_KNOWN) >= _MAX_LAKES:
        _KNOWN.clear()
    places = _KNOWN.setdefault(files, _Places())
    if places.every is not None:
        return _partitions(places.every.filter(pc.is_in(places.every["group_id"], pa.array([*names], pa.string()))))
    if names not in places.answers:
        if len(places.answers) >= _MAX_APART:
            places.every = _placed(lake, "true")
            return group_places(lake, groups, condition)
        places.answers[names] = _partitions(_placed(lake, condition))
    return [*places.answers[names]]


def _placed(lake: Lake, condition: str) -> pa.Table:
    sql = f"SELECT DISTINCT group_id, log_partition FROM offset_commits WHERE {condition}"  # noqa: S608
    return lake.query(sql, "offset_commits")


def _partitions(placed: pa.Table) -> list[int]:
    partitions: list[int] = pc.unique(placed["log_partition"]).to_pylist()
    return sorted(partitions)
