"""Computes the target assignment of a group (`TargetAssignmentBuilder`)."""

from collections import ChainMap
from collections.abc import Callable, Mapping

from offsetlake.coordinator.consumer import records
from offsetlake.coordinator.consumer.assignment.assignors import range as range_assignor
from offsetlake.coordinator.consumer.assignment.assignors import uniform
from offsetlake.coordinator.consumer.assignment.assignors.specification import GroupSpecification
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.member import ConsumerMember
from offsetlake.coordinator.consumer.rewind import without_partitions
from offsetlake.coordinator.epoch_groups.assignment import NO_TARGET, Target, is_same_target
from offsetlake.coordinator.epoch_groups.subscriptions import KnownTopics
from offsetlake.coordinator.hash_order import (
    hash_code,
    set_order,
    topic_id_hash_code,
)
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.steps import Record, Step
from offsetlake.coordinator.topics import TopicDescriptions

Subscription = tuple[tuple[str, ...], str | None]
"""Topic names and a regular expression."""

_LONG_SUBSCRIPTION = 100  # topics

ASSIGNORS: dict[str, Callable[[GroupSpecification], dict[str, Target]]] = {
    "uniform": uniform.assign,
    "range": range_assignor.assign,
}


class SubscribedTopics:
    """The existing topics of subscriptions.

    Equal subscriptions are looked up once, and the last long one of a group is kept until the topics change.
    """

    def __init__(self, group: ConsumerGroup, topics: TopicDescriptions) -> None:
        self._group, self._topics = group, topics
        self._known: dict[Subscription, Mapping[str, int]] = {}

    def of(self, subscription: Subscription) -> Mapping[str, int]:
        """Return the number of partitions by topic ID; a regular expression that is not evaluated matches nothing."""
        known = self._known.get(subscription)
        if known is None:
            known = self._known[subscription] = self._look_up(*subscription)
        return known

    def _look_up(self, topics: tuple[str, ...], regex: str | None) -> Mapping[str, int]:
        names = sorted({*topics, *self._group.state.regexes.get(regex or "", ())})
        if len(names) < _LONG_SUBSCRIPTION:
            return self._described(names)
        known, version = self._group.known_topics, self._topics.version()
        if known is None or known.version != version or known.names != names:
            known = self._group.known_topics = KnownTopics(version, names, self._described(names))
        return known.partitions

    def _described(self, names: list[str]) -> Mapping[str, int]:
        ids = {name: topic_id for name in names if (topic_id := self._topics.id_of(name)) is not None}
        by_id = {ids[name]: self._topics.partitions(name) for name in set_order(ids, hash_code, len(names))}
        return {topic_id: by_id[topic_id] for topic_id in set_order(by_id, topic_id_hash_code)}


def assign(
    step: Step, group: ConsumerGroup, epoch: int, old: ConsumerMember, new: ConsumerMember, *, homogeneous: bool
) -> tuple[Target, list[Record]]:
    """Return the target assignment of a member at a group epoch, and the records of all that changes."""
    specification = _specification(step, group, new, homogeneous=homogeneous)
    members = specification.members
    previous = specification.previous
    changed: Mapping[str, Target] = ASSIGNORS[_preferred_assignor_after(group, step.settings, old, new)](specification)
    if group.rewind is not None:
        complete = {member_id: changed.get(member_id, previous.get(member_id, NO_TARGET)) for member_id in members}
        changed = without_partitions(group.rewind, complete, step.topics)
    # A member that replaces a static one has a record with the target of that one, and may have had another target.
    unknown = None if _replaced_member(group, new) is None else new.member_id
    known = group.targets
    out = []
    for member_id in [name for name in members if name in changed or name not in known or name == unknown]:
        target = changed.get(member_id, previous.get(member_id, NO_TARGET))
        if member_id not in known or member_id == unknown or not is_same_target(known[member_id], target):
            out.append(records.target_assignment(group.group_id, member_id, target))
    out.append(records.assignment_epoch(group.group_id, epoch))
    return changed.get(new.member_id, previous.get(new.member_id, NO_TARGET)), out


def preferred_assignor(group: ConsumerGroup, settings: CoordinatorSettings) -> str:
    """Return the assignor that most members prefer, or the default one."""
    return max(_supported(group), key=group.assignors.__getitem__, default=settings.consumer_assignors[0])


def _preferred_assignor_after(
    group: ConsumerGroup, settings: CoordinatorSettings, old: ConsumerMember, new: ConsumerMember
) -> str:
    """Return the assignor that most members prefer after a member changed, or the default one."""
    counts = {name: group.assignors[name] for name in _supported(group)}
    if old.assignor in counts:
        counts[old.assignor] -= 1
        if not counts[old.assignor]:
            del counts[old.assignor]
    if new.assignor is not None:
        if new.assignor not in counts:
            counts = {new.assignor: 0, **counts}  # in Java, HashMap.compute inserts a key before others of its bucket
        counts[new.assignor] += 1
    return max(counts, key=counts.__getitem__, default=settings.consumer_assignors[0])


def _supported(group: ConsumerGroup) -> list[str]:
    """Return the preferred assignors, without those of the log that only another coordinator supports."""
    return [name for name in ASSIGNORS if name in group.assignors]


def _specification(step: Step, group: ConsumerGroup, new: ConsumerMember, *, homogeneous: bool) -> GroupSpecification:
    replaced = _replaced_member(group, new)
    subscribed = SubscribedTopics(group, step.topics)
    instance_ids = {member_id: instance_id for instance_id, member_id in group.static_members.items()}
    previous: Mapping[str, Target] = group.targets
    members = group.member_order.ordered(added=new.member_id, removed=replaced)
    sizes = [group.target_sizes.get(member_id, 0) for member_id in members]
    if replaced is not None:
        previous = ChainMap({new.member_id: group.targets.get(replaced, NO_TARGET)}, group.targets)
        sizes[members.index(new.member_id)] = group.target_sizes.get(replaced, 0)
    if new.instance_id is not None:
        instance_ids[new.member_id] = new.instance_id

    def subscription(member_id: str) -> Mapping[str, int]:
        return subscribed.of(new.subscription if member_id == new.member_id else group.topics_of[member_id])

    return GroupSpecification(
        members=members,
        instance_ids=instance_ids,
        subscription=subscription,
        previous=previous,
        sizes=sizes,
        owners=group.target_owners,
        homogeneous=homogeneous,
    )


def _replaced_member(group: ConsumerGroup, new: ConsumerMember) -> str | None:
    """Return the ID of the static member that a new member replaces."""
    existing = group.static_members.get(new.instance_id or "")
    return None if existing == new.member_id else existing
