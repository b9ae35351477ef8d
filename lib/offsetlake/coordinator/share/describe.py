"""Descriptions of share groups, with the fields of ShareGroupDescribe."""

from typing import Any

from offsetlake.coordinator.epoch_groups.describe import NameOf, named
from offsetlake.coordinator.share.group import ShareGroup

ASSIGNOR = "simple"
"""The only assignor of a broker."""


def describe(group: ShareGroup, name_of: NameOf) -> dict[str, Any]:
    """Return the fields of a DescribedGroup without the authorized operations."""
    return {
        "group_id": group.group_id,
        "group_state": group.state.state_name(),
        "group_epoch": group.state.epoch,
        "assignment_epoch": group.state.assignment_epoch,
        "assignor_name": ASSIGNOR,
        "members": [
            {
                "member_id": member.member_id,
                "rack_id": member.metadata["rackId"],
                "member_epoch": member.epoch,
                "client_id": member.metadata["clientId"],
                "client_host": member.metadata["clientHost"],
                "subscribed_topic_names": member.topics,
                "assignment": named(member.assigned, name_of),
            }
            for member in group.members()
        ],
    }
