"""The protocols (assignors) that the members of a classic group support, and the topics they subscribe to."""

from collections import Counter
from collections.abc import Collection, Iterable

from offsetlake.coordinator.classic.member import ClassicMember
from offsetlake.coordinator.hash_order import hash_code, hash_order
from offsetlake.kafka.records.consumer_protocol import decode_subscription


class ProtocolCounts:
    """Counts the members that support each protocol."""

    __slots__ = ("_members_by_protocol",)

    def __init__(self) -> None:
        self._members_by_protocol: Counter[str] = Counter()

    def add(self, names: Iterable[str]) -> None:
        """Count a member that supports these protocols."""
        for name in names:
            self._members_by_protocol[name] += 1

    def remove(self, names: Iterable[str]) -> None:
        """Stop to count a member that supports these protocols."""
        for name in names:
            self._members_by_protocol[name] -= 1
            if not self._members_by_protocol[name]:
                del self._members_by_protocol[name]

    def supports_any(self, names: Iterable[str], members: int) -> bool:
        """Return whether all of the members, whose number is `members`, support one of the protocols."""
        return any(self._members_by_protocol[name] == members for name in names)

    def supported_by_all(self, members: int) -> set[str]:
        """Return the protocols that all of the members, whose number is `members`, support."""
        return {name for name, count in self._members_by_protocol.items() if count == members}


def select_protocol(members: Collection[ClassicMember], counts: ProtocolCounts) -> str:
    """Return the protocol with the most votes; each member votes for the first one that all members support.

    Of several with the same number of votes, a broker selects the first in the order of a Java HashMap; so does this.
    """
    candidates = counts.supported_by_all(len(members))
    votes = Counter(member.vote(candidates) for member in members)
    return max(hash_order(votes.keys(), hash_code), key=votes.__getitem__)


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions, None if one of them cannot be decoded."""
    topics: set[str] = set()
    for blob in metadata:
        subscription, _ = decode_subscription(blob)
        if subscription is None:
            return None
        topics.update(subscription["topics"])
    return frozenset(topics)
