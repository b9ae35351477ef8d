"""A target assignment while an assignor changes it, in the order of the tables that a broker changes."""

from dataclasses import dataclass

from offsetlake.coordinator.epoch_groups.assignment import Target
from offsetlake.coordinator.hash_order import (
    hash_order,
    partition_order,
    set_capacity,
    sized_capacity,
    table_capacity,
    topic_id_hash_code,
)


@dataclass(slots=True)
class _Set:
    """A `HashSet`: its partitions in the order in which they were added, and its capacity, which does not shrink."""

    partitions: dict[int, None]
    capacity: int


class ChangedTarget:
    """A copy of a target assignment to which partitions are added, and from which others are removed."""

    def __init__(self, previous: Target) -> None:
        self._topics = {
            topic_id: _Set(dict.fromkeys(partitions), set_capacity(len(partitions)))
            for topic_id, partitions in previous.items()
        }
        self._capacity = sized_capacity(len(previous))

    def add(self, topic_id: str, partition: int, capacity: int) -> None:
        """Add a partition; `capacity` is that of the set of a topic without partitions."""
        found = self._topics.get(topic_id)
        if found is None:
            found = _Set({}, capacity)
            self._topics = {topic_id: found, **self._topics}  # HashMap.computeIfAbsent inserts a key before others
            self._capacity = table_capacity(len(self._topics), self._capacity)
        found.partitions[partition] = None
        found.capacity = table_capacity(len(found.partitions), found.capacity)

    def remove(self, topic_id: str, partition: int) -> None:
        """Remove a partition, and the topic with its last one."""
        partitions = self._topics[topic_id].partitions
        del partitions[partition]
        if not partitions:
            del self._topics[topic_id]

    def remove_topic(self, topic_id: str) -> None:
        """Remove all partitions of a topic."""
        del self._topics[topic_id]

    def result(self) -> Target:
        """Return the target assignment."""
        return {
            topic_id: partition_order([*self._topics[topic_id].partitions], self._topics[topic_id].capacity)
            for topic_id in hash_order([*self._topics], topic_id_hash_code, self._capacity)
        }
