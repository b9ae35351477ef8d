"""The assignor `range`: each topic is divided into ranges, in the order of the members (`RangeAssignor`)."""

from offsetlake.coordinator.consumer.assignment.assignors.specification import GroupSpecification
from offsetlake.coordinator.epoch_groups.assignment import Target, set_order_of


def assign(group: GroupSpecification) -> dict[str, Target]:
    """Return the assignment of each member: co-partitioned topics have the same ranges."""
    members = sorted(group.members, key=lambda member_id: _position(group, member_id))
    subscribers: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    for member_id in members:
        subscription = group.subscription(members[0] if group.homogeneous else member_id)
        for topic_id, partitions in subscription.items():
            subscribers.setdefault(topic_id, []).append(member_id)
            sizes[topic_id] = partitions
    assigned: dict[str, dict[str, tuple[int, ...]]] = {member_id: {} for member_id in members}
    for topic_id, topic_members in subscribers.items():
        quota, extra = divmod(sizes[topic_id], len(topic_members))
        start = 0
        for index, member_id in enumerate(topic_members):
            end = start + quota + (index < extra)
            if start < end:
                assigned[member_id][topic_id] = set_order_of(range(start, end))
            start = end
    return {**assigned}


def _position(group: GroupSpecification, member_id: str) -> tuple[bool, bytes]:
    """Return the sort key of a member: static members come first, by instance ID."""
    instance_id = group.instance_ids.get(member_id)
    return instance_id is None, (instance_id or member_id).encode("utf-16-be", "surrogatepass")
