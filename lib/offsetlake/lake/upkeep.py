"""Compacts small files of the Delta tables, vacuums unreferenced files, and writes checkpoints.

The state tables are never compacted here: see `offsetlake.lake.state_files`.
"""

from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import WriterProperties

from offsetlake.lake.commits import ours
from offsetlake.lake.definitions import TABLES, definition
from offsetlake.lake.files import ROWS_A_GROUP
from offsetlake.lake.lake import Lake, disk_errors

TARGET_BYTES = 100 << 20  # of a file; larger files are not compacted
MIN_SMALL_FILES = 4  # small files; compacting fewer is not worth it, and each run adds one to `runs`

APPENDED = tuple(name for name in TABLES if definition(name).properties.get("delta.appendOnly") == "true")
"""The append-only tables, of which any files may be compacted together."""

_HOUR_MS = timedelta(hours=1) // timedelta(milliseconds=1)


def sizes(lake: Lake) -> pa.Table:
    """Return `table`, `version`, `rows`, `files` and `bytes` of each table, as its Delta log has them."""
    rows_by_table = []
    for table in TABLES:
        target = lake.delta_table(table)
        files = pa.table(target.get_add_actions(flatten=True))
        rows, size = (pc.sum(files[name], min_count=0).as_py() for name in ("num_records", "size_bytes"))
        rows_by_table.append(
            {"table": table, "version": target.version(), "rows": rows, "files": files.num_rows, "bytes": size}
        )
    return pa.Table.from_pylist(rows_by_table)


def small_files(lake: Lake, table: str) -> int:
    """Return the maximum number of files that `optimize` would compact; 0 for a state table."""
    if table not in APPENDED:
        return 0
    sizes = pa.table(lake.delta_table(table).get_add_actions(flatten=True))["size_bytes"].to_pylist()
    small = sum(1 for size in sizes if size < TARGET_BYTES)
    return small if small >= MIN_SMALL_FILES else 0


def optimize(lake: Lake, table: str, run_id: int) -> int:
    """Rewrite small files of a table in APPENDED into larger ones, in one commit; return the number of small files.

    Rows and the statistics by which history is found do not change. The old files remain on disk until they are
    vacuumed. Raises LakeUnusable if the disk is full or access is denied.
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
    """Remove files that no version of a table within the retention references; return their number.

    This includes files that no commit references, which killed tasks have left. Delta counts in hours, so a part of an
    hour is rounded up. Raises LakeUnusable if the disk is full or access is denied.
    """
    target, hours = lake.delta_table(table), -(-retention_ms // _HOUR_MS)
    with disk_errors(lake.path):
        old = target.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        # Delta also lists files that were removed before.
        count = sum(1 for path in old if (lake.table_path(table) / path).exists())
        if count and not dry_run:
            target.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
    return count


def checkpoint(lake: Lake, table: str) -> None:
    """Write a checkpoint of the Delta log of a table, and remove entries older than the log retention of 30 days.

    Raises LakeUnusable if the disk is full or access is denied.
    """
    with disk_errors(lake.path):
        target = lake.delta_table(table)
        target.create_checkpoint()
        target.cleanup_metadata()
