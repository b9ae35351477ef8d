"""Divides log partitions into portions whose rows fit into memory; all records of a group are in one portion."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

ROWS_AT_ONCE = 1 << 18
"""Approximate number of rows of a portion; a portion never divides a log partition."""


@dataclass(frozen=True, slots=True)
class Portion:
    """A range of log partitions with its approximate number of rows. None means that this side is unbounded."""

    first: int | None
    last: int | None
    rows: int

    def has(self, partition: int) -> bool:
        """Check whether the portion contains a log partition."""
        return (self.first is None or partition >= self.first) and (self.last is None or partition <= self.last)

    @property
    def condition(self) -> str:
        """The SQL condition that its rows satisfy."""
        bounds = [
            *([] if self.first is None else [f"log_partition >= {self.first}"]),
            *([] if self.last is None else [f"log_partition <= {self.last}"]),
        ]
        return " AND ".join(bounds) or "true"


def portions(tables: Mapping[str, DeltaTable], since: int, rows_at_once: int) -> list[Portion]:
    """Divide the log partitions of some tables by their numbers of rows according to the statistics of the files.

    Files of history without records of ingest runs after `since` do not count. The portions together cover all possible
    log partitions. The rows of files without statistics count as one log partition.
    """
    files = (pa.table(table.get_add_actions(flatten=True)).to_pylist() for table in tables.values())
    return divided_files(chain.from_iterable(files), since, rows_at_once)


def divided_files(files: Iterable[Mapping[str, Any]], since: int, rows_at_once: int) -> list[Portion]:
    """Divide the log partitions of some files as `portions` does; the files are as `active_files` returns them."""
    rows: Counter[int] = Counter()
    for file in files:
        _count(rows, file, since)
    divided: list[Portion] = []
    first, counted = None, 0
    for partition in sorted(rows):
        if counted and counted + rows[partition] > rows_at_once:
            divided.append(Portion(first, partition - 1, counted))
            first, counted = partition, 0
        counted += rows[partition]
    return [*divided, Portion(first, None, counted)]


def _count(rows: Counter[int], file: Mapping[str, Any], since: int) -> None:
    newest = file.get("max.ingest_run")
    if newest is not None and newest <= since:
        return
    low, high = file.get("min.log_partition") or 0, file.get("max.log_partition") or 0
    share = -(-(file.get("num_records") or 0) // (high - low + 1))
    for partition in range(low, high + 1):
        rows[partition] += share
