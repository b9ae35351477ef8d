"""Descriptions of assignments, as ConsumerGroupDescribe and ShareGroupDescribe have them."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from offsetlake.coordinator.epoch_groups.assignment import Assignment, Target
from offsetlake.kafka.uuid import uuid_bytes

NameOf = Callable[[str], str | None]
"""Returns the name of the topic with an id, None if it does not exist."""


def named(assignment: Assignment | Target, name_of: NameOf) -> dict[str, Any]:
    """Return an assignment with the fields of a description, without topics that do not exist."""
    names = {topic_id: name_of(topic_id) for topic_id in sorted(assignment)}
    return {
        "topic_partitions": [
            {
                "topic_id": UUID(bytes=uuid_bytes(topic_id)),
                "topic_name": name,
                "partitions": sorted(assignment[topic_id]),
            }
            for topic_id, name in names.items()
            if name is not None
        ]
    }
