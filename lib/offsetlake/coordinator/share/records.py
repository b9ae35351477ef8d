"""Constructors of the records of a share group, as a broker of version 4.2 writes them."""

from offsetlake.coordinator.epoch_groups.records import ModernRecords
from offsetlake.kafka.records.coordinator_records import OffsetsRecordType as Type

RECORDS = ModernRecords(
    metadata_type=Type.SHARE_GROUP_MEMBER_METADATA,
    current_type=Type.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    target_type=Type.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
    group_epoch_type=Type.SHARE_GROUP_METADATA,
    assignment_epoch_type=Type.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
)
