"""Assignments of partitions by topic ID, and their form in records."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from offsetlake.coordinator.hash_order import hash_order, partition_order, set_capacity, topic_id_hash_code

Assignment = Mapping[str, frozenset[int]]
"""Partitions by topic ID in base64; a topic without partitions is absent."""

NO_PARTITIONS: frozenset[int] = frozenset()
NOTHING_ASSIGNED: Assignment = {}

Target = Mapping[str, tuple[int, ...]]
"""A target assignment: topics and partitions in the order of a broker's tables, on which the next one depends."""

NO_TARGET: Target = {}

_NOTHING_RECORDED: list[dict[str, Any]] = []  # most members have no partitions to revoke; values are never modified


def from_record(topics: Iterable[Mapping[str, Any]]) -> Assignment:
    """Return the assignment in an array of TopicPartitions."""
    return {topic["topicId"]: frozenset(topic["partitions"]) for topic in topics}


def target_from_record(topics: Iterable[Mapping[str, Any]]) -> Target:
    """Return the target assignment in an array of TopicPartitions."""
    partitions = {topic["topicId"]: set_order_of(topic["partitions"]) for topic in topics}
    if len(partitions) < 2:
        return partitions
    return {topic_id: partitions[topic_id] for topic_id in hash_order([*partitions], topic_id_hash_code)}


def set_order_of(partitions: Sequence[int]) -> tuple[int, ...]:
    """Return partitions in the order of a `HashSet` of a list of them."""
    return partition_order(partitions, set_capacity(len(partitions)))


def to_assignment(target: Target) -> Assignment:
    """Return the partitions of a target assignment."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in target.items()}


def is_same_target(one: Target, other: Target) -> bool:
    """Return whether two target assignments have the same partitions, in whatever order they are."""
    return one is other or (
        one.keys() == other.keys()
        and all(
            partitions == other[topic_id] or set(partitions) == set(other[topic_id])
            for topic_id, partitions in one.items()
        )
    )


def to_record(assignment: Assignment) -> list[dict[str, Any]]:
    """Return the array of TopicPartitions, in ascending order of topic IDs and partitions."""
    if not assignment:
        return _NOTHING_RECORDED
    return [{"topicId": topic_id, "partitions": sorted(assignment[topic_id])} for topic_id in sorted(assignment)]


def is_subset(owned: Assignment | None, assigned: Assignment) -> bool:
    """Return whether the owned partitions are known and all of them are assigned."""
    if owned is None:
        return False
    return all(topic_id in assigned and partitions <= assigned[topic_id] for topic_id, partitions in owned.items())


def overlap(owned: Assignment | None, pending: Assignment) -> bool:
    """Return whether a member may still own one of the partitions: yes if it did not send what it owns."""
    if owned is None:
        return True
    return any(
        not partitions.isdisjoint(pending.get(topic_id, NO_PARTITIONS)) for topic_id, partitions in owned.items()
    )
