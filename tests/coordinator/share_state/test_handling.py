"""Requests for the state of a share partition: results, records, and when a snapshot is due."""

from collections.abc import Sequence

import pytest

from offsetlake.coordinator.share_state.handling import Handling, cold_snapshot
from offsetlake.coordinator.share_state.requests import (
    DeleteRequest,
    InitializeRequest,
    ReadRequest,
    SharePartitionKey,
    SummaryRequest,
    WriteRequest,
)
from offsetlake.coordinator.share_state.stored_state import Record, StoredState, replayed
from offsetlake.rules.share_state import ShareSnapshot, ShareUpdate, StateBatch

KEY = SharePartitionKey("g", "0UpezRseR2unUk_C-KbOfg", 0)
NOW = 1_000
ACKNOWLEDGED = 2


def handling(updates_per_snapshot: int = 500, *, exists: bool = True) -> Handling:
    return Handling(lambda _key: exists, updates_per_snapshot, NOW)


def after(stored: StoredState | None, records: Sequence[Record], updates_per_snapshot: int = 500) -> StoredState | None:
    for record in records:
        stored = replayed(stored, record, updates_per_snapshot)
    return stored


def initialized(start_offset: int = 0, state_epoch: int = 3, updates_per_snapshot: int = 500) -> StoredState:
    outcome = handling().initialize(None, InitializeRequest(KEY, state_epoch, start_offset))
    stored = after(None, outcome.records, updates_per_snapshot)
    assert stored is not None
    return stored


def write(first: int, last: int, **fields: int) -> WriteRequest:
    values = {"state_epoch": 3, "leader_epoch": 0, "start_offset": -1} | fields
    return WriteRequest(KEY, batches=(StateBatch(first, last, 1, ACKNOWLEDGED),), **values)


def test_a_new_state_has_the_epoch_and_the_start_offset_of_the_request() -> None:
    outcome = handling().initialize(None, InitializeRequest(KEY, 3, 7))
    assert outcome.records == (ShareSnapshot(0, 3, 0, 7, (), -1, NOW, NOW),)
    again = handling().initialize(initialized(), InitializeRequest(KEY, 4, 9))
    assert again.records == (ShareSnapshot(1, 4, 0, 9, (), -1, NOW, NOW),)


def test_a_write_is_an_update_with_the_stored_leader_epoch() -> None:
    outcome = handling().write(initialized(), write(5, 9, leader_epoch=8, start_offset=5, delivery_complete_count=5))
    assert outcome.records == (ShareUpdate(0, 0, 5, (StateBatch(5, 9, 1, ACKNOWLEDGED),), 5),)


@pytest.mark.parametrize(("limit", "first_snapshot"), [(0, 0), (1, 2), (3, 4)])
def test_a_snapshot_follows_a_number_of_updates(limit: int, first_snapshot: int) -> None:
    """A coordinator of Kafka 4.2.0 does not count the first update after the state was initialized."""
    stored: StoredState | None = initialized(updates_per_snapshot=limit)
    kinds = []
    for number in range(3 * (limit + 1) + 1):
        (record,) = handling(limit).write(stored, write(10 * number, 10 * number + 5)).records
        kinds.append(isinstance(record, ShareSnapshot))
        stored = after(stored, [record], limit)
    expected = [
        number >= first_snapshot and (number - first_snapshot) % (limit + 1) == 0 for number in range(len(kinds))
    ]
    assert kinds == expected
    assert stored is not None
    assert len(stored.state.snapshot.batches) == len(kinds)


def test_a_read_writes_a_new_leader_epoch() -> None:
    stored = initialized(7)
    assert handling().read(stored, ReadRequest(KEY, 0)).records == ()
    outcome = handling().read(stored, ReadRequest(KEY, 5))
    assert outcome.records == (ShareUpdate(0, 5, 7, (), -1),)
    fenced = handling().read(after(stored, outcome.records), ReadRequest(KEY, 4))
    assert (fenced.result.error_code, fenced.records) == (74, ())


def test_a_deletion_is_a_tombstone() -> None:
    assert handling().delete(initialized(), DeleteRequest(KEY)).records == (None,)
    assert handling().delete(None, DeleteRequest(KEY)).records == ()


def test_errors_are_found_in_the_order_of_a_broker() -> None:
    negative = SharePartitionKey(KEY.group_id, KEY.topic_id, -1)
    unknown, known = handling(exists=False), handling()
    stored = after(initialized(), [ShareUpdate(0, 5, 7)])
    assert [
        unknown.write(None, WriteRequest(negative, 0, 0, 0)).result.error_code,
        unknown.write(None, write(0, 1)).result.error_code,
        unknown.write(stored, write(0, 1, leader_epoch=4, state_epoch=2)).result.error_code,
        unknown.write(stored, write(0, 1, leader_epoch=5, state_epoch=2)).result.error_code,
        unknown.write(stored, write(0, 1, leader_epoch=5)).result.error_code,
        known.write(stored, write(0, 1, leader_epoch=-1, state_epoch=-1)).result.error_code,
    ] == [42, 42, 74, 124, 3, 0]
    assert [
        unknown.read(None, ReadRequest(KEY, 0)).result.error_code,
        unknown.read(stored, ReadRequest(KEY, 4)).result.error_code,
        known.read(stored, ReadRequest(KEY, -1)).result.error_code,
        unknown.read(stored, ReadRequest(KEY, 5)).result.error_code,
    ] == [42, 74, 74, 3]
    assert unknown.initialize(stored, InitializeRequest(KEY, 2, 0)).result.error_code == 124
    assert unknown.initialize(stored, InitializeRequest(KEY, 3, 0)).result.error_code == 3
    assert unknown.summary(None, SummaryRequest(KEY)).result.error_code == 3
    assert unknown.delete(None, DeleteRequest(KEY)).result.error_code == 3


def test_the_summary_of_a_missing_state_has_no_start_offset() -> None:
    result = handling().summary(None, SummaryRequest(KEY)).result
    assert (result.error_code, result.start_offset, result.delivery_complete_count) == (0, -1, -1)


def test_a_cold_snapshot_keeps_when_the_state_was_created() -> None:
    stored = initialized()
    snapshot = cold_snapshot(stored, NOW + 5)
    assert snapshot == ShareSnapshot(1, 3, 0, 0, (), -1, NOW, NOW + 5)
