"""Encodes the keys and values of offset commits, one at a time."""

import struct

from offsetlake.kafka.records.coordinator_records import OffsetsRecordType
from offsetlake.kafka.records.writers import unsigned_varint
from offsetlake.kafka.uuid import ZERO_UUID

_INT16, _INT64, _INT64_INT64 = (struct.Struct(f">{layout}") for layout in ("h", "q", "qq"))
_TYPE_AND_LENGTH = struct.Struct(">hh")
_VALUE_1, _VALUE_3, _VALUE_4 = (struct.Struct(f">{layout}") for layout in ("hqh", "hqih", "hqi"))  # up to the metadata
_TOPIC_ID_VERSION = 4
_TOPIC_ID_TAG = bytes([1, 0, 16])  # one tagged field: tag 0, the topic ID, 16 bytes


def offset_commit_key(group: bytes, topic: bytes) -> bytes:
    """Return the OffsetCommitKey of a topic's offsets without the partition, which is the int32 at its end.

    `group` and `topic` are UTF-8 of at most MAX_STRING bytes each.
    """
    head = _TYPE_AND_LENGTH.pack(OffsetsRecordType.OFFSET_COMMIT, len(group))
    return b"".join((head, group, _INT16.pack(len(topic)), topic))


def offset_commit_value(
    offset: int, leader_epoch: int, metadata: bytes, commit_timestamp: int, expire_timestamp: int, topic_id: bytes
) -> bytes:
    """Return an OffsetCommitValue in the oldest version that can represent the fields.

    A value with an expiry has version 1, which has neither a leader epoch nor a topic ID.

    Args:
        offset: The committed offset.
        leader_epoch: The leader epoch of the offset; -1 if it is unknown.
        metadata: The metadata, as UTF-8.
        commit_timestamp: Milliseconds since the epoch.
        expire_timestamp: Milliseconds since the epoch; -1 for no expiry.
        topic_id: 16 bytes; ZERO_UUID if it is unknown.
    """
    if expire_timestamp >= 0:
        times = _INT64_INT64.pack(commit_timestamp, expire_timestamp)
        return b"".join((_VALUE_1.pack(1, offset, len(metadata)), metadata, times))
    if topic_id == ZERO_UUID:
        return b"".join(
            (_VALUE_3.pack(3, offset, leader_epoch, len(metadata)), metadata, _INT64.pack(commit_timestamp))
        )
    head, length = _VALUE_4.pack(_TOPIC_ID_VERSION, offset, leader_epoch), unsigned_varint(len(metadata) + 1)
    return b"".join((head, length, metadata, _INT64.pack(commit_timestamp), _TOPIC_ID_TAG, topic_id))


OFFSET_IN_VALUE = 2
"""Position of the committed offset in a value of any version."""


def timestamp_in_value(value: bytes) -> int:
    """Return the position of the commit timestamp in an OffsetCommitValue that has no expiry."""
    tags = len(_TOPIC_ID_TAG) + len(ZERO_UUID) if value[1] == _TOPIC_ID_VERSION else 0
    return len(value) - tags - _INT64.size
