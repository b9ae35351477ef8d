"""The tables of latest state, kept as sorted leaves: each file holds a range of the groups of one log partition.

A compaction reads and rewrites only the leaves its groups fall into, several log partitions side by side.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from offsetlake.lake.files import Exchange, TableFile, repeating_as_dictionaries
from offsetlake.lake.lake import Lake
from offsetlake.ordering import order_codes

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
    files = pa.table(lake.delta_table(table, version).get_add_actions(flatten=True))
    found: dict[int, list[Leaf]] = {}
    for row in files.to_pylist():
        leaf = Leaf(row["path"], row["min.log_partition"], row["min.group_id"])
        found.setdefault(leaf.log_partition, []).append(leaf)
    return {partition: sorted(of, key=lambda leaf: leaf.first_group) for partition, of in found.items()}


def read_leaves(lake: Lake, table: str, of: Iterable[Leaf], columns: Sequence[str] | None = None) -> pa.Table:
    """Read whole leaves, all columns if none are named; columns that repeat come as dictionaries."""
    schema = repeating_as_dictionaries(table)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    repeating = [column.name for column in schema if pa.types.is_dictionary(column.type)]
    parts = (
        pq.read_table(
            lake.table_path(table) / leaf.path,
            schema=schema,
            read_dictionary=repeating or None,
            use_threads=False,
        )
        for leaf in of
    )
    return pa.concat_tables([schema.empty_table(), *parts])


def touched(of: Sequence[Leaf], groups: Iterable[str]) -> list[tuple[list[Leaf], list[str]]]:
    """Sort groups by the leaf of one log partition their rows are or belong in: none where it has no leaf yet."""
    firsts = [leaf.first_group for leaf in of]
    found: dict[int, list[str]] = {}
    for group in groups:
        found.setdefault(max(bisect_right(firsts, group) - 1, 0), []).append(group)
    return [([*of[at : at + 1]], names) for at, names in found.items()]


def rewrite(
    lake: Lake, table: str, of: Sequence[Leaf], changed: pa.Table, combine: Callable[[pa.Table, pa.Table], pa.Table]
) -> Exchange:
    """Rewrite the leaves of one log partition that changes fall into.

    `changed` has a column group_id; `combine` makes of the rows of a leaf and the changes to its groups the rows to be.
    """
    exchange = Exchange()
    for old, groups in touched(of, pc.unique(changed["group_id"]).to_pylist()):
        here = changed if len(of) < 2 else changed.filter(pc.is_in(changed["group_id"], pa.array(groups, pa.string())))
        for rows in _parted(combine(read_leaves(lake, table, old), here)):
            file = TableFile(lake, table)
            file.write(rows)
            exchange.added += file.close()
        exchange.removed += [leaf.path for leaf in old]
    return exchange


def _parted(rows: pa.Table) -> Iterator[pa.Table]:
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
