"""Replays new records of `__share_group_state` on the rows of the table `share_partitions` of one log partition."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import pyarrow as pa

from offsetlake.rules.share_state import (
    UNKNOWN,
    DeliveryState,
    SharePartitionState,
    ShareSnapshot,
    ShareUpdate,
    StateBatch,
    replay,
)
from offsetlake.util.row_codes import among

Row = dict[str, Any]

SHARE_PARTITION = ("group_id", "topic_id", "partition")
_POSITION = ("log_partition", "log_offset", "log_timestamp")
_COUNTED_STATES = {
    "available_records": DeliveryState.AVAILABLE,
    "acknowledged_records": DeliveryState.ACKNOWLEDGED,
    "archived_records": DeliveryState.ARCHIVED,
}
_ROWS_AT_ONCE = 10_000
_MAX = 2**63 - 1  # of a column; a malformed log can contain batches with more records


def replay_share_partitions(records: pa.Table, stored: pa.Table) -> pa.Table:
    """Return the stored rows with the new records applied.

    Args:
        records: New rows of `share_state_records`.
        stored: Previous rows of `share_partitions`, at least those of the share partitions that have new records.
    """
    changed = among(stored, records, SHARE_PARTITION)
    former = {_key(row): row for row in stored.filter(pa.array(changed)).to_pylist()}
    ordered = records.sort_by([(name, "ascending") for name in (*SHARE_PARTITION, "log_offset")])
    rows = (row for batch in ordered.to_batches(max_chunksize=_ROWS_AT_ONCE) for row in batch.to_pylist())
    results = []
    for key, of_partition in groupby(rows, key=_key):
        row = replayed(former.get(key), of_partition)
        if row is not None:
            results.append(row)
    return pa.concat_tables([stored.filter(pa.array(~changed)), pa.Table.from_pylist(results, stored.schema)])


def replayed(stored: Row | None, records: Iterable[Row]) -> Row | None:
    """Return the row of `share_partitions` after rows of `share_state_records` in log order; None without a state.

    Args:
        stored: The row before these records; None if there is none.
        records: All new records of one share partition, at least one.
    """
    state = None if stored is None else _stored_state(stored)
    updated = None if stored is None else stored["updated_timestamp"]
    last: Row = {}
    for last in records:
        if state is None or last["kind"] == "update":
            updated = last["log_timestamp"]
        state = replay(state, share_record(last))
    return None if state is None else share_partition_row(state, last, updated)


def share_record(row: Row) -> ShareSnapshot | ShareUpdate | None:
    """Return the record of a row of `share_state_records`; None for a tombstone."""
    if row["kind"] == "tombstone":
        return None
    count = row["delivery_complete_count"]
    fields = {
        "snapshot_epoch": row["snapshot_epoch"],
        "leader_epoch": row["leader_epoch"],
        "start_offset": row["start_offset"],
        "batches": _batches(row),
        "delivery_complete_count": UNKNOWN if count is None else count,
    }
    if row["kind"] == "update":
        return ShareUpdate(**fields)
    times = {name: row[name] for name in ("create_timestamp", "write_timestamp")}
    return ShareSnapshot(state_epoch=row["state_epoch"], **fields, **times)


def share_partition_row(state: SharePartitionState, last: Row, updated_timestamp: int | None) -> Row:
    """Return the row of `share_partitions` of a state; `last` is the row of its newest record."""
    snapshot = state.snapshot
    start, end, count = (
        None if number == UNKNOWN else number
        for number in (snapshot.start_offset, state.end_offset, snapshot.delivery_complete_count)
    )
    numbers = {
        "start_offset": start,
        "end_offset": end,
        "in_flight_records": None if start is None or end is None else end - start,
        **{
            column: sum(batch.records for batch in snapshot.batches if batch.delivery_state == delivery_state)
            for column, delivery_state in _COUNTED_STATES.items()
        },
        "deliveries": sum(batch.records * max(batch.delivery_count, 0) for batch in snapshot.batches),
        "redelivered_records": sum(batch.records for batch in snapshot.batches if batch.delivery_count > 1),
    }
    return {
        **{name: last[name] for name in (*SHARE_PARTITION, *_POSITION)},
        **{name: None if number is None else min(number, _MAX) for name, number in numbers.items()},
        "snapshot_epoch": snapshot.snapshot_epoch,
        "state_epoch": snapshot.state_epoch,
        "leader_epoch": snapshot.leader_epoch,
        "delivery_complete_count": count,
        "max_delivery_count": max((batch.delivery_count for batch in snapshot.batches), default=0),
        "state_batches": [batch._asdict() for batch in snapshot.batches],
        "create_timestamp": snapshot.create_timestamp or None,
        "write_timestamp": snapshot.write_timestamp or None,
        "updated_timestamp": updated_timestamp,
    }


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in SHARE_PARTITION)


def _batches(row: Row) -> tuple[StateBatch, ...]:
    return tuple(StateBatch(**batch) for batch in row["state_batches"])


def _stored_state(row: Row) -> SharePartitionState:
    """Return the state of a row. The highest epochs, which matter to requests only, are those of the state."""
    start, count = (UNKNOWN if row[name] is None else row[name] for name in ("start_offset", "delivery_complete_count"))
    snapshot = ShareSnapshot(
        row["snapshot_epoch"],
        row["state_epoch"],
        row["leader_epoch"],
        start,
        _batches(row),
        count,
        row["create_timestamp"] or 0,
        row["write_timestamp"] or 0,
    )
    return SharePartitionState(snapshot, snapshot.state_epoch, snapshot.leader_epoch)
