"""Descriptions of consumer groups, with the fields of ConsumerGroupDescribe."""

from typing import Any

from offsetlake.coordinator.consumer.assignment import target
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.member import ConsumerMember
from offsetlake.coordinator.epoch_groups.assignment import NO_TARGET
from offsetlake.coordinator.epoch_groups.describe import NameOf, named
from offsetlake.coordinator.settings import CoordinatorSettings


def describe(group: ConsumerGroup, name_of: NameOf, settings: CoordinatorSettings) -> dict[str, Any]:
    """Return the fields of a DescribedGroup without the authorized operations."""
    return {
        "group_id": group.group_id,
        "group_state": group.state_name(),
        "group_epoch": group.state.epoch,
        "assignment_epoch": group.state.assignment_epoch,
        "assignor_name": target.preferred_assignor(group, settings),
        "members": [_described_member(group, member, name_of) for member in group.members()],
    }


def _described_member(group: ConsumerGroup, member: ConsumerMember, name_of: NameOf) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.metadata["rackId"],
        "member_epoch": member.epoch,
        "client_id": member.metadata["clientId"],
        "client_host": member.metadata["clientHost"],
        "subscribed_topic_names": member.topics,
        "subscribed_topic_regex": member.metadata["subscribedTopicRegex"],
        "assignment": named(member.assigned, name_of),
        "target_assignment": named(group.targets.get(member.member_id, NO_TARGET), name_of),
        "member_type": 0 if member.uses_classic_protocol else 1,
    }
