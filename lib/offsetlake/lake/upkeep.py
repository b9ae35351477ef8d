"""Upkeep of the Delta tables: small files made one, files of no use removed, Delta's own log kept short.

The tables of latest state are never compacted here: see `offsetlake.lake.state_files`.
"""

from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import WriterProperties

from offsetlake.lake.commits import ours
from offsetlake.lake.definitions import TABLES, definition
from offsetlake.lake.files import ROWS_A_GROUP
from offsetlake.lake.lake import Lake, disk_errors

TARGET_BYTES = 100 << 20  # of a file; one of this size is left as it is
FEWEST = 4  # small files: to write fewer anew is not worth it, and each run adds one to `runs`

APPENDED = tuple(name for name in TABLES if definition(name).properties.get("delta.appendOnly") == "true")
"""Tables whose rows only ever come: any of their files may become one."""

_HOUR_MS = timedelta(hours=1) // timedelta(milliseconds=1)


def sizes(lake: Lake) -> pa.Table:
    """Give of each table `table`, `version`, `rows`, `files` and `bytes`, as Delta's log has them: nothing is read."""
    found = []
    for table in TABLES:
        of = lake.delta_table(table)
        files = pa.table(of.get_add_actions(flatten=True))
        rows, size = (pc.sum(files[name], min_count=0).as_py() for name in ("num_records", "size_bytes"))
        found.append({"table": table, "version": of.version(), "rows": rows, "files": files.num_rows, "bytes": size})
    return pa.Table.from_pylist(found)


def small_files(lake: Lake, table: str) -> int:
    """Count the files `optimize` would take together, at the most; 0 of a table of latest state."""
    if table not in APPENDED:
        return 0
    sizes = pa.table(lake.delta_table(table).get_add_actions(flatten=True))["size_bytes"].to_pylist()
    small = sum(1 for size in sizes if size < TARGET_BYTES)
    return small if small >= FEWEST else 0


def optimize(lake: Lake, table: str, run_id: int) -> int:
    """Write the rows of small files into larger ones, in one commit; gives how many files they were in.

    Only of APPENDED. Rows and the statistics that history is found by stay as they are; the old files stay on disk
    until they are vacuumed. Raises LakeUnusable where the disk is full or forbidden.
    """
    if not small_files(lake, table):
        return 0
    properties = WriterProperties(compression="ZSTD", compression_level=1, max_row_group_size=ROWS_A_GROUP)
    with disk_errors(lake.path):
        done = lake.delta_table(table).optimize.compact(
            target_size=TARGET_BYTES, writer_properties=properties, commit_properties=ours("maintain", run_id)
        )
    return int(done["numFilesRemoved"])


def vacuum(lake: Lake, table: str, retention_ms: int, *, dry_run: bool) -> int:
    """Remove files that no version of a table younger than the retention names; gives how many they are.

    Among them are those that no commit ever named: what tasks that were killed left behind. Delta counts in hours, so
    part of an hour counts as a whole one. Raises LakeUnusable where the disk is full or forbidden.
    """
    of, hours = lake.delta_table(table), -(-retention_ms // _HOUR_MS)
    with disk_errors(lake.path):
        old = of.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        there = sum(1 for path in old if (lake.table_path(table) / path).exists())  # Delta also names those long gone
        if there and not dry_run:
            of.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
    return there


def checkpoint(lake: Lake, table: str) -> None:
    """Write Delta's log of a table into one file, and remove the entries older than its retention, 30 days.

    Raises LakeUnusable where the disk is full or forbidden.
    """
    with disk_errors(lake.path):
        of = lake.delta_table(table)
        of.create_checkpoint()
        of.cleanup_metadata()
