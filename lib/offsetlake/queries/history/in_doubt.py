"""Offsets of the past that quarantined records leave unknown, whatever replaced these records later."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC
from offsetlake.lake.files import active_files
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.queries.history.before import LogPosition
from offsetlake.rules.reduction import KEY
from offsetlake.rules.unresolved import concerned
from offsetlake.util.amounts import counted

_COLUMNS = "log_topic, log_partition, log_offset, log_timestamp, reason, key_bytes, is_control"
_END = 2**63 - 1
_MAX_NAMED = 3


def unknown_then(lake: Lake, offsets: pa.Table, moment: int | LogPosition | None) -> dict[int, str]:
    """Return by row why offsets were unknown at a moment: a record of them that cannot be decoded was between.

    Args:
        lake: The lake.
        offsets: The offsets as of the moment: KEY, log_partition and log_offset.
        moment: An instant in ms since the epoch, or the position of the record from before which the offsets are; None
            for the end of history.
    """
    if not offsets.num_rows or not active_files(lake, "quarantine"):
        return {}
    appended = "true" if not isinstance(moment, int) else f"coalesce(log_timestamp, {moment}) <= {moment}"
    found = _quarantined(lake, pc.unique(offsets["log_partition"]).to_pylist(), appended)
    limits = _limits(lake, moment) if found else {}
    newest: dict[object, dict[str, Any]] = {}
    for row in found:
        if row["log_offset"] < limits.get(row["log_partition"], _END):
            newest[row["log_partition"] if row["scope"] == "log_partition" else tuple(row[name] for name in KEY)] = row
    reasons = {}
    for number, offset in enumerate(offsets.select([*KEY, "log_partition", "log_offset"]).to_pylist()):
        for what in (tuple(offset[name] for name in KEY), offset["log_partition"]):
            if what in newest and newest[what]["log_offset"] > offset["log_offset"]:
                reasons[number] = _reason(newest[what])
    return reasons


def note_about_history(lake: Lake, group_id: str, topic: str, partition: int, log_partitions: Sequence[int]) -> str:
    """Return a sentence about the records of an offset that the history of it lacks; empty if it lacks none."""
    if not active_files(lake, "quarantine"):
        return ""
    rows = _quarantined(lake, log_partitions)
    own = [row for row in rows if tuple(row[name] for name in KEY) == (group_id, topic, partition)]
    batches = [row for row in rows if row["scope"] == "log_partition"]
    named = [f"{row['log_partition']}:{row['log_offset']}" for row in own[-_MAX_NAMED:]]
    parts = [f"{counted(len(own), 'record')} of it ({', '.join(named)})"] if own else []
    what = counted(len(batches), "batch or record", "batches or records")
    parts += [f"{what} without a readable key that may be about it"] if batches else []
    return "" if not parts else f"The history lacks {' and '.join(parts)}: they cannot be decoded (table quarantine)."


def _quarantined(lake: Lake, log_partitions: Sequence[int], condition: str = "true") -> list[dict[str, Any]]:
    """Return what quarantined records concern, of offsets or of log partitions, as `concerned`, the oldest first.

    `condition` is an SQL condition on the records.
    """
    numbers = ", ".join(map(str, log_partitions)) or "NULL"
    where = f"log_topic = {quoted(OFFSETS_TOPIC)} AND NOT coalesce(is_control, false) AND log_partition IN ({numbers})"
    where += f" AND {condition}"
    rows = lake.query(f"SELECT {_COLUMNS} FROM quarantine WHERE {where} ORDER BY log_offset", "quarantine")  # noqa: S608
    return [row for row in concerned(rows) if row["scope"] in ("offset", "log_partition")]


def _limits(lake: Lake, moment: int | LogPosition | None) -> Mapping[int, int]:
    """Return by log partition the log offset of the first record after the moment, which bounds batches."""
    if moment is None:
        return {}
    if isinstance(moment, LogPosition):
        return {moment.log_partition: moment.log_offset}
    sql = "SELECT log_partition, min(log_offset) AS first FROM offset_commits"
    rows = lake.query(f"{sql} WHERE log_timestamp > {moment} GROUP BY log_partition", "offset_commits").to_pylist()
    return {row["log_partition"]: row["first"] for row in rows}


def _reason(row: Mapping[str, Any]) -> str:
    what = "a batch" if row["scope"] == "log_partition" else "a record"
    return (
        f"{what} at log offset {row['log_offset']} of {row['log_topic']}-{row['log_partition']} could not be decoded "
        f"({row['reason']}), so the offset at that time is unknown: reset to a number"
    )
