"""Small lakes with given rows, written without Spark."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from offsetlake.lake.definitions import STATE
from offsetlake.lake.delta.commits import ours
from offsetlake.lake.lake import Lake
from support.lakes import new_lake
from support.oracle.log_reader import LogRecord
from support.oracle.replay import replay

Row = Mapping[str, Any]

_DEFAULTS: dict[str, Row] = {
    "offset_commits": {"ingest_run": 1, "record_type": 1, "superseded": False, "log_partition": 0},
    "transaction_markers": {"ingest_run": 1, "producer_epoch": 0, "coordinator_epoch": 0, "log_partition": 0},
    "log_ends": {"start_offset": 0},
    "audit_events": {"ingest_run": 1, "log_partition": 0, "group_id": "g", "what": "commit", "principal": "User:alice"},
    "offsets": {"metadata": "", "commit_timestamp": 0, "record_type": 1, "value_version": 3, "log_partition": 0},
    "groups": {
        "group_type": "classic", "state": "Empty", "subscription": "none", "subscribed_topics": [], "member_count": 0,
        "log_partition": 0,
    },
    "pending_offsets": {
        "metadata": "", "commit_timestamp": 0, "record_type": 1, "producer_epoch": 0, "log_partition": 0,
    },
    "group_records": {"ingest_run": 1, "log_partition": 0, "key": "{}", "record_type": 2},
    "tombstones": {"log_partition": 0, "judged_timestamp": 0},
    "alterations": {"log_partition": 0, "commit_timestamp": 0},
    "runs": {"outcome": "done", "counts": [], "notes": []},
    "group_members": {"log_partition": 0},
    "history_cuts": {},
    "share_state_records": {"ingest_run": 1, "log_partition": 0},
    "share_partitions": {
        "group_id": "share", "topic_id": "AAAAAAAAAAAAAAAAAAAAAA", "snapshot_epoch": 0, "state_epoch": 0,
        "leader_epoch": 0, "available_records": 0, "acknowledged_records": 0, "archived_records": 0, "deliveries": 0,
        "redelivered_records": 0, "max_delivery_count": 0, "state_batches": [], "log_partition": 0,
    },
    "unresolved_records": {"log_topic": "__consumer_offsets", "log_partition": 0},
    "quarantine": {"ingest_run": 1, "log_topic": "__consumer_offsets", "log_partition": 0},
}  # fmt: skip


def small_lake(path: Path, **tables: Iterable[Row]) -> Lake:
    """A new lake with these rows; what a row does not say is null, or a plain value where null is not allowed."""
    lake = new_lake(path)
    for table, rows in tables.items():
        schema = pa.schema(DeltaTable(lake.table_location(table).path).schema().to_arrow())
        full = [{**dict.fromkeys(schema.names), **_DEFAULTS[table], **row} for row in rows]
        # A file of a state table contains rows of one log partition.
        partitions = sorted({row["log_partition"] for row in full}) if table in STATE else [None]
        for partition in partitions:
            of_file = [row for row in full if partition is None or row["log_partition"] == partition]
            if of_file:
                write_deltalake(
                    lake.table_location(table).path,
                    pa.Table.from_pylist(of_file, schema=schema),
                    mode="append",
                    commit_properties=ours("test", 1),
                )
    return lake


def commit(log_offset: int, committed_offset: int, producer_id: int | None = None, **others: Any) -> Row:
    """A row of `offset_commits`, of group g, topic t, partition 0 unless it says otherwise."""
    value = {"committed_offset": committed_offset, "metadata": "", "commit_timestamp": 0, "value_version": 3}
    return {**_record(log_offset, producer_id), "kind": "commit", **value, **others}


def tombstone(log_offset: int, **others: Any) -> Row:
    """A tombstone's row of `offset_commits`."""
    return {**_record(log_offset, None), "kind": "tombstone", **others}


def marker(log_offset: int, kind: str, producer_id: int, **others: Any) -> Row:
    """A row of `transaction_markers`."""
    times = {"log_offset": log_offset, "log_timestamp": log_offset}
    return {**times, "marker": kind, "producer_id": producer_id, **others}


def end(ingest_run: int, end_offset: int, **others: Any) -> Row:
    """A row of `log_ends`, of topic t, partition 0, asked 1000 ms an ingest run since the epoch unless it says else."""
    key = {"topic": "t", "partition": 0}
    return {**key, "ingest_run": ingest_run, "end_offset": end_offset, "asked_timestamp": 1000 * ingest_run, **others}


def _record(log_offset: int, producer_id: int | None) -> dict[str, Any]:
    key = {"group_id": "g", "topic": "t", "partition": 0}
    epoch = None if producer_id is None else 0
    times = {"log_offset": log_offset, "log_timestamp": log_offset}  # the clock stands at the log offset
    return {**key, **times, "producer_id": producer_id, "producer_epoch": epoch}


def history_of(records: Iterable[LogRecord]) -> dict[str, list[Row]]:
    """The history tables of a log, by way of the oracle's own decoding."""
    state = replay(records)
    commits = []
    for entry in state.history:
        record, (group_id, topic, partition) = entry.record, entry.key
        value = {} if entry.commit is None else {
            name: getattr(entry.commit, name)
            for name in (
                "committed_offset", "leader_epoch", "metadata", "commit_timestamp", "expire_timestamp", "topic_id",
            )
        }  # fmt: skip
        commits.append(
            {
                "group_id": group_id,
                "topic": topic,
                "partition": partition,
                "kind": entry.kind,
                "log_partition": record.log_partition,
                "log_offset": record.log_offset,
                "log_timestamp": _or_none(record.log_timestamp),
                "record_type": entry.key_type,
                "value_version": entry.value_version,
                "producer_id": _or_none(record.producer_id),
                "producer_epoch": None if record.producer_id == -1 else record.producer_epoch,
                "commit_id": entry.commit_id,
                "commit_size": entry.commit_size,
                **value,
            }
        )
    markers = [
        {**each._asdict(), "marker": each.kind, "log_timestamp": _or_none(each.log_timestamp)} for each in state.markers
    ]
    for row in markers:
        del row["kind"]
    return {"offset_commits": commits, "transaction_markers": markers}


def _or_none(value: int) -> int | None:
    return None if value == -1 else value
