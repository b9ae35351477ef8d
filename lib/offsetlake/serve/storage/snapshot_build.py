"""Makes a base: reads the lake and the log's tail, and lays them out in a file that the serving process maps.

A process of its own, so that Arrow and Delta take no memory of the serving process and no time from its answers:
`python -m offsetlake.serve.storage.snapshot_build` reads its request as JSON from standard input, up to the end of it.

| request field  | is |
|----------------|----|
| lake, log      | folders; a lake that is not there is made |
| ends           | by log partition, how far to read; null: cut off what is torn at the ends, and read to them |
| log_partitions | how many log partitions there are |
| log_format     | of what it says on standard error: a `offsetlake.serve.logs.LogFormat` |
| files          | descriptors of files, the first of which with room for it is written |

The answer, JSON on standard output, has `ends`, and `file`, the descriptor that was written; or `error`, a sentence for
a person.
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
from offsetlake.lake.runs import compacted_positions
from offsetlake.log.address import LogAddress
from offsetlake.log.compiling import compile_loops
from offsetlake.log.disk.folder import end_of
from offsetlake.log.disk.segments import segments_of
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.log.writer.appending import truncate_torn
from offsetlake.pipeline.compact.snapshot import Snapshot, read_snapshot
from offsetlake.serve.logs import log_to_stderr
from offsetlake.serve.storage.child_process import BEHIND_ANSWERS, answer_one
from offsetlake.serve.storage.snapshot_file import OFFSET_COLUMNS, lay_out

LOG = logging.getLogger(__name__)
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM}
PLACED = 1000  # groups asked where they are: of another number of log partitions most would be elsewhere


def build(request: dict[str, Any]) -> dict[str, Any]:
    """Do what a request asks; gives the answer."""
    folder, path = Path(request["log"]), Path(request["lake"])
    if request["ends"] is None:
        lake = Lake.create(path)
        truncate_torn(folder)
        ends = _ends(folder, request["log_partitions"])
    else:
        lake = Lake.open(path)  # one that is gone meanwhile is not begun anew
        os.nice(BEHIND_ANSWERS)
        ends = {int(partition): end for partition, end in request["ends"].items()}
    _check_covered(lake, folder, request["log_partitions"])
    snapshot = read_snapshot(lake, LogAddress(folder=folder), ends, OFFSET_COLUMNS)
    _check_placement(snapshot, request["log_partitions"])
    parts = lay_out(snapshot, newest_ends(lake))
    file = _with_room(request["files"], sum(map(len, parts)), folder)
    with os.fdopen(file, "wb", closefd=False) as out:
        out.writelines(parts)
    return {"ends": ends, "file": file}


def _with_room(files: Sequence[int], size: int, folder: Path) -> int:
    """Return the first file that has room for some bytes, which it takes; raises LogUnavailable if none has."""
    for file in files:
        try:
            os.posix_fallocate(file, 0, size)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            os.ftruncate(file, 0)
        else:
            return file
    raise LogUnavailable(
        f"the snapshot of {size} bytes has no room on the disk of the log {folder}, nor in memory: free some of either"
    )


def _ends(folder: Path, log_partitions: int) -> dict[int, int]:
    ends = {}
    for partition in range(log_partitions):
        path = folder / str(LogPartition(OFFSETS_TOPIC, partition))
        segments = segments_of(path) if path.exists() else []
        ends[partition] = end_of(segments[-1])[0] if segments else 0
    return ends


def _check_covered(lake: Lake, folder: Path, log_partitions: int) -> None:
    """Refuse a log that was cut where the lake does not have what is gone: it would be served as never committed."""
    covered = compacted_positions(lake)
    for partition in range(log_partitions):
        path = folder / str(LogPartition(OFFSETS_TOPIC, partition))
        segments = segments_of(path) if path.exists() else []
        reached = covered.get((OFFSETS_TOPIC, partition), 0)
        if segments and segments[0].base_offset > reached:
            raise LogMismatch(
                f"{path} begins at log offset {segments[0].base_offset}, but the tables of the lake {lake.path} reach "
                f"only to {reached}: what was between them is in neither. Name the lake this log was cut for with "
                "--lake; or, where there is none any more, have `offsetlake run` note the gap"
            )


def _check_placement(snapshot: Snapshot, log_partitions: int) -> None:
    """Refuse a log whose groups are not where this number of log partitions puts them, by some of them."""
    groups = snapshot.tables["groups"].select(["group_id", "log_partition"]).slice(0, PLACED).to_pylist()
    for group in groups:
        placed = partition_for_group(group["group_id"], log_partitions)
        if placed != group["log_partition"]:
            raise LogMismatch(
                f"group {group['group_id']!r} is in log partition {group['log_partition']}, but of {log_partitions} "
                f"log partitions it belongs in {placed}: say with --log-partitions how many the log was made with "
                "(offsets.topic.num.partitions of its brokers)"
            )


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    log_to_stderr(request["log_format"])
    compile_loops(LOG.info)
    return build(request)


if __name__ == "__main__":
    answer_one(_answer)
