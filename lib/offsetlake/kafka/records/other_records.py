"""Decodes records that are not offset commits: transaction markers, group records, share records, quarantined ones.

They are few compared to the commits, so they are decoded one by one, into the JSON that Kafka's tools print.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from offsetlake.errors import UndecodableRecord
from offsetlake.kafka.batches.reader import CorruptRegion, Records
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC, decode_record, to_json

SCHEMA = pa.schema(
    [
        ("log_offset", pa.int64()),
        ("log_timestamp", pa.int64()),
        ("kind", pa.string()),
        ("record_type", pa.int32()),
        ("record_name", pa.string()),
        ("key", pa.string()),
        ("value", pa.string()),
        ("value_version", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("marker", pa.string()),
        ("coordinator_epoch", pa.int32()),
        ("reason", pa.string()),
        ("key_bytes", pa.binary()),
        ("value_bytes", pa.binary()),
        ("is_control", pa.bool_()),
    ]
)

_MARKERS = {0: "ABORT", 1: "COMMIT"}
_NO_MARKERS = range(2, 7)  # control records of metadata logs (`ControlRecordType`)
UNKNOWN_MARKER = "UNKNOWN"
"""The marker of a control record that cannot be read: it may have ended the transaction of its producer."""


def decode_others(
    topic: str,
    others: Records,
    corrupt: Sequence[CorruptRegion],
    commits: Records,
    undecodable: Mapping[int, str],
) -> pa.RecordBatch:
    """Decode the records of a chunk that are not offset commits, and return the quarantined rows of the chunk.

    Args:
        topic: The topic of the log.
        others: The records that are not offset commits.
        corrupt: The corrupt regions of the chunk.
        commits: The offset commits of the chunk.
        undecodable: {row of `commits`: reason} for the undecodable ones.

    The kinds are `transaction_markers`, `group_records`, `share_state_records` and `quarantine`.

    | Column                    | Type          | Description |
    |---------------------------|---------------|-------------|
    | log_offset, log_timestamp | int64         | The timestamp is in ms since the epoch; null if the batch has none |
    | kind                      | string        | The table that the row belongs to |
    | record_type, record_name  | int32, string | The record type in the key and its name |
    | key, value                | string        | JSON; a null value is a tombstone |
    | value_version             | int32         | |
    | producer_id, _epoch       | int64, int32  | null = none |
    | marker, coordinator_epoch | string, int32 | For markers: `COMMIT`, `ABORT` or UNKNOWN_MARKER |
    | reason                    | string        | Why the record is quarantined |
    | key_bytes, value_bytes    | binary        | For quarantined records; the value is a corrupt batch |
    | is_control                | bool          | For quarantined records: whether it is a control record |
    """
    rows = [_corrupt_row(region) for region in corrupt]
    rows += [_quarantined(commits, row, reason) for row, reason in sorted(undecodable.items())]
    for row in range(len(others)):
        rows += _control_rows(others, row) if others.control[row] else [_decoded(topic, others, row)]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def _corrupt_row(region: CorruptRegion) -> dict[str, Any]:
    return {
        "log_offset": region.log_offset,
        "kind": "quarantine",
        "reason": region.reason,
        "value_bytes": region.data,
        "is_control": False,
    }


def _envelope(records: Records, row: int, kind: str) -> dict[str, Any]:
    timestamp, producer = int(records.log_timestamp[row]), int(records.producer_id[row])
    return {
        "log_offset": int(records.log_offset[row]),
        "log_timestamp": None if timestamp == -1 else timestamp,
        "kind": kind,
        "producer_id": None if producer == -1 else producer,
        "producer_epoch": None if producer == -1 else int(records.producer_epoch[row]),
    }


def _quarantined(records: Records, row: int, reason: str) -> dict[str, Any]:
    return _envelope(records, row, "quarantine") | {
        "reason": reason,
        "key_bytes": records.key(row),
        "value_bytes": records.value(row),
        "is_control": bool(records.control[row]),
    }


def _decoded(topic: str, records: Records, row: int) -> dict[str, Any]:
    try:
        record = decode_record(topic, records.key(row), records.value(row))
    except UndecodableRecord as error:
        return _quarantined(records, row, str(error))
    kind = "group_records" if topic == OFFSETS_TOPIC else "share_state_records"
    return _envelope(records, row, kind) | {
        "record_type": record.record_type,
        "record_name": record.name,
        "key": to_json(record.key),
        "value": None if record.value is None else to_json(record.value),
        "value_version": record.value_version,
    }


def _control_rows(records: Records, row: int) -> list[dict[str, Any]]:
    """Return the row of a transaction marker; none for other control records without a producer.

    A control record that cannot be read is quarantined. It may have ended the transaction of its producer, so it is
    also a marker with an unknown result.
    """
    key, value = records.key(row) or b"", records.value(row) or b""
    control_type = struct.unpack_from(">h", key, 2)[0] if len(key) >= 4 else None
    if control_type in _NO_MARKERS:
        return []
    if control_type in _MARKERS and len(value) >= 6:
        return [_marker(records, row, _MARKERS[control_type], struct.unpack_from(">i", value, 2)[0])]
    if control_type is not None and control_type not in _MARKERS and records.producer_id[row] == -1:
        return []  # it ends no transaction
    known = control_type is None or control_type in _MARKERS
    reason = "the control record is truncated" if known else f"the control record type {control_type} is unknown"
    unknown = [_marker(records, row, UNKNOWN_MARKER, None)] if records.producer_id[row] != -1 else []
    return [_quarantined(records, row, reason), *unknown]


def _marker(records: Records, row: int, marker: str, coordinator_epoch: int | None) -> dict[str, Any]:
    return _envelope(records, row, "transaction_markers") | {"marker": marker, "coordinator_epoch": coordinator_epoch}
