"""What a log is still needed for: of each partition the lowest log offset that has to stay, and the reason.

All below it is in history, and in the tables of latest state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offsetlake.lake import runs
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.pipeline.ingest.plan import positions_of, same_log

_NO_TABLE = "its latest state is in no table yet"
_UNREAD = "not read yet: `offsetlake ingest` reads it"
_UNCOMPACTED = "not compacted yet: `offsetlake compact` does it"

_UNKNOWN = (
    "nothing proves that it is the log this lake has read: all batches read last were compacted, are older than Kafka "
    "0.11, or were read from a live cluster"
)

_FIRST_PENDING = """
SELECT log_partition, min(log_offset) AS log_offset, first_value(producer_id ORDER BY log_offset) AS producer_id
FROM pending_offsets GROUP BY log_partition
"""


@dataclass(frozen=True, slots=True)
class Need:
    """The lowest log offset that has to stay, and what holds it there, for a person to read.

    `expected` says that it is as it should be, and nothing for anyone to look into.
    """

    position: int
    held_by: str
    expected: bool = False


def needs_of_log(lake: Lake, log: LogAddress) -> dict[LogPartition, Need]:
    """Tell what is needed of every partition of a log; LogMismatch where it is not the log this lake holds.

    More is asked than that nothing speaks against it: of one partition at least the batch that the lake read last has
    to be the very one the log has, or nothing may go. Raises LogUnavailable where the log cannot be read.
    """
    extent = log.describe()
    ingested = runs.last_run(lake, "ingest")
    if ingested is None:
        return dict.fromkeys(extent.ranges, Need(0, _UNREAD))
    same_log(lake, log, extent, ingested)
    read, covered = positions_of(ingested), runs.compacted_positions(lake)
    if not any(_known_again(log, where, read[where]) for where in extent.ranges.keys() & read.keys()):
        return dict.fromkeys(extent.ranges, Need(0, _UNKNOWN))
    pending = {row["log_partition"]: row for row in lake.query(_FIRST_PENDING, "pending_offsets").to_pylist()}
    return {where: _need(where, read, covered, pending) for where in extent.ranges}


def _known_again(log: LogAddress, where: LogPartition, read: runs.LogPosition) -> bool:
    checksum = read.tail_checksum
    return checksum is not None and log.tail_checksum(where, read.position) == checksum


def _need(
    where: LogPartition,
    read: Mapping[LogPartition, runs.LogPosition],
    covered: Mapping[tuple[str, int], int],
    pending: Mapping[int, Mapping[str, Any]],
) -> Need:
    if where.topic != OFFSETS_TOPIC:
        return Need(0, _NO_TABLE, expected=True)
    if where not in read or not read[where].position:
        return Need(0, _UNREAD)
    position = read[where].position
    if where not in covered:
        return Need(0, _UNCOMPACTED)
    compacted = covered[where]
    open_one = pending.get(where.partition)
    if open_one and open_one["log_offset"] < compacted:
        offset = open_one["log_offset"]
        whose = open_one["producer_id"]
        what = "a commit in parts that is not complete" if whose is None else f"an open transaction of producer {whose}"
        return Need(offset, f"{what} at offset {offset}")
    return Need(compacted, _UNCOMPACTED if compacted < position else _UNREAD)
