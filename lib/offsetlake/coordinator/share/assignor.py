"""The assignor `simple`: each partition has as many members as each member needs to have one (`SimpleAssignor`).

The assignment is sticky. Partitions are taken from members that have too many, and from partitions with too many
members; then partitions with too few members are assigned, in a broker's order, to members that have too few.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import ceil

from offsetlake.coordinator.epoch_groups.assignment import NO_PARTITIONS, NO_TARGET, Assignment, Target
from offsetlake.coordinator.hash_order import hash_order, partition_order, set_capacity, topic_id_hash_code

Partition = tuple[str, int]
_UNSIGNED = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class ShareSpecification:
    """The members, subscriptions and previous target assignments of a share group.

    Attributes:
        members: The member IDs, in the order in which a broker iterates over them.
        subscription: Returns the number of partitions by topic ID of the existing topics of a member.
        previous: The previous target assignment of each member.
        assignable: The partitions that can be assigned.
        homogeneous: Whether all members are subscribed to the same topics.
    """

    members: list[str]
    subscription: Callable[[str], Mapping[str, int]]
    previous: Mapping[str, Target]
    assignable: Assignment
    homogeneous: bool


def assign(group: ShareSpecification) -> dict[str, Target]:
    """Return the assignment of each member, in the order of a broker.

    A topic of which a member has lost all partitions may remain, empty.
    """
    subscriptions = [group.subscription(member_id) for member_id in group.members]
    topics = {topic_id: count for subscription in subscriptions for topic_id, count in subscription.items()}
    if not topics:
        return {}
    assignment = _Assignment(group)
    everyone = range(len(group.members))
    if group.homogeneous:
        assignment.remove_others(topics)
        assignment.share(topics, everyone, _partition_hash_code)
    else:  # a broker keeps topics to which nobody is subscribed any more
        for topic_id, count in topics.items():
            members = [member for member in everyone if topic_id in subscriptions[member]]
            assignment.share({topic_id: count}, members, _number_of)
    return assignment.result()


class _Assignment:
    """The assignment while it is computed; members are numbers."""

    def __init__(self, group: ShareSpecification) -> None:
        self._group = group
        self._previous = [group.previous.get(member_id, NO_TARGET) for member_id in group.members]
        self._assigned = [
            {topic_id: dict.fromkeys(partitions) for topic_id, partitions in previous.items()}
            for previous in self._previous
        ]

    def remove_others(self, topics: Iterable[str]) -> None:
        """Remove the topics that are not among the given ones from all members."""
        kept = frozenset(topics)
        for assigned in self._assigned:
            for topic_id in assigned.keys() - kept:
                del assigned[topic_id]

    def share(self, topics: Mapping[str, int], members: Iterable[int], code: Callable[[Partition], int]) -> None:
        """Share topics among members; `code` is the hash code of a partition in a broker."""
        targets = [
            (topic_id, partition)
            for topic_id, count in topics.items()
            for partition in range(count)
            if partition in self._group.assignable.get(topic_id, NO_PARTITIONS)
        ]
        sharing = _Sharing(self._assigned, [*members], targets, code)
        for member, previous in enumerate(self._previous):
            for topic_id in hash_order([topic_id for topic_id in previous if topic_id in topics], topic_id_hash_code):
                sharing.keep(member, ((topic_id, number) for number in previous[topic_id]))
        sharing.take_from_members()
        sharing.take_from_partitions()
        sharing.give()

    def result(self) -> dict[str, Target]:
        """Return the assignment of each member, with topics in the order of a broker."""
        result: dict[str, Target] = {}
        for member_id, previous, assigned in zip(self._group.members, self._previous, self._assigned, strict=True):
            # In Java, HashMap.computeIfAbsent inserts a key before others of its bucket.
            added = [topic_id for topic_id in assigned if topic_id not in previous]
            topics = [*reversed(added), *(topic_id for topic_id in previous if topic_id in assigned)]
            ordered = hash_order(topics, topic_id_hash_code, capacity=1)
            result[member_id] = {
                topic_id: partition_order([*assigned[topic_id]], set_capacity(len(previous.get(topic_id, ()))))
                for topic_id in ordered
            }
        return result


class _Sharing:
    """Shares partitions among members: `desired` are the numbers of partitions of each member."""

    def __init__(
        self,
        assigned: list[dict[str, dict[int, None]]],
        members: list[int],
        targets: list[Partition],
        code: Callable[[Partition], int],
    ) -> None:
        self._assigned, self._members, self._targets, self._code = assigned, members, targets, code
        self._sharing = -(-len(members) // len(targets)) if targets else 0
        precise = self._sharing * len(targets) / len(members)
        self._desired = {
            member: ceil(precise * (index + 1)) - ceil(precise * index) for index, member in enumerate(members)
        }
        self._previous_holders: dict[Partition, list[int]] = {}
        self._holders: dict[Partition, set[int]] = {}
        self._held: dict[int, list[Partition]] = {}

    def keep(self, member: int, partitions: Iterable[Partition]) -> None:
        """Add partitions that a member has."""
        for partition in partitions:
            self._previous_holders.setdefault(partition, []).append(member)
            self._holders.setdefault(partition, set()).add(member)
            self._held.setdefault(member, []).append(partition)

    def take_from_members(self) -> None:
        """Remove partitions from members that have too many."""
        for member, held in self._held.items():
            excess = len(held) - self._desired.get(member, 0)
            for partition in hash_order(held, self._code)[: max(excess, 0)]:
                self._remove(member, partition)

    def take_from_partitions(self) -> None:
        """Remove members from partitions that have too many."""
        for partition, holders in self._holders.items():
            excess = len(holders) - self._sharing
            if excess > 0:
                previous = hash_order(self._previous_holders[partition], int)
                for member in [member for member in previous if member in holders][:excess]:
                    self._remove(member, partition)

    def _remove(self, member: int, partition: Partition) -> None:
        topic_id, number = partition
        del self._assigned[member][topic_id][number]
        self._holders[partition].remove(member)
        self._held[member].remove(partition)

    def give(self) -> None:
        """Assign partitions that have too few members."""
        # A broker does not notice that it assigned a partition twice to a member in one turn.
        waiting = [m for m in sorted(self._members) if len(self._held.get(m, ())) < self._desired[m]]
        held = {member: {*self._held.get(member, ())} for member in waiting}
        position, was_assigned = 0, False
        for partition in self._partition_order():
            topic_id, number = partition
            holders = self._holders.get(partition, set())
            missing = self._sharing - len(holders)
            while missing > 0 and waiting:
                if position >= len(waiting):
                    if not was_assigned:
                        break
                    position, was_assigned = 0, False
                member = waiting[position]
                position += 1
                if member in holders:
                    continue
                self._assigned[member].setdefault(topic_id, {})[number] = None
                held[member].add(partition)
                missing -= 1
                was_assigned = True
                if len(held[member]) >= self._desired[member]:
                    position -= 1
                    del waiting[position]
            if not waiting:
                return

    def _partition_order(self) -> list[Partition]:
        """Return all partitions in the order of a broker's table, which was created for the targets."""
        size = int((len(self._targets) + 1) / 0.75 + 1)  # AssignorHelpers.newHashMap
        # In Java, HashMap.computeIfAbsent inserts a key before others of its bucket.
        partitions = [*reversed({**self._holders, **dict.fromkeys(self._targets)})]
        return hash_order(partitions, self._code, capacity=1 << (size - 1).bit_length())


def _number_of(partition: Partition) -> int:
    return partition[1]


def _partition_hash_code(partition: Partition) -> int:
    """Return the hash code of a `TopicIdPartition`, a record of Java."""
    return (31 * topic_id_hash_code(partition[0]) + partition[1]) & _UNSIGNED
