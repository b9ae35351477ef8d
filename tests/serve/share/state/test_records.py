"""Records of share partitions are encoded and decoded as by Kafka's schemas."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlake.coordinator.share_state.requests import SharePartitionKey
from offsetlake.coordinator.share_state.stored_state import StoredState
from offsetlake.kafka.records.coordinator_records import SHARE_STATE_TOPIC, decode_record, encode_key
from offsetlake.rules.share_state import SharePartitionState, ShareSnapshot, ShareUpdate, StateBatch
from offsetlake.share.state.packed import packed, packed_key, unpacked
from offsetlake.share.state.records import decoded, encoded_value, record_type

TOPIC_ID = "0UpezRseR2unUk_C-KbOfg"


def integers(bits: int) -> st.SearchStrategy[int]:
    edge = 1 << (bits - 1)
    return st.integers(-edge, edge - 1)


BATCHES = st.lists(st.builds(StateBatch, integers(64), integers(64), integers(16), integers(8)), max_size=200).map(
    tuple
)
SNAPSHOTS = st.builds(
    ShareSnapshot,
    integers(32),
    integers(32),
    integers(32),
    integers(64),
    BATCHES,
    integers(32),
    integers(64),
    integers(64),
)
UPDATES = st.builds(ShareUpdate, integers(32), integers(32), integers(64), BATCHES, integers(32))


def by_schema(record: ShareSnapshot | ShareUpdate) -> dict[str, Any]:
    """Return the fields of a record as they are in its value."""
    fields = {
        "snapshotEpoch": record.snapshot_epoch,
        "leaderEpoch": record.leader_epoch,
        "startOffset": record.start_offset,
        "stateBatches": [
            {"firstOffset": first, "lastOffset": last, "deliveryState": state, "deliveryCount": count}
            for first, last, count, state in record.batches
        ],
    }
    if record.delivery_complete_count != -1:
        fields["deliveryCompleteCount"] = record.delivery_complete_count
    if isinstance(record, ShareSnapshot):
        fields["stateEpoch"] = record.state_epoch
        fields |= {"createTimestamp": record.create_timestamp, "writeTimestamp": record.write_timestamp}
    return fields


@given(SNAPSHOTS | UPDATES, st.text(max_size=20), integers(32))
@settings(max_examples=50)
def test_a_record_has_the_bytes_of_its_schema(record: ShareSnapshot | ShareUpdate, group: str, partition: int) -> None:
    key, value = record_type(record) + packed_key(SharePartitionKey(group, TOPIC_ID, partition)), encoded_value(record)
    assert value is not None
    fields = {"groupId": group, "topicId": TOPIC_ID, "partition": partition}
    assert key == encode_key(SHARE_STATE_TOPIC, isinstance(record, ShareUpdate), fields)
    assert decode_record(SHARE_STATE_TOPIC, key, value).value == by_schema(record)
    assert decoded(key, value) == record
    with_unknown_tag = value[:-1] + b"\1\5\0" if record.delivery_complete_count == -1 else value + b"bytes after it"
    assert decoded(key, with_unknown_tag) == record


@given(SNAPSHOTS, integers(32), integers(32), integers(32))
@settings(max_examples=50)
def test_a_packed_state_is_unpacked(snapshot: ShareSnapshot, state_epoch: int, leader_epoch: int, updates: int) -> None:
    stored = StoredState(SharePartitionState(snapshot, state_epoch, leader_epoch), updates)
    assert unpacked(packed(stored)) == stored
