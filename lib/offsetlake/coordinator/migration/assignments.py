"""Assignments of the classic protocol, by topic names, and of the consumer protocol, by topic IDs."""

from collections.abc import Iterable, Mapping
from typing import Any

from offsetlake.coordinator.epoch_groups.assignment import Assignment, Target, set_order_of
from offsetlake.coordinator.hash_order import hash_order, topic_id_hash_code
from offsetlake.coordinator.topics import TopicDescriptions
from offsetlake.kafka.records.consumer_protocol import encode_assignment


def by_topic_id(entries: Iterable[Mapping[str, Any]], topics: TopicDescriptions) -> Target:
    """Return the partitions of existing topics, from entries of a subscription or an assignment."""
    partitions: dict[str, dict[int, None]] = {}
    for entry in entries:
        topic_id = topics.id_of(entry["topic"])
        if topic_id is not None and entry["partitions"]:
            partitions.setdefault(topic_id, {}).update(dict.fromkeys(entry["partitions"]))
    in_order = hash_order([*partitions], topic_id_hash_code)
    return {topic_id: set_order_of([*partitions[topic_id]]) for topic_id in in_order}


def encoded(assignment: Assignment | Target, subscription: bytes, topics: TopicDescriptions) -> bytes:
    """Return the assignment as a ConsumerProtocolAssignment in the version of the subscription of its member."""
    entries = [
        {"topic": name, "partitions": sorted(partitions)}
        for topic_id, partitions in assignment.items()
        if (name := topics.name_of(topic_id)) is not None
    ]
    return encode_assignment({"assignedPartitions": entries, "userData": None}, subscription)
