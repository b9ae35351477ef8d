"""The assignor `uniform` for members with different subscriptions (`UniformHeterogeneousAssignmentBuilder`)."""

from offsetlake.coordinator.consumer.assignment.assignors.balancer import LoadRanges
from offsetlake.coordinator.consumer.assignment.assignors.changed_target import ChangedTarget
from offsetlake.coordinator.consumer.assignment.assignors.specification import GroupSpecification
from offsetlake.coordinator.epoch_groups.assignment import NO_TARGET, Target
from offsetlake.coordinator.hash_order import sized_capacity
from offsetlake.kafka.uuid import uuid_bytes

_MAX_ITERATIONS = 16
_FREE = -1


def assign(group: GroupSpecification) -> dict[str, Target]:
    """Return the target assignments that may differ from the previous ones."""
    assignment = _Heterogeneous(group)
    assignment.keep_previous()
    assignment.assign_free()
    assignment.balance()
    return assignment.result()


class _Heterogeneous:
    """The assignment while it is computed; members are numbers.

    Attributes:
        _subscribers: The members that are subscribed to each topic.
        _owners: The member of each partition of each topic.
        _sizes: The number of partitions of each member.
        _changed: The targets of members that differ from the previous ones.
    """

    def __init__(self, group: GroupSpecification) -> None:
        self._group = group
        self._subscribers: dict[str, list[int]] = {}
        self._owners: dict[str, list[int]] = {}
        for member, member_id in enumerate(group.members):
            for topic_id, partitions in group.subscription(member_id).items():
                self._subscribers.setdefault(topic_id, []).append(member)
                if topic_id not in self._owners:
                    self._owners[topic_id] = [_FREE] * partitions
        self._sizes = [0] * len(group.members)
        self._changed: dict[int, ChangedTarget] = {}
        self._topics = sorted(self._subscribers, key=self._topic_position)

    def keep_previous(self) -> None:
        """Keep the previous assignment of topics that a member is still subscribed to."""
        for member, member_id in enumerate(self._group.members):
            for topic_id, partitions in self._previous(member).items():
                if topic_id not in self._group.subscription(member_id):
                    self._target(member).remove_topic(topic_id)
                    continue
                owners = self._owners[topic_id]
                for partition in partitions:
                    if partition < len(owners) and owners[partition] == _FREE:
                        owners[partition] = member
                        self._sizes[member] += 1
                    else:
                        self._target(member).remove(topic_id, partition)

    def assign_free(self) -> None:
        """Assign partitions without a member to the subscribers with the fewest partitions."""
        for topic_id in self._topics:
            free = [partition for partition, owner in enumerate(self._owners[topic_id]) if owner == _FREE]
            if free:
                loads = LoadRanges(self._subscribers[topic_id], self._sizes)
                for partition in free:
                    self._move(topic_id, partition, loads.next_least_loaded())

    def balance(self) -> None:
        """Move partitions from the most to the least loaded subscribers of a topic, until no topic changes."""
        topics = [topic_id for topic_id in self._topics if len(self._subscribers[topic_id]) > 1]
        last_changed = -1
        for _ in range(_MAX_ITERATIONS):
            for index, topic_id in enumerate(topics):
                if index == last_changed:
                    return
                if self._balance_topic(topic_id) or last_changed == -1:
                    last_changed = index

    def result(self) -> dict[str, Target]:
        """Return the changed targets; a broker assigns nothing at all if there are no topics."""
        if not self._topics:
            return dict.fromkeys(self._group.members, NO_TARGET)
        return {self._group.members[member]: changed.result() for member, changed in self._changed.items()}

    def _previous(self, member: int) -> Target:
        return self._group.previous.get(self._group.members[member], NO_TARGET)

    def _target(self, member: int) -> ChangedTarget:
        """Return the target of a member that changes."""
        changed = self._changed.get(member)
        if changed is None:
            changed = self._changed[member] = ChangedTarget(self._previous(member))
        return changed

    def _balance_topic(self, topic_id: str) -> int:
        """Return the number of moved partitions."""
        loads = LoadRanges(self._subscribers[topic_id], self._sizes)
        if loads.imbalance <= 1:
            return 0
        owned: dict[int, list[int]] = {}
        for partition, member in enumerate(self._owners[topic_id]):
            owned.setdefault(member, []).append(partition)
        moved = 0
        while not loads.is_balanced():
            giver = loads.next_most_loaded()
            while giver is not None and not owned.get(giver):
                loads.exclude_most_loaded()
                giver = loads.next_most_loaded()
            if giver is None:
                break
            partition = owned[giver].pop()
            taker = loads.next_least_loaded()
            if loads.is_balanced():
                break
            self._move(topic_id, partition, taker)
            moved += 1
        return moved

    def _move(self, topic_id: str, partition: int, member: int) -> None:
        owners = self._owners[topic_id]
        previous = owners[partition]
        if previous != _FREE:
            self._sizes[previous] -= 1
            self._target(previous).remove(topic_id, partition)
        owners[partition] = member
        self._sizes[member] += 1
        expected = -(-len(owners) // len(self._subscribers[topic_id]))
        self._target(member).add(topic_id, partition, sized_capacity(int(expected / 0.75) + 1))

    def _topic_position(self, topic_id: str) -> tuple[float, int, int, int]:
        """Return the sort key of a topic: by partitions per subscriber in descending order, subscribers, and ID."""
        members = len(self._subscribers[topic_id])
        data = uuid_bytes(topic_id)
        most, least = (int.from_bytes(half, signed=True) for half in (data[:8], data[8:]))
        return -len(self._owners[topic_id]) / members, members, most, least
