"""Share partitions and their states as bytes, so that a million of them fit into 300 MB.

A key is the key of a record without its type. A state has about 60 bytes, and 19 bytes for each batch.
"""

import struct
from functools import lru_cache

from offsetlake.coordinator.share_state.requests import SharePartitionKey
from offsetlake.coordinator.share_state.stored_state import StoredState
from offsetlake.kafka.placement import partition_for_share_partition
from offsetlake.kafka.records.writers import encoded_string
from offsetlake.kafka.uuid import uuid_bytes
from offsetlake.log.positions import SHARE_STATE_PARTITIONS
from offsetlake.rules.share_state import SharePartitionState, ShareSnapshot, StateBatch

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_HEAD = struct.Struct(">iiiqiqqiii")
_BATCH = struct.Struct(">qqhb")
_CREATED_AND_WRITTEN, _TIMES_POSITION = struct.Struct(">qq"), 24
_TOPIC_ID_BYTES = 16
_KEPT_PLACES = 10_000  # about 5 MB


def packed_key(key: SharePartitionKey) -> bytes:
    """Return the key of a share partition.

    Raises:
        ValueError: The group id is too long, or the topic id is not a UUID.
    """
    return encoded_string(key.group_id) + uuid_bytes(key.topic_id) + _INT32.pack(key.partition)


@lru_cache(_KEPT_PLACES)
def placed(key: SharePartitionKey) -> tuple[int, bytes]:
    """Return the log partition of a share partition, and its packed key.

    Raises:
        ValueError: The group id is too long, or the topic id is not a UUID.
    """
    return partition_for_share_partition(*key, SHARE_STATE_PARTITIONS), packed_key(key)


def unpacked_partition(key: bytes) -> tuple[bytes, bytes, int] | None:
    """Return group id, topic id and partition of a key; None if the key is malformed."""
    if len(key) < _INT16.size:
        return None
    end = _INT16.size + _INT16.unpack_from(key)[0]
    if end < _INT16.size or len(key) < end + _TOPIC_ID_BYTES + _INT32.size:
        return None
    topic_end = end + _TOPIC_ID_BYTES
    return key[_INT16.size : end], key[end:topic_end], _INT32.unpack_from(key, topic_end)[0]


def topic_id_of(key: bytes) -> bytes:
    """Return the topic id in a key."""
    return key[-_TOPIC_ID_BYTES - _INT32.size : -_INT32.size]


def packed(stored: StoredState) -> bytes:
    """Return a state as bytes."""
    state, snapshot = stored.state, stored.state.snapshot
    head = _HEAD.pack(
        snapshot.snapshot_epoch,
        snapshot.state_epoch,
        snapshot.leader_epoch,
        snapshot.start_offset,
        snapshot.delivery_complete_count,
        snapshot.create_timestamp,
        snapshot.write_timestamp,
        state.highest_state_epoch,
        state.highest_leader_epoch,
        stored.updates,
    )
    return head + b"".join(_BATCH.pack(*batch) for batch in snapshot.batches) if snapshot.batches else head


def unpacked(data: bytes) -> StoredState:
    """Return the state that `packed` returned as bytes."""
    epoch, state_epoch, leader_epoch, start, complete, created, written, *highest, updates = _HEAD.unpack_from(data)
    batches = tuple(map(StateBatch._make, _BATCH.iter_unpack(data[_HEAD.size :])))
    snapshot = ShareSnapshot(epoch, state_epoch, leader_epoch, start, batches, complete, created, written)
    return StoredState(SharePartitionState(snapshot, *highest), updates)


def times_of(data: bytes) -> tuple[int, int]:
    """Return when the last snapshot was created and when it was written, in ms since the epoch."""
    created, written = _CREATED_AND_WRITTEN.unpack_from(data, _TIMES_POSITION)
    return created, written
