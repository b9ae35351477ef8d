"""Constructors of the records of a consumer group, as a broker of version 4.2 writes them."""

from collections.abc import Iterable

from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.record_types import RECORDS
from offsetlake.coordinator.epoch_groups.member import Value
from offsetlake.coordinator.epoch_groups.records import of_group
from offsetlake.coordinator.steps import Record
from offsetlake.kafka.records.coordinator_records import OffsetsRecordType as Type
from offsetlake.kafka.records.group_tombstones import GROUP_TOMBSTONE_TYPES

member_metadata = RECORDS.member_metadata
current_assignment = RECORDS.current_assignment
target_assignment = RECORDS.target_assignment
group_epoch = RECORDS.group_epoch
assignment_epoch = RECORDS.assignment_epoch
no_member = RECORDS.no_member


def no_partition_metadata(group_id: str) -> Record:
    """Return the tombstone of the metadata of partitions, which brokers wrote before version 4.1."""
    return of_group(Type.CONSUMER_GROUP_PARTITION_METADATA, group_id, None)


def regex(group_id: str, expression: str, topics: Iterable[str], version: int, timestamp: int) -> Record:
    """Return the record of the topics that a regular expression matches."""
    value = {"topics": sorted(topics), "version": version, "timestamp": timestamp}
    return _of_regex(group_id, expression, value)


def no_regex(group_id: str, expression: str) -> Record:
    """Return the tombstone of a regular expression."""
    return _of_regex(group_id, expression, None)


def no_group(group: ConsumerGroup, member_ids: Iterable[str]) -> list[Record]:
    """Return the tombstones that delete a group with members, in a broker's order."""
    ids, group_id = list(member_ids), group.group_id
    assignment_epoch, *others = GROUP_TOMBSTONE_TYPES["consumer"]
    return [
        *RECORDS.no_members(Type.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, group_id, ids),
        *RECORDS.no_members(Type.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, group_id, ids),
        of_group(assignment_epoch, group_id, None),
        *RECORDS.no_members(Type.CONSUMER_GROUP_MEMBER_METADATA, group_id, ids),
        *(no_regex(group_id, expression) for expression in group.state.regexes),
        *(of_group(record_type, group_id, None) for record_type in others),
    ]


def _of_regex(group_id: str, expression: str, value: Value | None) -> Record:
    key = {"groupId": group_id, "regularExpression": expression}
    return Record(Type.CONSUMER_GROUP_REGULAR_EXPRESSION, key, value)
