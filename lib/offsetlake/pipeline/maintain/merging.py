"""Merges small files of history sorted by group, so that the records of a group are read without those of others.

The rows do not change. A merged file is in the order of its log partitions; the rows of a log partition are in the
order of `_ORDER`, or each quarter of a million of them if it has more.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake import upkeep
from offsetlake.lake.definitions import HISTORY
from offsetlake.lake.files import FileChanges, TableFile, active_files, commit, table_schema
from offsetlake.lake.history.history_files import history_file, row_groups
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.portions import divided_files
from offsetlake.util.amounts import counted
from offsetlake.util.row_codes import in_order

_JOB = "merge"  # of the commits that replace files, because `maintain` also replaces files of the same tables otherwise
_ORDER = ("log_partition", "group_id", "topic", "partition", "log_offset")
_ROWS_AT_ONCE = 1 << 18
_BEFORE_ALL_RUNS = -1
_MAX_RATIO = 2  # of the size of a file to that of the newer ones with which it is merged


def merge(lake: Lake, table: str, run_id: int, say: Callable[[str], None]) -> int:
    """Merge small files of an append-only table in one commit; return their number.

    The old files remain on disk until they are vacuumed. Memory is bounded by about half a million rows.

    Raises LakeBusy if another program has rearranged the files, and LakeUnusable if the disk is full or access is
    denied.
    """
    if table not in HISTORY:
        return upkeep.optimize(lake, table, run_id)
    changes, together = FileChanges(), _merged_together(lake, table)
    count = sum(map(len, together))
    for files in together:
        say(f"merging {len(changes.removed) + len(files):,} of {counted(count, 'small file')} of table {table}")
        changes.added += _merged(lake, table, files).close()
        changes.removed += [file["path"] for file in files]
    commit(lake, table, [changes], _JOB, run_id, keeps_rows=True)
    return len(changes.removed)


def mergeable(lake: Lake, table: str) -> int:
    """Return the number of files that `merge` would merge, for a table without history at most."""
    if table not in HISTORY:
        return upkeep.small_files(lake, table)
    return sum(map(len, _merged_together(lake, table)))


def _merged_together(lake: Lake, table: str) -> list[list[dict[str, Any]]]:
    """Return lists of files to merge into one, which have at most TARGET_BYTES together, in the order of ingest runs.

    A file is merged with the newer ones only if these have half its size, so that each row is merged a few times.
    """
    small = [file for file in active_files(lake, table) if file["size_bytes"] < upkeep.TARGET_BYTES]
    lists, size = [list[dict[str, Any]]()], 0
    for file in sorted(small, key=lambda file: -(file.get("max.ingest_run") or 0)):
        if size and file["size_bytes"] > min(size * _MAX_RATIO, upkeep.TARGET_BYTES - size):
            lists.append([])
            size = 0
        lists[-1].insert(0, file)
        size += file["size_bytes"]
    return [files for files in lists if len(files) >= upkeep.MIN_SMALL_FILES]


def _merged(lake: Lake, table: str, files: Sequence[dict[str, Any]]) -> TableFile:
    """Write the rows of some files to a new one, about _ROWS_AT_ONCE rows of some log partitions at a time."""
    columns, merged = table_schema(table).names, TableFile(lake, table)
    listed = [history_file(lake, table, file) for file in files]
    partitions = sorted({p for file in listed for p in range(file.first_partition, file.last_partition + 1)})
    for portion in divided_files(files, _BEFORE_ALL_RUNS, _ROWS_AT_ONCE):
        of_portion, waiting = [*filter(portion.has, partitions)], list[pa.Table]()
        if not of_portion:
            continue
        for part in row_groups(lake, table, listed, of_portion, pc.scalar(value=True), columns):
            waiting.append(part)
            if sum(rows.num_rows for rows in waiting) >= _ROWS_AT_ONCE:
                merged.write(_emptied(waiting))
        if waiting:
            merged.write(_emptied(waiting))
    return merged


def _emptied(waiting: list[pa.Table]) -> pa.Table:
    """Return the rows of a list in order, and empty the list, because they take much memory."""
    rows = pa.concat_tables(waiting)
    waiting.clear()
    return in_order(rows, [n for n in _ORDER if n in rows.column_names and not rows.schema.field(n).nullable])
