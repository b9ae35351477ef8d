"""Which share partitions of a group have a state: the ShareGroupStatePartitionMetadata record.

A partition is initializing until the share coordinator has created its state, and its topic is deleting until the share
coordinator has deleted the states of the topic. Only initialized partitions are assigned to members.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from offsetlake.coordinator.epoch_groups.assignment import Assignment
from offsetlake.coordinator.epoch_groups.describe import NameOf
from offsetlake.coordinator.epoch_groups.member import Value
from offsetlake.coordinator.epoch_groups.records import of_group
from offsetlake.coordinator.hash_order import hash_order, topic_id_hash_code
from offsetlake.coordinator.steps import Record
from offsetlake.kafka.records.coordinator_records import OffsetsRecordType

_TOPIC_BYTES = 1_000  # of the objects of a topic
_PARTITION_BYTES = 100  # of a partition in the topic and in the record
_UNKNOWN = "<UNKNOWN>"  # the name in a broker's record of a topic that no longer exists


class TopicPartitions(NamedTuple):
    """Partitions of a topic, and its name when they were added."""

    name: str
    partitions: frozenset[int]


PartitionsById = Mapping[str, TopicPartitions]


@dataclass(frozen=True, slots=True)
class ShareTopics:
    """The value of the record: partitions by topic ID, and the IDs of topics."""

    initializing: PartitionsById = field(default_factory=dict)
    initialized: PartitionsById = field(default_factory=dict)
    deleting: frozenset[str] = frozenset()

    @classmethod
    def from_value(cls, value: Value | None) -> "ShareTopics":
        """Return the topics of a record, None if there is none."""
        if value is None:
            return cls()

        def partitions(name: str) -> PartitionsById:
            return {
                topic["topicId"]: TopicPartitions(topic["topicName"], frozenset(topic["partitions"]))
                for topic in value[name]
            }

        deleting = frozenset(topic["topicId"] for topic in value["deletingTopics"])
        return cls(partitions("initializingTopics"), partitions("initializedTopics"), deleting)

    def record(self, group_id: str, name_of: NameOf) -> Record:
        """Return the record with these topics, in the order of a broker; `name_of` names those that are deleted."""
        value = {
            "initializingTopics": _values(self.initializing),
            "initializedTopics": _values(self.initialized),
            "deletingTopics": [
                {"topicId": topic_id, "topicName": name_of(topic_id) or _UNKNOWN}
                for topic_id in hash_order(sorted(self.deleting), topic_id_hash_code)
            ],
        }
        return of_group(OffsetsRecordType.SHARE_GROUP_STATE_PARTITION_METADATA, group_id, value)

    def size_bytes(self) -> int:
        """Return the approximate memory of the topics and of their record."""
        topics = [*self.initializing.values(), *self.initialized.values()]
        partitions = sum(len(topic.partitions) for topic in topics)
        return _TOPIC_BYTES * (len(topics) + len(self.deleting)) + _PARTITION_BYTES * partitions

    def ids(self) -> set[str]:
        """Return the IDs of all topics."""
        return {*self.initializing, *self.initialized, *self.deleting}

    def initialize(self, added: PartitionsById) -> "ShareTopics":
        """Return the topics after partitions began to initialize; these topics are no longer deleting."""
        initializing = combined(self.initializing, added)
        return replace(self, initializing=initializing, deleting=self.deleting - initializing.keys())

    def complete(self, partitions: Assignment, name_of: NameOf) -> "ShareTopics":
        """Return the topics after partitions were initialized."""
        named = {
            topic_id: TopicPartitions(name_of(topic_id) or _UNKNOWN, numbers)
            for topic_id, numbers in partitions.items()
        }
        return replace(self.abandon(partitions), initialized=combined(self.initialized, named))

    def abandon(self, partitions: Assignment) -> "ShareTopics":
        """Return the topics without initializing partitions."""
        kept = {
            topic_id: topic._replace(partitions=topic.partitions - partitions.get(topic_id, frozenset()))
            for topic_id, topic in self.initializing.items()
            if topic_id not in partitions or not topic.partitions <= partitions[topic_id]
        }
        return replace(self, initializing=kept)

    def delete(self, topic_ids: Iterable[str]) -> "ShareTopics":
        """Return the topics after initialized ones began to be deleted."""
        deleted = frozenset(topic_ids)
        kept = {topic_id: topic for topic_id, topic in self.initialized.items() if topic_id not in deleted}
        return replace(self, initialized=kept, deleting=self.deleting | deleted)

    def deleted(self, topic_ids: Iterable[str]) -> "ShareTopics":
        """Return the topics after the states of some were deleted."""
        return replace(self, deleting=self.deleting.difference(topic_ids))

    def forget(self, topic_ids: Iterable[str]) -> "ShareTopics":
        """Return the topics without some."""
        removed = frozenset(topic_ids)

        def rest(topics: PartitionsById) -> PartitionsById:
            return {topic_id: topic for topic_id, topic in topics.items() if topic_id not in removed}

        return ShareTopics(rest(self.initializing), rest(self.initialized), self.deleting - removed)


def combined(first: PartitionsById, second: PartitionsById) -> dict[str, TopicPartitions]:
    """Return the partitions of both, with the names of the second one."""
    result = dict(first)
    for topic_id, topic in second.items():
        before = first.get(topic_id, topic)
        result[topic_id] = topic._replace(partitions=before.partitions | topic.partitions)
    return result


def _values(topics: PartitionsById) -> list[Value]:
    return [
        {"topicId": topic_id, "topicName": topics[topic_id].name, "partitions": sorted(topics[topic_id].partitions)}
        for topic_id in hash_order(sorted(topics), topic_id_hash_code)
    ]
