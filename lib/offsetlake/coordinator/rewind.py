"""Setting the offsets of a group while its members run, which no broker can do.

The partitions are revoked from their owners, then the offsets are written, and then the partitions are assigned again.
No commit of a previous owner is accepted after the offsets, not even after a restart: it has an old generation or
epoch. A rewind in progress is volatile, as a rebalance is. If it ends early, the group continues with the offsets that
it had.

| Protocol | The offsets are written | Members that do not respond are removed after |
|----------|-------------------------|-----------------------------------------------|
| classic, eager | when all members have joined the next generation | their rebalance timeout |
| classic, cooperative | when they have joined the one after a generation without the partitions | the same |
| consumer (KIP-848) | when all owners have revoked the partitions | their session timeout or rebalance timeout |
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from offsetlake.coordinator.steps import Record, Step, Token
from offsetlake.kafka.records.consumer_protocol import decode_subscription

IN_PROGRESS = "another rewind of the group is in progress"
PROTOCOL_CHANGED = "the group changed its protocol"
SHARE_GROUP = "share groups have no committed offsets"
NOT_WRITTEN = "the records of the group could not be written to the log"

Partitions = Mapping[str, frozenset[int]]
"""Partitions by topic name."""


@dataclass(slots=True)
class Rewind:
    """A request to set offsets; the reply to `token` is a RewindReply.

    Attributes:
        offsets: The records of the new offsets, of type OFFSET_COMMIT; a null value deletes an offset.
        partitions: Their partitions.
        generations: How many generations of a classic group began without these partitions.
    """

    token: Token
    offsets: tuple[Record, ...]
    partitions: Partitions = field(init=False)
    generations: int = 0

    def __post_init__(self) -> None:
        self.partitions = by_topic((record.key["topic"], record.key["partition"]) for record in self.offsets)


@dataclass(frozen=True, slots=True)
class RewindReply:
    """The result: the first records of the step are the new offsets, unless there is an error."""

    error: str | None = None


def by_topic(partitions: Iterable[tuple[str, int]]) -> Partitions:
    """Return partitions by topic."""
    found: dict[str, set[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, set()).add(partition)
    return {topic: frozenset(numbers) for topic, numbers in found.items()}


def list_as_owned(subscriptions: Iterable[bytes], partitions: Partitions) -> bool:
    """Return whether one of the subscriptions of members with the classic protocol lists one of the partitions."""
    for blob in subscriptions:
        subscription, _ = decode_subscription(blob)
        for owned in () if subscription is None else subscription.get("ownedPartitions", ()):
            if not partitions.get(owned["topic"], frozenset()).isdisjoint(owned["partitions"]):
                return True
    return False


def complete(step: Step, rewind: Rewind) -> None:
    """Write the offsets, before the other records of the step, because the first record has the audit headers."""
    step.records[:0] = rewind.offsets
    step.reply(rewind.token, RewindReply())
