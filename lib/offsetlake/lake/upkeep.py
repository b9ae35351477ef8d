"""Compacts small files of the Delta tables, vacuums unreferenced files, and writes checkpoints.

The state tables are never compacted here: see `offsetlake.lake.state_files`.
"""

from datetime import timedelta
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import WriterProperties

from offsetlake.lake.definitions import STATE, TABLES, definition
from offsetlake.lake.files import ROWS_A_GROUP
from offsetlake.lake.lake import Lake

TARGET_BYTES = 100 << 20  # of a file; larger files are not compacted
MIN_SMALL_FILES = 4  # small files; compacting fewer is not worth it, and each run adds one to `runs`

_RUNS_A_GROUP = 1 << 10  # a run has thousands of positions: jobs read single runs, and whole row groups of them

APPENDED = tuple(name for name in TABLES if definition(name).properties.get("delta.appendOnly") == "true")
"""The append-only tables, of which any files may be compacted together."""

_HOUR_MS = timedelta(hours=1) // timedelta(milliseconds=1)


class VacuumRetention(NamedTuple):
    """How long data files that are no longer referenced are kept, in ms.

    `state_ms` is for the state tables, which compactions rewrite, and `others_ms` for all other tables.
    """

    others_ms: int
    state_ms: int


def sizes(lake: Lake) -> pa.Table:
    """Return `table`, `version`, `rows`, `files` and `bytes` of each table, as its Delta log has them."""
    rows_by_table = []
    for table in TABLES:
        target = lake.without_rows(table)
        files = pa.table(target.get_add_actions(flatten=True))
        rows, size = (pc.sum(files[name], min_count=0).as_py() for name in ("num_records", "size_bytes"))
        rows_by_table.append(
            {"table": table, "version": target.version(), "rows": rows, "files": files.num_rows, "bytes": size}
        )
    return pa.Table.from_pylist(rows_by_table)


def small_files(lake: Lake, table: str) -> int:
    """Return the maximum number of files that would be compacted; 0 for a state table."""
    if table not in APPENDED:
        return 0
    sizes = pa.table(lake.without_rows(table).get_add_actions(flatten=True))["size_bytes"].to_pylist()
    small = sum(1 for size in sizes if size < TARGET_BYTES)
    return small if small >= MIN_SMALL_FILES else 0


def optimize(lake: Lake, table: str, run_id: int) -> int:
    """Rewrite small files of an append-only table without history into larger ones, in one commit; return their number.

    Rows do not change. The old files remain on disk until they are vacuumed. Raises LakeUnusable if the disk is full or
    access is denied.
    """
    if not small_files(lake, table):
        return 0
    rows_a_group = _RUNS_A_GROUP if table == "runs" else ROWS_A_GROUP
    properties = WriterProperties(compression="ZSTD", compression_level=1, max_row_group_size=rows_a_group)
    with lake.open_tables() as tables, tables.committing(table) as target:
        done = target.optimize.compact(
            target_size=TARGET_BYTES,
            writer_properties=properties,
            commit_properties=lake.properties("maintain", run_id),
        )
    return int(done["numFilesRemoved"])


def vacuum(lake: Lake, table: str, retention: VacuumRetention, *, dry_run: bool) -> int:
    """Remove files that no version of a table within the retention references; return their number.

    This includes files that no commit references, which killed tasks have left. Delta counts in hours, so a part of an
    hour is rounded up. Raises LakeUnusable if the disk is full or access is denied.
    """
    retention_ms = retention.state_ms if table in STATE else retention.others_ms
    target, hours = lake.delta_table(table), -(-retention_ms // _HOUR_MS)
    with lake.location.errors():
        old = target.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        # Delta also lists files that were removed before.
        present = {*lake.table_location(table).names()}
        count = sum(1 for path in old if path.split("/")[0] in present)
        if count and not dry_run:
            target.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
            lake.close_table(table)
    return count


def checkpoint(lake: Lake, table: str) -> None:
    """Write a checkpoint of the Delta log of a table, and remove entries older than the log retention.

    Raises LakeUnusable if the disk is full or access is denied.
    """
    with lake.location.errors():
        target = lake.delta_table(table)
        target.create_checkpoint()
        lake.table_location(table).child("_delta_log").sync(files=True)  # before the entries that it replaces are gone
        target.cleanup_metadata()
    lake.close_table(table)


def remove_log(lake: Lake, table: str) -> None:
    """Delete what the Delta log of a table has from before its newest checkpoint.

    Its versions must have been verified before (`offsetlake.lake.foreign.guard`). Raises LakeUnusable as `checkpoint`.
    """
    log = lake.table_location(table).child("_delta_log")
    names = [name for name in log.names() if name[:20].isdigit()]
    newest = max((name[:20] for name in names if ".checkpoint." in name), default="")
    with lake.location.errors():
        for name in names:
            if name[:20] < newest:
                log.discard(name)
    lake.close_table(table)
