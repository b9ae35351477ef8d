"""A consumer group: its replayed records, and what is derived from them."""

from collections.abc import Iterable
from typing import Any, TypeVar

from offsetlake.coordinator.consumer import owners
from offsetlake.coordinator.consumer.member import NO_CURRENT, NO_METADATA, ConsumerMember, MemberState
from offsetlake.coordinator.consumer.record_types import RECORDS
from offsetlake.coordinator.epoch_groups.assignment import NO_TARGET, Target
from offsetlake.coordinator.epoch_groups.group import EpochGroup, set_or_remove
from offsetlake.coordinator.epoch_groups.subscriptions import KnownTopics
from offsetlake.coordinator.rewind import Rewind
from offsetlake.kafka.records.coordinator_records import OffsetsRecordType as Type
from offsetlake.rules.groups.members import GroupMember
from offsetlake.rules.groups.state import GroupState

T = TypeVar("T")

NO_EPOCH = -1


class ConsumerGroup(EpochGroup[ConsumerMember]):
    """One group of the consumer protocol (KIP-848).

    Attributes:
        static_members: The member ID of each instance ID.
        assignors: The number of members that prefer each assignor.
        classic_members: The number of members that use the classic protocol.
        classic_protocols: The number of these that support each protocol.
        stable_members: The number of members that are stable, by their epoch.
        known_topics: What a long subscription was last looked up to, see `SubscribedTopics`.
        partition_epochs: The epoch of the owner of each partition, by topic ID.
        topics_of: The topic names and the regular expression that each member subscribed to.
        target_sizes: The number of partitions in the target assignment of each member.
        target_owners: The member that has each partition in its target assignment, by topic ID.
        regexes_to_evaluate: The regular expressions that are about to be evaluated; not in the log.
        revocation_epochs: The epochs of members when the timers of their revocations were set; not in the log.
        awaited_joins: The members with the classic protocol that were asked to join again; not in the log.
        rewind: The offsets that are set when their partitions have no owner; not in the log.
    """

    group_type = "consumer"
    records = RECORDS

    # In most groups these have no other value, and then take no memory.
    rewind: Rewind | None = None
    regexes_to_evaluate: Any = None
    known_topics: KnownTopics | None = None
    awaited_joins: frozenset[str] = frozenset()

    def __init__(self, group_id: str, state: GroupState | None = None) -> None:
        self.revocation_epochs: dict[str, int] = {}
        super().__init__(group_id, state)

    def _load_indexes(self) -> None:
        self.static_members: dict[str, str] = {}
        self.assignors: dict[str, int] = {}
        self.classic_members = 0
        self.classic_protocols: dict[str, int] = {}
        self.stable_members: dict[int, int] = {}
        self.partition_epochs: dict[str, dict[int, int]] = {}
        self.topics_of: dict[str, tuple[tuple[str, ...], str | None]] = {}
        self.target_sizes: dict[str, int] = {}
        self.target_owners: dict[str, dict[int, str]] = {}
        for topics in self.state.regexes.values():
            self.subscriptions.match((), topics)

    def _member(self, member_id: str, found: GroupMember) -> ConsumerMember:
        return ConsumerMember(member_id, found.metadata or NO_METADATA, found.current or NO_CURRENT)

    def state_name(self) -> str:
        """Return the name of the state as `GroupState.state_name` does, without looking at all members."""
        state = self.state
        if not state.members:
            return "Empty"
        if state.epoch > state.assignment_epoch:
            return "Assigning"
        stable = self.stable_members.get(state.assignment_epoch, 0) == len(state.members)
        return "Stable" if stable else "Reconciling"

    def has_nothing_to_do(self, member: ConsumerMember, now_ms: int) -> bool:
        """Return whether a heartbeat with unchanged metadata changes neither the member nor the group."""
        state = self.state
        return (
            0 < state.epoch <= state.assignment_epoch
            and not self.subscriptions.regex_members
            and not self.metadata_expired(now_ms)
            and member.is_reconciled_to(state.assignment_epoch)
        )

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """Return the member with an instance ID, None if there is none."""
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.member(member_id)

    def partition_epoch(self, topic_id: str, partition: int) -> int:
        """Return the epoch of the owner of a partition, -1 if it is free."""
        return self.partition_epochs.get(topic_id, {}).get(partition, NO_EPOCH)

    def target(self, member: ConsumerMember) -> Target:
        """Return the target assignment of a member; for a static member, that of its instance ID."""
        owner = member.member_id if member.instance_id is None else self.static_members.get(member.instance_id, "")
        return self.targets.get(owner, NO_TARGET)

    def supports_classic(self, names: Iterable[str]) -> bool:
        """Return whether all members with the classic protocol support one of these protocols."""
        return any(self.classic_protocols.get(name, 0) == self.classic_members for name in names)

    def _part(self, record_type: Type, name: str) -> Any:
        state = self.state
        if record_type == Type.CONSUMER_GROUP_REGULAR_EXPRESSION:
            return state.regexes.get(name), state.regex_version, state.regex_timestamp
        if record_type == Type.CONSUMER_GROUP_PARTITION_METADATA:
            return state.has_partition_metadata
        return super()._part(record_type, name)

    def _set_part(self, record_type: Type, name: str, part: Any) -> None:
        state = self.state
        if record_type == Type.CONSUMER_GROUP_REGULAR_EXPRESSION:
            topics, state.regex_version, state.regex_timestamp = part
            set_or_remove(state.regexes, name, topics)
        elif record_type == Type.CONSUMER_GROUP_PARTITION_METADATA:
            state.has_partition_metadata = part
        else:
            super()._set_part(record_type, name, part)

    def _index(self, record_type: Type, name: str, before: Any) -> None:
        if record_type == Type.CONSUMER_GROUP_REGULAR_EXPRESSION:
            self.subscriptions.match(before[0] or (), self.state.regexes.get(name, ()))
        else:
            super()._index(record_type, name, before)

    def _replace_member(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        super()._replace_member(old, new)
        if old is not None and new is None:
            del self.topics_of[old.member_id]
        if old is None or new is None or old.metadata is not new.metadata:
            self._count_classic(old, -1)
            self._count_classic(new, 1)
            if old is not None:
                _count(self.assignors, old.assignor, -1)
                if old.instance_id is not None and self.static_members.get(old.instance_id) == old.member_id:
                    del self.static_members[old.instance_id]
            if new is not None:
                _count(self.assignors, new.assignor, 1)
                self.topics_of[new.member_id] = new.subscription
                if new.instance_id is not None:
                    self.static_members[new.instance_id] = new.member_id
        if old is None or new is None or old.current is not new.current:
            owners.replace_current(self.partition_epochs, old, new)
            self._count_stable(old, -1)
            self._count_stable(new, 1)

    def _count_stable(self, member: ConsumerMember | None, change: int) -> None:
        if member is not None and member.state is MemberState.STABLE:
            _count(self.stable_members, member.epoch, change)

    def _count_classic(self, member: ConsumerMember | None, change: int) -> None:
        if member is not None and member.classic is not None:
            self.classic_members += change
            for protocol in member.classic["supportedProtocols"]:
                _count(self.classic_protocols, protocol["name"], change)

    def _replace_target(self, member_id: str) -> tuple[Target, Target]:
        old, new = super()._replace_target(member_id)
        owners.replace_target(self.target_owners, member_id, old, new)
        if member_id in self.targets:
            self.target_sizes[member_id] = sum(map(len, new.values()))
        else:
            self.target_sizes.pop(member_id, None)
        return old, new


def _count(counts: dict[T, int], name: T | None, change: int) -> None:
    if name is not None:
        counts[name] = counts.get(name, 0) + change
        if not counts[name]:
            del counts[name]
