"""Determines the lowest log offset of each log partition that is still needed, and the reason.

Everything before it is in the history tables and included in the state tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offsetlake.lake import runs
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.positions import SHARE_STATE_TOPIC, LogPartition
from offsetlake.log.writer.ownership import CLUSTER_FILE
from offsetlake.pipeline.ingest.known_log import LastRead, last_reads, same_log

_SNAPSHOTS = "share coordinators load the newest snapshot of each share partition"
_UNREAD = "not read yet: run `offsetlake ingest`"
_UNCOMPACTED = "not compacted yet: run `offsetlake compact`"

_RETURN = "brokers copy the whole log at `offsetlake return`"

_UNKNOWN = (
    "cannot verify that the lake was read from this log: the last batches that were read were compacted away, or are "
    "older than Kafka 0.11"
)

_FIRST_PENDING = """
SELECT log_partition, min(log_offset) AS log_offset, first_value(producer_id ORDER BY log_offset) AS producer_id
FROM pending_offsets GROUP BY log_partition
"""

_FIRST_SNAPSHOT = """
SELECT log_partition, min(log_offset) AS log_offset FROM (
  SELECT log_partition, last_value(kind ORDER BY log_offset) AS newest_kind,
    coalesce(max(CASE WHEN kind = 'snapshot' THEN log_offset END), 0) AS log_offset
  FROM share_state_records GROUP BY log_partition, group_id, topic_id, partition
) WHERE newest_kind <> 'tombstone' GROUP BY log_partition
"""


@dataclass(frozen=True, slots=True)
class Need:
    """The lowest log offset that is needed, and the reason.

    | Field    | Description |
    |----------|-------------|
    | position | The log offset. |
    | held_by  | The reason, for people. |
    | expected | Whether the reason is normal, so that no note about it is necessary. |
    """

    position: int
    held_by: str
    expected: bool = False


def needs_of_log(lake: Lake, log: LogAddress) -> dict[LogPartition, Need]:
    """Return what is needed of every partition of a log.

    Nothing may be deleted unless the log is verified to be the one that the lake was read from: in at least one log
    partition the last batch that the lake read must have the same checksum.

    Raises:
        LogMismatch: The log is not the one that this lake was read from.
        LogUnavailable: The log cannot be read.

    """
    extent = log.describe()
    ingested = runs.last_run(lake, "ingest")
    if ingested is None:
        return dict.fromkeys(extent.ranges, Need(0, _UNREAD))
    same_log(lake, log, extent, ingested)
    if log.folder and (log.folder / CLUSTER_FILE).exists():
        return dict.fromkeys(extent.ranges, Need(0, _RETURN, expected=True))
    read, covered = last_reads(ingested), runs.compacted_positions(lake)
    if not any(_is_verified(log, read[where]) for where in extent.ranges.keys() & read.keys()):
        return dict.fromkeys(extent.ranges, Need(0, _UNKNOWN))
    pending = {row["log_partition"]: row for row in lake.query(_FIRST_PENDING, "pending_offsets").to_pylist()}
    newest = lake.query(_FIRST_SNAPSHOT, "share_state_records").to_pylist()
    snapshots = {row["log_partition"]: row["log_offset"] for row in newest}
    return {where: _need(where, read, covered, pending, snapshots) for where in extent.ranges}


def _is_verified(log: LogAddress, read: LastRead) -> bool:
    checksum = read.tail_checksum
    return checksum is not None and log.read_tails([read.query])[0].checksum == checksum


def _need(
    where: LogPartition,
    read: Mapping[LogPartition, LastRead],
    covered: Mapping[tuple[str, int], int],
    pending: Mapping[int, Mapping[str, Any]],
    snapshots: Mapping[int, int],
) -> Need:
    if where not in read or not read[where].position:
        return Need(0, _UNREAD)
    position = read[where].position
    if where not in covered:
        return Need(0, _UNCOMPACTED)
    compacted = covered[where]
    is_share_state = where.topic == SHARE_STATE_TOPIC
    if is_share_state and snapshots.get(where.partition, compacted) < compacted:
        return Need(snapshots[where.partition], _SNAPSHOTS, expected=True)
    first_pending = None if is_share_state else pending.get(where.partition)
    if first_pending and first_pending["log_offset"] < compacted:
        offset, producer_id = first_pending["log_offset"], first_pending["producer_id"]
        pending_text = (
            "an incomplete commit" if producer_id is None else f"an open transaction of producer {producer_id}"
        )
        return Need(offset, f"{pending_text} at offset {offset}")
    return Need(compacted, _UNCOMPACTED if compacted < position else _UNREAD)
