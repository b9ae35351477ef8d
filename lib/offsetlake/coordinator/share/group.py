"""A share group: its replayed records, and what is derived from them."""

from typing import Any

from offsetlake.coordinator.epoch_groups.assignment import Assignment, Target
from offsetlake.coordinator.epoch_groups.describe import NameOf
from offsetlake.coordinator.epoch_groups.group import EpochGroup
from offsetlake.coordinator.share.member import NO_CURRENT, NO_METADATA, ShareMember
from offsetlake.coordinator.share.records import RECORDS
from offsetlake.coordinator.share.topics import PartitionsById, ShareTopics, TopicPartitions, combined
from offsetlake.coordinator.steps import Step
from offsetlake.kafka.records.coordinator_records import OffsetsRecordType as Type
from offsetlake.rules.groups.members import GroupMember

_NO_TOPIC = TopicPartitions("", frozenset())


class ShareGroup(EpochGroup[ShareMember]):
    """One share group.

    Attributes:
        topics: Which share partitions have a state.
        initializing_since_ms: When the newest record of these was written or loaded; not in the log.
        rewind: None, because share groups have no committed offsets.
    """

    group_type = "share"
    records = RECORDS
    rewind = None
    initializing_since_ms = 0

    def _load_indexes(self) -> None:
        self.topics = ShareTopics.from_value(self.state.share_topics)
        self.size_bytes += self.topics.size_bytes()
        self._assigned: dict[str, set[int]] | None = None

    def _member(self, member_id: str, found: GroupMember) -> ShareMember:
        return ShareMember(member_id, found.metadata or NO_METADATA, found.current or NO_CURRENT)

    def write_topics(self, step: Step, topics: ShareTopics, name_of: NameOf | None = None) -> None:
        """Write which share partitions have a state; `name_of` names the topics that are deleted."""
        self.append(step, [topics.record(self.group_id, name_of or step.topics.name_of)])
        self.initializing_since_ms = step.now_ms

    def is_assignment_pending(self) -> bool:
        """Return whether subscribed partitions that are initialized are not those of the target assignment."""
        if not self.state.members:
            return False
        if self._assigned is None:
            self._assigned = {}
            for target in self.targets.values():
                for topic_id, partitions in target.items():
                    self._assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            topic.name in self.subscriptions.by_name and self._assigned.get(topic_id, set()) ^ topic.partitions
            for topic_id, topic in self.topics.initialized.items()
        )

    def uninitialized(self, step: Step) -> PartitionsById:
        """Return the subscribed partitions without a state, except for those that began to initialize recently."""
        known = self.topics.initialized
        if step.now_ms - self.initializing_since_ms < step.settings.share_initialize_retry_interval_ms:
            known = combined(known, self.topics.initializing)
        missing = {}
        for name in self.subscriptions.topics():
            topic_id, partitions = step.topics.id_of(name), step.topics.partitions(name)
            found = known.get(topic_id or "", _NO_TOPIC).partitions
            if topic_id is not None and len(found) < partitions:
                missing[topic_id] = TopicPartitions(name, frozenset(range(partitions)) - found)
        return missing

    def assignable(self) -> Assignment:
        """Return the partitions that can be assigned."""
        return {topic_id: topic.partitions for topic_id, topic in self.topics.initialized.items()}

    def _part(self, record_type: Type, name: str) -> Any:
        if record_type == Type.SHARE_GROUP_STATE_PARTITION_METADATA:
            return self.state.share_topics
        return super()._part(record_type, name)

    def _set_part(self, record_type: Type, name: str, part: Any) -> None:
        if record_type == Type.SHARE_GROUP_STATE_PARTITION_METADATA:
            self.state.share_topics = part
        else:
            super()._set_part(record_type, name, part)

    def _index(self, record_type: Type, name: str, before: Any) -> None:
        if record_type == Type.SHARE_GROUP_STATE_PARTITION_METADATA:
            self.size_bytes -= self.topics.size_bytes()
            self.topics = ShareTopics.from_value(self.state.share_topics)
            self.size_bytes += self.topics.size_bytes()
        else:
            super()._index(record_type, name, before)

    def _replace_target(self, member_id: str) -> tuple[Target, Target]:
        self._assigned = None
        return super()._replace_target(member_id)
