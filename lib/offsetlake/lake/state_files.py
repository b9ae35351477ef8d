"""The tables of latest state, kept as sorted leaves: each file holds a range of the groups of one log partition.

A compaction reads and rewrites only the leaves its groups fall into, several log partitions side by side. Another
program may rearrange the files; `offsetlake.lake.foreign.layout` brings them back into this form.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from offsetlake.errors import LakeUnusable
from offsetlake.lake.files import FileChanges, TableFile, active_files, repeating_as_dictionaries
from offsetlake.lake.lake import Lake
from offsetlake.util.row_codes import order_codes

LEAF_ROWS = 100_000

_ORDER = ("group_id", "topic", "partition", "member_id")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One file of a state table: the groups from `first_group` up to the next leaf's, of one log partition."""

    path: str
    log_partition: int
    first_group: str


def leaves(lake: Lake, table: str, version: int) -> dict[int, list[Leaf]]:
    """List the leaves of a state table at a Delta version: by log partition, in the order of their groups."""
    files = active_files(lake, table, version)
    if out_of_layout(files):
        raise LakeUnusable(
            f"the files of table {table} of the lake {lake.path} were rearranged by another program: "
            "`offsetlake compact` arranges them again"
        )
    found: dict[int, list[Leaf]] = {}
    for row in files:
        leaf = Leaf(row["path"], row["min.log_partition"], row["min.group_id"])
        found.setdefault(leaf.log_partition, []).append(leaf)
    return {partition: sorted(of, key=lambda leaf: leaf.first_group) for partition, of in found.items()}


def out_of_layout(files: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the files, as `active_files` lists them, that are no leaves: others have rows of the same range.

    A file without statistics, or with rows of several log partitions, is none, nor is a file that overlaps it.
    """
    bounds = ("min.log_partition", "max.log_partition", "min.group_id", "max.group_id")
    if any(file.get(name) is None for file in files for name in bounds):
        return [*files]
    wrong = {file["path"]: file for file in files if file["min.log_partition"] < file["max.log_partition"]}
    by_partition: dict[int, list[dict[str, Any]]] = {}
    for file in files:
        for partition in range(file["min.log_partition"], file["max.log_partition"] + 1):
            by_partition.setdefault(partition, []).append(file)
    for of_one in by_partition.values():
        of_one.sort(key=lambda file: str(file["min.group_id"]))
        reaching = of_one[0]
        for file in of_one[1:]:
            if file["min.group_id"] <= reaching["max.group_id"]:
                wrong |= {reaching["path"]: reaching, file["path"]: file}
            reaching = max(reaching, file, key=lambda one: str(one["max.group_id"]))
    return [*wrong.values()]


def read_leaves(lake: Lake, table: str, of: Iterable[Leaf], columns: Sequence[str] | None = None) -> pa.Table:
    """Read whole leaves, all columns if none are named; columns that repeat come as dictionaries."""
    schema = repeating_as_dictionaries(table)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    repeating = [column.name for column in schema if pa.types.is_dictionary(column.type)]
    parts = [schema.empty_table()]
    for leaf in of:
        path = lake.table_path(table) / leaf.path
        try:
            parts.append(pq.read_table(path, schema=schema, read_dictionary=repeating or None, use_threads=False))
        except FileNotFoundError as error:
            raise LakeUnusable(
                f"{path}, a file of table {table}, is gone: where another program rearranged and vacuumed the table, "
                "`offsetlake compact` adapts to that"
            ) from error
    return pa.concat_tables(parts)


def touched(of: Sequence[Leaf], groups: Iterable[str]) -> list[tuple[list[Leaf], list[str]]]:
    """Sort groups by the leaf of one log partition their rows are or belong in: none where it has no leaf yet."""
    firsts = [leaf.first_group for leaf in of]
    found: dict[int, list[str]] = {}
    for group in groups:
        found.setdefault(max(bisect_right(firsts, group) - 1, 0), []).append(group)
    return [([*of[at : at + 1]], names) for at, names in found.items()]


def rewrite(
    lake: Lake, table: str, of: Sequence[Leaf], changed: pa.Table, combine: Callable[[pa.Table, pa.Table], pa.Table]
) -> FileChanges:
    """Rewrite the leaves of one log partition that changes fall into.

    `changed` has a column group_id; `combine` makes of the rows of a leaf and the changes to its groups the rows to be.
    """
    exchange = FileChanges()
    for old, groups in touched(of, pc.unique(changed["group_id"]).to_pylist()):
        here = changed if len(of) < 2 else changed.filter(pc.is_in(changed["group_id"], pa.array(groups, pa.string())))
        for rows in parted(combine(read_leaves(lake, table, old), here)):
            file = TableFile(lake, table)
            file.write(rows)
            exchange.added += file.close()
        exchange.removed += [leaf.path for leaf in old]
    return exchange


def parted(rows: pa.Table) -> Iterator[pa.Table]:
    """Cut rows, sorted, into leaves of about LEAF_ROWS, never parting a group."""
    order = [name for name in _ORDER if name in rows.column_names]
    ordered = rows.take(np.argsort(order_codes(rows, order), kind="stable"))
    groups = order_codes(ordered, order[:1])
    start = 0
    while start < len(groups):
        end = min(start + LEAF_ROWS, len(groups))
        end = int(np.searchsorted(groups, groups[end - 1], side="right"))
        yield ordered.slice(start, end - start)
        start = end
