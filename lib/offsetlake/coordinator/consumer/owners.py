"""The members that own partitions, or have them in their target assignments, by topic ID."""

from collections.abc import Iterator

from offsetlake.coordinator.consumer.member import ConsumerMember
from offsetlake.coordinator.epoch_groups.assignment import Target


def replace_current(epochs: dict[str, dict[int, int]], old: ConsumerMember | None, new: ConsumerMember | None) -> None:
    """Replace the current assignment of a member in the epochs of the owners; None is a member that does not exist."""
    if old is not None:
        _remove_current(epochs, old)
    if new is not None:
        _add_current(epochs, new)


def _remove_current(epochs: dict[str, dict[int, int]], member: ConsumerMember) -> None:
    epoch = member.epoch
    for topic_id, partitions in _owned(member):
        of_topic = epochs.get(topic_id, {})
        for partition in partitions:
            if of_topic.get(partition) == epoch:
                del of_topic[partition]
        if not of_topic:
            epochs.pop(topic_id, None)


def _add_current(epochs: dict[str, dict[int, int]], member: ConsumerMember) -> None:
    epoch = member.epoch
    for topic_id, partitions in _owned(member):
        of_topic = epochs.get(topic_id)
        if of_topic is None:
            epochs[topic_id] = dict.fromkeys(partitions, epoch)
            continue
        for partition in partitions:
            if of_topic.setdefault(partition, epoch) < epoch:
                of_topic[partition] = epoch


def replace_target(owners: dict[str, dict[int, str]], member_id: str, old: Target, new: Target) -> None:
    """Replace the target assignment of a member in the members that have partitions."""
    for topic_id, partitions in old.items():
        of_topic = owners.get(topic_id, {})
        for partition in set(partitions).difference(new.get(topic_id, ())):
            if of_topic.get(partition) == member_id:
                del of_topic[partition]
        if not of_topic:
            owners.pop(topic_id, None)
    for topic_id, partitions in new.items():
        added = set(partitions).difference(old[topic_id]) if topic_id in old else partitions
        owners.setdefault(topic_id, {}).update(dict.fromkeys(added, member_id))


def _owned(member: ConsumerMember) -> Iterator[tuple[str, list[int]]]:
    for name in ("assignedPartitions", "partitionsPendingRevocation"):
        for topic in member.current.get(name, ()):
            if topic["partitions"]:
                yield topic["topicId"], topic["partitions"]
