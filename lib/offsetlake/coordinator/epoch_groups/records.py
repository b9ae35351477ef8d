"""Constructors of the records of groups with epochs, as a broker of version 4.2 writes them."""

from collections.abc import Iterable
from dataclasses import dataclass

from offsetlake.coordinator.epoch_groups.assignment import Target
from offsetlake.coordinator.epoch_groups.member import EpochMember, Value
from offsetlake.coordinator.steps import Record
from offsetlake.kafka.records.coordinator_records import OffsetsRecordType as Type


@dataclass(frozen=True, slots=True)
class ModernRecords:
    """The records of one group type; the fields are their types."""

    metadata_type: Type
    current_type: Type
    target_type: Type
    group_epoch_type: Type
    assignment_epoch_type: Type

    def is_of_member(self, record_type: Type) -> bool:
        """Return whether records of a type describe a member."""
        return record_type in {self.metadata_type, self.current_type}

    def member_metadata(self, group_id: str, member: EpochMember) -> Record:
        """Return the record of a member's metadata."""
        return _of_member(self.metadata_type, group_id, member.member_id, member.metadata)

    def current_assignment(self, group_id: str, member: EpochMember) -> Record:
        """Return the record of a member's current assignment."""
        return _of_member(self.current_type, group_id, member.member_id, member.current)

    def target_assignment(self, group_id: str, member_id: str, target: Target) -> Record:
        """Return the record of a member's target assignment, whose topics and partitions keep their order."""
        topics = [{"topicId": topic_id, "partitions": list(partitions)} for topic_id, partitions in target.items()]
        return _of_member(self.target_type, group_id, member_id, {"topicPartitions": topics})

    def group_epoch(self, group_id: str, epoch: int, metadata_hash: int) -> Record:
        """Return the record of the group epoch."""
        return of_group(self.group_epoch_type, group_id, {"epoch": epoch, "metadataHash": metadata_hash})

    def assignment_epoch(self, group_id: str, epoch: int) -> Record:
        """Return the record of the epoch of the target assignment."""
        return of_group(self.assignment_epoch_type, group_id, {"assignmentEpoch": epoch})

    def no_member(self, group_id: str, member_id: str) -> list[Record]:
        """Return the tombstones of a member."""
        types = (self.current_type, self.target_type, self.metadata_type)
        return [_of_member(record_type, group_id, member_id, None) for record_type in types]

    def no_members(self, record_type: Type, group_id: str, member_ids: Iterable[str]) -> list[Record]:
        """Return the tombstones of one type for each member."""
        return [_of_member(record_type, group_id, member_id, None) for member_id in member_ids]


def of_group(record_type: Type, group_id: str, value: Value | None) -> Record:
    """Return a record whose key is the group."""
    return Record(record_type, {"groupId": group_id}, value)


def _of_member(record_type: Type, group_id: str, member_id: str, value: Value | None) -> Record:
    """Return a record whose key is a member."""
    return Record(record_type, {"groupId": group_id, "memberId": member_id}, value)
