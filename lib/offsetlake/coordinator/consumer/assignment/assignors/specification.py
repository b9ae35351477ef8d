"""What an assignor works on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from offsetlake.coordinator.epoch_groups.assignment import Target


@dataclass(frozen=True, slots=True)
class GroupSpecification:
    """The members, subscriptions and previous target assignments of a group.

    Attributes:
        members: The member IDs, in the order in which a broker iterates over them.
        instance_ids: The instance IDs of static members.
        subscription: Returns the existing topics that a member is subscribed to: the number of partitions by topic ID,
            in the order in which a broker iterates over them.
        previous: The previous target assignment of each member.
        sizes: The number of partitions in the previous target assignment of each of `members`.
        owners: The member that had each partition, by topic ID; may have members that left.
        homogeneous: Whether all members are subscribed to the same topics.
    """

    members: list[str]
    instance_ids: Mapping[str, str]
    subscription: Callable[[str], Mapping[str, int]]
    previous: Mapping[str, Target]
    sizes: Sequence[int]
    owners: Mapping[str, Mapping[int, str]]
    homogeneous: bool
