"""The tombstones that delete a group without members."""

import struct

from offsetlake.kafka.records.coordinator_records import OffsetsRecordType
from offsetlake.kafka.records.writers import encoded_string

_INT16 = struct.Struct(">h")

GROUP_TOMBSTONE_TYPES = {
    "classic": (OffsetsRecordType.GROUP_METADATA,),
    "consumer": (
        OffsetsRecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
        OffsetsRecordType.CONSUMER_GROUP_PARTITION_METADATA,
        OffsetsRecordType.CONSUMER_GROUP_METADATA,
    ),
    "share": (
        OffsetsRecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
        OffsetsRecordType.SHARE_GROUP_STATE_PARTITION_METADATA,
        OffsetsRecordType.SHARE_GROUP_METADATA,
    ),
    "streams": (
        OffsetsRecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
        OffsetsRecordType.STREAMS_GROUP_METADATA,
        OffsetsRecordType.STREAMS_GROUP_TOPOLOGY,
    ),
}
"""The record types for which Kafka's group coordinator writes a tombstone, in its order, by group type."""


def group_tombstone_keys(group_id: str, group_type: str) -> list[bytes]:
    """Return the keys of the tombstones that delete a group without members, in a coordinator's order.

    Those of a share group must follow the deletion of its states in `__share_group_state`.

    Args:
        group_id: The ID of the group.
        group_type: `classic` (which includes simple groups), `consumer`, `share` or `streams`.

    Raises:
        ValueError: The ID is too long.
    """
    name = encoded_string(group_id)
    return [_INT16.pack(record_type) + name for record_type in GROUP_TOMBSTONE_TYPES[group_type]]
