"""The assignor `uniform`: equally many partitions for each member, as few moved as possible (`UniformAssignor`)."""

from collections import deque
from collections.abc import Iterator
from itertools import filterfalse, islice

from offsetlake.coordinator.consumer.assignment.assignors import heterogeneous
from offsetlake.coordinator.consumer.assignment.assignors.specification import GroupSpecification
from offsetlake.coordinator.epoch_groups.assignment import NO_TARGET, Target
from offsetlake.coordinator.hash_order import (
    hash_order,
    partition_order,
    set_capacity,
    sized_capacity,
    topic_id_hash_code,
)

Free = deque[tuple[str, Iterator[int]]]
"""Partitions that no member keeps, by topic ID, in the order in which they are assigned."""


def assign(group: GroupSpecification) -> dict[str, Target]:
    """Return the target assignments that may differ from the previous ones."""
    return _Homogeneous(group).assign() if group.homogeneous else heterogeneous.assign(group)


class _Homogeneous:
    """The case that all members are subscribed to the same topics (`UniformHomogeneousAssignmentBuilder`)."""

    def __init__(self, group: GroupSpecification) -> None:
        self._group = group
        self._topics = group.subscription(group.members[0])
        self._quota, self._extra = divmod(sum(self._topics.values()), len(group.members))
        self._free: Free = deque()
        self._changed: dict[str, Target] = {}
        for topic_id, partitions in self._topics.items():
            owners = group.owners.get(topic_id, {})
            if len(owners) < partitions:
                self._free.append((topic_id, filterfalse(owners.__contains__, range(partitions))))

    def assign(self) -> dict[str, Target]:
        members = self._group.members
        if not self._topics:
            return dict.fromkeys(members, NO_TARGET)
        unfilled: list[tuple[str, int]] = []
        may_lose, extra = self._may_lose_topics(), self._extra
        for index, (member_id, size) in enumerate(zip(members, self._group.sizes, strict=True)):
            quota, used = self._quota + (extra > 0), size
            if may_lose or size > quota:
                used = self._keep(member_id, quota)
            if used < quota and extra and len(members) - index > extra:
                # Another member may take the extra partition, unless only as many members are left as must take one.
                quota -= 1
            elif extra:
                extra -= 1
            if used < quota:
                unfilled.append((member_id, quota - used))
        self._fill(unfilled)
        return self._changed

    def _may_lose_topics(self) -> bool:
        """Return whether a member may have topics to which it is not subscribed any more."""
        owners = self._group.owners
        return not owners.keys() <= self._topics.keys() or sum(self._group.sizes) != sum(map(len, owners.values()))

    def _keep(self, member_id: str, quota: int) -> int:
        """Keep what a member is subscribed to, within the quota; return its size."""
        previous = self._group.previous.get(member_id, NO_TARGET)
        size = sum(map(len, previous.values()))
        if size <= quota and previous.keys() <= self._topics.keys():
            return size
        kept, left = {}, quota
        for topic_id, partitions in previous.items():
            if topic_id not in self._topics:
                continue
            self._free.append((topic_id, iter(partitions[left:])))
            if left:
                kept[topic_id] = partitions[:left]
                left -= len(kept[topic_id])
        topics = hash_order([*kept], topic_id_hash_code, sized_capacity(len(previous)))
        self._changed[member_id] = {topic_id: kept[topic_id] for topic_id in topics}
        return quota - left

    def _fill(self, unfilled: list[tuple[str, int]]) -> None:
        """Assign the free partitions to members below their quota."""
        for member_id, quota in unfilled:
            added = self._take_free(quota)
            if not added:
                return
            previous = self._group.previous.get(member_id, NO_TARGET)
            kept = self._changed.get(member_id, previous)
            # In Java, HashMap.computeIfAbsent inserts a key before others of its bucket.
            topics = [*reversed([topic_id for topic_id in added if topic_id not in kept]), *kept]
            self._changed[member_id] = {
                topic_id: _added(kept.get(topic_id, ()), added.get(topic_id, []))
                for topic_id in hash_order(topics, topic_id_hash_code, sized_capacity(len(previous)))
            }

    def _take_free(self, count: int) -> dict[str, list[int]]:
        """Return the next free partitions, at most `count`, by topic ID."""
        taken: dict[str, list[int]] = {}
        while count and self._free:
            topic_id, free = self._free[0]
            partitions = [*islice(free, count)]
            if len(partitions) < count:
                self._free.popleft()
            if partitions:
                taken.setdefault(topic_id, []).extend(partitions)
            count -= len(partitions)
        return taken


def _added(kept: tuple[int, ...], added: list[int]) -> tuple[int, ...]:
    """Return the partitions of a topic that a member keeps with those that are added to them."""
    return partition_order([*kept, *added], set_capacity(len(kept)))
