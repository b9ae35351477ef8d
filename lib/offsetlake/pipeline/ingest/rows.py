"""Converts records other than offset commits, which are few, to rows of the history tables, one by one."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

Row = dict[str, Any]

# The columns of the fields of ShareSnapshotValue and ShareUpdateValue.
_SHARE_STATE = {
    "snapshotEpoch": "snapshot_epoch",
    "stateEpoch": "state_epoch",
    "leaderEpoch": "leader_epoch",
    "startOffset": "start_offset",
    "createTimestamp": "create_timestamp",
    "writeTimestamp": "write_timestamp",
    "deliveryCompleteCount": "delivery_complete_count",
}
_SNAPSHOT = 0
_BATCH = {
    "firstOffset": "first_offset",
    "lastOffset": "last_offset",
    "deliveryState": "delivery_state",
    "deliveryCount": "delivery_count",
}


def of_others(others: pa.RecordBatch, ingest_run: int) -> dict[str, list[Row]]:
    """Return the rows of `records.other_records` by their table, with the columns of that table."""
    tables: dict[str, list[Row]] = {table: [] for table in OF_OTHERS}
    for row in others.to_pylist():
        tables[row["kind"]].append(row | {"ingest_run": ingest_run} | OF_OTHERS[row["kind"]](row))
    return tables


def _unchanged(_row: Row) -> Row:
    return {}


def _group_record(row: Row) -> Row:
    key = json.loads(row["key"])
    return {
        "kind": "tombstone" if row["value"] is None else "value",
        "group_id": key.get("group", key.get("groupId")),
        "member_id": key.get("memberId"),
    }


def _share_state_record(row: Row) -> Row:
    key, value = json.loads(row["key"]), json.loads(row["value"] or "{}")
    kind = "tombstone" if not value else "snapshot" if row["record_type"] == _SNAPSHOT else "update"
    batches = [{_BATCH[field]: number for field, number in batch.items()} for batch in value.get("stateBatches", ())]
    return {
        "kind": kind,
        "group_id": key["groupId"],
        "topic_id": key["topicId"],
        "partition": key["partition"],
        "state_batches": batches if value else None,
        **{column: value.get(field) for field, column in _SHARE_STATE.items()},
    }


OF_OTHERS: dict[str, Callable[[Row], Row]] = {
    "transaction_markers": _unchanged,
    "group_records": _group_record,
    "share_state_records": _share_state_record,
    "quarantine": _unchanged,
}
"""The columns that are computed from a row, for each history table except `offset_commits`."""
