"""Restores the state files of tables whose files another program rearranged."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction, RemoveAction

from offsetlake.errors import LakeUnusable
from offsetlake.lake.files import TableFile, active_files, refuse_rearranged
from offsetlake.lake.history.history_files import file_dataset
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import out_of_layout, split_sorted
from offsetlake.util.amounts import counted
from offsetlake.util.times import now_ms

_ROWS_AT_ONCE = 2_000_000  # approximate bound of memory


def lay_out(lake: Lake, table: str) -> int:
    """Rewrite the files of a state table that are not state files; return their number.

    The rows are rewritten in one commit that is marked as no change of data. Raises LakeUnusable if the files do not
    contain as many rows as the Delta log records.
    """
    wrong = out_of_layout(active_files(lake, table))
    if not wrong:
        return 0
    now = now_ms()
    actions: list[AddAction | RemoveAction] = [RemoveAction(file["path"], False, now) for file in wrong]
    rows = 0
    for part in _sorted(lake, table, wrong):
        file = TableFile(lake, table)
        file.write(part)
        actions += [replace(action, data_change=False) for action in file.close()]
        rows += part.num_rows
    counts = [file["num_records"] for file in wrong]
    if None not in counts and sum(counts) != rows:
        raise LakeUnusable(
            f"table {table} of the lake {lake.location}: the files that another program rearranged have "
            f"{counted(rows, 'row')}, "
            f"and should have {sum(counts):,}: run `offsetlake rebuild --table {table}`"
        )
    marked = lake.properties("layout", lake.without_rows(table).version() + 1)
    with lake.open_tables() as tables:
        tables.commit(table, actions, marked, partial(refuse_rearranged, lake, table, {file["path"] for file in wrong}))
    return len(wrong)


def _sorted(lake: Lake, table: str, files: Sequence[dict[str, Any]]) -> Iterator[pa.Table]:
    """Yield the rows of files as the rows of state files, some log partitions at a time."""
    dataset = file_dataset(lake, table, [file["path"] for file in files])
    counts = dataset.to_table(["log_partition"]).group_by("log_partition").aggregate([("log_partition", "count")])
    partitions = sorted(counts["log_partition"].to_pylist())
    step = max(1, len(partitions) * _ROWS_AT_ONCE // max(pc.sum(counts["log_partition_count"]).as_py() or 1, 1))
    for start in range(0, len(partitions), step):
        some = partitions[start : start + step]
        rows = dataset.to_table(filter=pc.field("log_partition").isin(some))
        for partition in some:
            yield from split_sorted(rows.filter(pc.equal(rows["log_partition"], partition)))
