"""A group with epochs: its replayed records, and what is derived from them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from offsetlake.coordinator.epoch_groups.assignment import NO_TARGET, Target, target_from_record
from offsetlake.coordinator.epoch_groups.member import EpochMember
from offsetlake.coordinator.epoch_groups.records import ModernRecords
from offsetlake.coordinator.epoch_groups.subscriptions import Subscriptions
from offsetlake.coordinator.hash_order import TimelineOrder
from offsetlake.coordinator.steps import Record, Step
from offsetlake.kafka.records.coordinator_records import OffsetsRecordType as Type
from offsetlake.rules.groups.members import GroupMember, GroupType
from offsetlake.rules.groups.records import GroupRecord, replay
from offsetlake.rules.groups.state import GroupState

_METADATA_REFRESH_MS = 2**31 - 1

MemberT = TypeVar("MemberT", bound=EpochMember)


class Change(NamedTuple):
    """The part of the state that one record changed, as it was before."""

    record_type: Type
    name: str
    before: Any
    existed: bool


class EpochGroup(ABC, Generic[MemberT]):
    """One group. The records change the state; the indexes follow it.

    Attributes:
        state: The newest values of the records.
        exists: Whether there are any.
        subscriptions: The subscriptions of all members.
        homogeneous: Whether all members are subscribed to the same topics; as in a broker, determined when a member
            changes, and not when the topics of a regular expression do.
        member_order: The order of the members in assignors.
        targets: The target assignment of each member.
        size_bytes: The approximate memory of what the members sent and of their partitions.
    """

    group_type: ClassVar[GroupType]
    records: ClassVar[ModernRecords]

    def __init__(self, group_id: str, state: GroupState | None = None) -> None:
        self.group_id = group_id
        self._refresh_at_ms = 0
        self._refresh_epoch = 0
        self._load(state)

    def _load(self, state: GroupState | None) -> None:
        self.exists = state is not None
        self.state = state or GroupState(self.group_id, self.group_type, -1, -1, None)
        self.size_bytes = 0
        self.subscriptions = Subscriptions()
        self.homogeneous = True
        self.member_order = TimelineOrder()
        self.targets: dict[str, Target] = {}
        self._load_indexes()
        for member in self.members():
            self._replace_member(None, member)
        for member_id in self.state.target_assignments:
            self._replace_target(member_id)

    @abstractmethod
    def _load_indexes(self) -> None:
        """Derive the indexes of the group type from the state, apart from its members and their target assignments."""

    @abstractmethod
    def _member(self, member_id: str, found: GroupMember) -> MemberT:
        """Return a member from its replayed records."""

    def member(self, member_id: str) -> MemberT | None:
        """Return a member, None if it does not exist."""
        found = self.state.members.get(member_id)
        return None if found is None else self._member(member_id, found)

    def members(self) -> Iterator[MemberT]:
        """Yield all members."""
        return (self._member(member_id, found) for member_id, found in self.state.members.items())

    def state_name(self) -> str:
        """Return the name of the state, as a broker does."""
        return self.state.state_name()

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members are subscribed to a topic."""
        return topic in self.subscriptions.by_name or topic in self.subscriptions.by_regex

    def metadata_expired(self, now_ms: int) -> bool:
        """Return whether the subscribed topics must be compared with their hash again."""
        return now_ms >= self._refresh_at_ms or self.state.epoch < self._refresh_epoch

    def metadata_refreshed(self, now_ms: int, epoch: int) -> None:
        """Remember that the subscribed topics were compared with their hash for this group epoch."""
        self._refresh_at_ms, self._refresh_epoch = now_ms + _METADATA_REFRESH_MS, epoch

    def refresh_metadata(self) -> None:
        """Compare the subscribed topics with their hash at the next heartbeat."""
        self._refresh_at_ms, self._refresh_epoch = 0, 0

    def append(self, step: Step, records: list[Record]) -> None:
        """Add the records of a step, and apply them to the state."""
        if records:
            step.records += records
            changes = self.apply(records)
            step.undo.append(lambda _step, _error: self.restore(changes))

    def apply(self, records: Iterable[Record]) -> list[Change]:
        """Apply records in the order of the log, and return what they changed."""
        return [self._apply(record) for record in records]

    def restore(self, changes: list[Change]) -> None:
        """Restore the state before changes, which must be the newest ones."""
        for record_type, name, before, existed in reversed(changes):
            if isinstance(before, GroupState):
                self._load(before)
            else:
                after = self._part(record_type, name)
                self._set_part(record_type, name, before)
                self._index(record_type, name, after)
            self.exists = existed

    def _apply(self, record: Record) -> Change:
        record_type, key, value = record
        name = key.get("memberId") or key.get("regularExpression") or ""
        deleted = record_type == self.records.group_epoch_type and value is None
        before = self.state if deleted else self._part(record_type, name)
        existed = self.exists
        position = (self.state.log_partition, self.state.log_offset, self.state.log_timestamp)
        state = replay(self.state, GroupRecord(*position, record_type, key, value))
        if state is None:
            self._load(None)
        else:
            self.exists = True
            self._index(record_type, name, before)
        return Change(record_type, name, before, existed)

    def _part(self, record_type: Type, name: str) -> Any:
        """Return the part of the state that a record describes."""
        state, records = self.state, self.records
        if records.is_of_member(record_type):
            found = state.members.get(name)
            return found and (found.metadata, found.current)
        if record_type == records.target_type:
            return state.target_assignments.get(name)
        if record_type == records.group_epoch_type:
            return state.epoch, state.metadata_hash
        return state.assignment_epoch

    def _set_part(self, record_type: Type, name: str, part: Any) -> None:
        state, records = self.state, self.records
        if records.is_of_member(record_type):
            set_or_remove(state.members, name, part and GroupMember(*part))
        elif record_type == records.target_type:
            set_or_remove(state.target_assignments, name, part)
        elif record_type == records.group_epoch_type:
            state.epoch, state.metadata_hash = part
        else:
            state.assignment_epoch = part

    def _index(self, record_type: Type, name: str, before: Any) -> None:
        """Update the indexes after a part of the state changed."""
        if self.records.is_of_member(record_type):
            self._replace_member(before and self._member(name, GroupMember(*before)), self.member(name))
        elif record_type == self.records.target_type:
            self._replace_target(name)

    def _replace_member(self, old: MemberT | None, new: MemberT | None) -> None:
        if old is None and new is not None:
            self.member_order.add(new.member_id)
        if old is not None and new is None:
            self.member_order.remove(old.member_id)
        if old is None or new is None or old.metadata is not new.metadata:
            self.subscriptions.replace(old, new)
        self.size_bytes += (0 if new is None else new.size_bytes()) - (0 if old is None else old.size_bytes())
        self.homogeneous = self.subscriptions.is_homogeneous(len(self.state.members))

    def _replace_target(self, member_id: str) -> tuple[Target, Target]:
        """Replace the target assignment of a member, and return it as it was and as it is."""
        value = self.state.target_assignments.get(member_id)
        old = self.targets.pop(member_id, NO_TARGET)
        new = NO_TARGET if value is None else target_from_record(value["topicPartitions"])
        if value is not None:
            self.targets[member_id] = new
        return old, new


def set_or_remove(values: dict[str, Any], name: str, value: Any) -> None:
    """Set a value by name, or remove it if it is None."""
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value
