"""The subscriptions of a group with epochs, counted by topic name and regular expression."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from offsetlake.coordinator.epoch_groups.member import EpochMember


class KnownTopics(NamedTuple):
    """The number of partitions of each of some topics by their IDs, at a version of the topics."""

    version: int
    names: list[str]
    partitions: Mapping[str, int]


@dataclass(slots=True)
class Subscriptions:
    """Counts without zeros.

    Attributes:
        by_name: The number of members that subscribed to a topic by name.
        by_regex: The number of evaluated regular expressions that match a topic.
        regex_members: The number of members that subscribed to a regular expression.
    """

    by_name: dict[str, int] = field(default_factory=dict)
    by_regex: dict[str, int] = field(default_factory=dict)
    regex_members: dict[str, int] = field(default_factory=dict)

    def topics(self) -> set[str]:
        """Return the names of all topics that the group is subscribed to."""
        return self.by_name.keys() | self.by_regex.keys()

    def copy(self) -> "Subscriptions":
        """Return a copy."""
        return Subscriptions(dict(self.by_name), dict(self.by_regex), dict(self.regex_members))

    def replace(self, old: EpochMember | None, new: EpochMember | None) -> None:
        """Replace the subscription of a member; None is a member that does not exist."""
        for member, change in ((old, -1), (new, 1)):
            if member is not None:
                _add(self.by_name, member.topics, change)
                _add(self.regex_members, (member.regex,) if member.regex else (), change)

    def match(self, old_topics: Iterable[str], new_topics: Iterable[str]) -> None:
        """Replace the topics that one regular expression matches."""
        _add(self.by_regex, old_topics, -1)
        _add(self.by_regex, new_topics, 1)

    def is_homogeneous(self, members: int) -> bool:
        """Return whether all members are subscribed to the same topics, as far as a broker determines it."""
        if not self.regex_members:
            return all(self.by_name.get(topic) == members for topic in self.topics())
        if next(iter(self.regex_members.values())) != members:
            return False
        return not self.by_name and all(count == 1 for count in self.by_regex.values())


def _add(counts: dict[str, int], names: Iterable[str], change: int) -> None:
    for name in names:
        count = counts.get(name, 0) + change
        if count > 0:
            counts[name] = count
        else:
            counts.pop(name, None)
