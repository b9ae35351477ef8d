"""The child process that builds a snapshot: it writes the lake's state and the log's tail to a file for mapping.

`handle` reads the request and returns the answer (`offsetlake.serve.storage.child_process`).

| Request field  | Description |
|----------------|-------------|
| lake, log      | Folders; a missing lake is created |
| ends           | By log partition, the log offset to read up to; null: truncate torn batches, read all |
| log_partitions | The number of log partitions |
| log_format     | The format of log lines on standard error, an `offsetlake.util.log_lines.LogFormat` |
| files          | File descriptors; the snapshot is written to the first one whose file system has room for it |

| Answer field   | Description |
|----------------|-------------|
| ends           | By log partition, the log offset after the last record that was read |
| file           | The file descriptor that was written |
"""

import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from offsetlake.errors import LogMismatch, LogUnavailable
from offsetlake.kafka.placement import partition_for_group
from offsetlake.lake.lake import Lake
from offsetlake.lake.log_ends import newest_ends
from offsetlake.lake.runs import LogRange, compacted_positions
from offsetlake.lake.unread import Unread, unread
from offsetlake.log.address import LogAddress
from offsetlake.log.compiling import compile_loops
from offsetlake.log.disk.folder import ends_of
from offsetlake.log.disk.segments import segments_of
from offsetlake.log.positions import OFFSETS_TOPIC, LogExtent, LogPartition
from offsetlake.log.writer.recovery import recover
from offsetlake.pipeline.compact.snapshot import Snapshot, read_snapshot_in_parts
from offsetlake.serve.storage.snapshot_file import snapshot_parts
from offsetlake.serve.storage.snapshot_offsets import OFFSET_COLUMNS, encode_offsets
from offsetlake.util.log_lines import log_to_stderr
from offsetlake.util.processes import CHILD_NICENESS

LOG = logging.getLogger(__name__)
_NO_SPACE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM}
MAX_THREADS = min(4, os.cpu_count() or 1)
MAX_CHECKED_GROUPS = 1000
"""Enough to detect a wrong number of log partitions: most groups would belong in another one."""


def build(request: dict[str, Any]) -> dict[str, Any]:
    """Build a snapshot as a request specifies, and return the answer."""
    folder, path = Path(request["log"]), request["lake"]
    if request["ends"] is None:
        lake = Lake.create(path)
        recover(folder)
        ends = ends_of(folder, OFFSETS_TOPIC, request["log_partitions"])
    else:
        lake = Lake.open(path)  # a lake that was removed is not created again
        os.nice(CHILD_NICENESS)
        ends = {int(partition): end for partition, end in request["ends"].items()}
    _check_covered(lake, folder, request["log_partitions"])
    threads = MAX_THREADS if request["ends"] is None else 1  # one while the serving process answers requests
    log = LogAddress(folder=folder)
    extent = log.describe()
    snapshot, offsets = read_snapshot_in_parts(
        lake, log, encode_offsets, ends, OFFSET_COLUMNS, threads=threads, extent=extent
    )
    _check_placement(snapshot, request["log_partitions"])
    parts = snapshot_parts(snapshot, offsets, newest_ends(lake), _not_read(unread(lake), extent))
    file = _file_with_space(request["files"], sum(map(len, parts)), folder)
    with os.fdopen(file, "wb", closefd=False) as out:
        out.writelines(parts)
    return {"ends": ends, "file": file}


def _file_with_space(files: Sequence[int], size: int, folder: Path) -> int:
    """Allocate `size` bytes in the first file that has room for them and return it.

    Raises:
        LogUnavailable: No file has room.
    """
    for file in files:
        try:
            os.posix_fallocate(file, 0, size)
        except OSError as error:
            if error.errno not in _NO_SPACE_ERRORS:
                raise
            os.ftruncate(file, 0)
        else:
            return file
    raise LogUnavailable(
        f"Cannot store the snapshot of {size} bytes: neither the disk of the log {folder} nor memory has enough free "
        "space. Free some of either."
    )


def _not_read(ingested: Unread, extent: LogExtent) -> Unread:
    """Return what the log lacks, by itself or according to the last ingest."""
    present = {*extent.ranges, *extent.empty}
    absent = {*extent.absent, *(LogPartition(*where) for where in ingested.partitions)}
    missing = {LogRange(*where, *offsets) for where, offsets in extent.missing}
    return Unread(frozenset(absent - present), None, tuple(sorted(missing.union(ingested.missing))))


def _check_covered(lake: Lake, folder: Path, log_partitions: int) -> None:
    """Raise LogMismatch if log segments were deleted that the lake does not cover: their commits would be missing."""
    covered = compacted_positions(lake)
    for partition in range(log_partitions):
        path = folder / str(LogPartition(OFFSETS_TOPIC, partition))
        segments = segments_of(path) if path.exists() else []
        covered_end = covered.get((OFFSETS_TOPIC, partition), 0)
        if segments and segments[0].base_offset > covered_end:
            raise LogMismatch(
                f"{path} begins at log offset {segments[0].base_offset}, but the lake {lake.location} covers the log "
                f"only up to log offset {covered_end}, so the records between them are missing. Pass the lake that "
                "this log was compacted into with --lake; if that lake no longer exists, run `offsetlake run` to "
                "record the gap."
            )


def _check_placement(snapshot: Snapshot, log_partitions: int) -> None:
    """Raise LogMismatch if groups, a sample of them, are not in the log partition that belongs to them."""
    groups = snapshot.tables["groups"].select(["group_id", "log_partition"]).slice(0, MAX_CHECKED_GROUPS).to_pylist()
    for group in groups:
        expected = partition_for_group(group["group_id"], log_partitions)
        if expected != group["log_partition"]:
            raise LogMismatch(
                f"Group {group['group_id']!r} is in log partition {group['log_partition']}, but with {log_partitions} "
                f"log partitions it belongs in log partition {expected}. Pass the number of log partitions that the "
                "log was created with as --log-partitions (offsets.topic.num.partitions of its brokers)."
            )


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Build a snapshot as a request specifies, in a child process, and return the answer."""
    log_to_stderr(request["log_format"])
    compile_loops(LOG.info)
    return build(request)
