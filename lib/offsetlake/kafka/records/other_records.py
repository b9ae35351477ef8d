"""All that is no offset commit, decoded record by record: markers, group and share records, the undecodable.

These are few beside the commits; their values go on as JSON, as Kafka's own tools print them.
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
    ]
)

_MARKERS = {0: "ABORT", 1: "COMMIT"}


def decode_others(
    topic: str,
    others: Records,
    corrupt: Sequence[CorruptRegion],
    commits: Records,
    undecodable: Mapping[int, str],
) -> pa.RecordBatch:
    """Decode every record of a chunk that is no offset commit; quarantine those of `commits` that are undecodable.

    | column                    | type         | is |
    |---------------------------|--------------|----|
    | log_offset, log_timestamp | int64        | timestamp in ms, null where the batch has none |
    | kind                      | string       | the table it belongs to, such as `group_records` or `quarantine` |
    | record_type, record_name  | int32, string | what the key says it is |
    | key, value                | string       | JSON; a null value is a tombstone |
    | value_version             | int32        | |
    | producer_id, _epoch       | int64, int32 | null = none |
    | marker, coordinator_epoch | string, int32 | `COMMIT` or `ABORT`, of markers |
    | reason                    | string       | why a record is in quarantine |
    | key_bytes, value_bytes    | binary       | of quarantined records; a corrupt batch is in value_bytes |

    Kinds: `transaction_markers`, `group_records`, `share_state_records`, `quarantine`.
    """
    rows = [_corrupt_row(region) for region in corrupt]
    rows += [_quarantined(commits, row, reason) for row, reason in sorted(undecodable.items())]
    rows += [row for at in range(len(others)) if (row := _decoded(topic, others, at))]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def _corrupt_row(region: CorruptRegion) -> dict[str, Any]:
    return {
        "log_offset": region.log_offset,
        "kind": "quarantine",
        "reason": region.reason,
        "value_bytes": region.data,
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
    }


def _decoded(topic: str, records: Records, row: int) -> dict[str, Any] | None:
    if records.control[row]:
        return _marker(records, row)
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


def _marker(records: Records, row: int) -> dict[str, Any] | None:
    """Read an end-of-transaction marker; control records of other types end no transaction and are passed over."""
    key, value = records.key(row) or b"", records.value(row) or b""
    if len(key) < 4 or (len(value) < 6 and struct.unpack_from(">h", key, 2)[0] in _MARKERS):
        return _quarantined(records, row, "the control record is cut off")
    marker = _MARKERS.get(struct.unpack_from(">h", key, 2)[0])
    if marker is None:
        return None
    return _envelope(records, row, "transaction_markers") | {
        "marker": marker,
        "coordinator_epoch": struct.unpack_from(">i", value, 2)[0],
    }
