"""Members of a group with epochs, as their two records describe them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from offsetlake.coordinator.epoch_groups.assignment import Assignment, from_record

Value = Mapping[str, Any]
_MEMBER_BYTES = 3_000  # of the objects of a member, without what its client chooses


class EpochMember(NamedTuple):
    """A member: the values of its records of metadata and of its current assignment."""

    member_id: str
    metadata: Value
    current: Value

    @property
    def epoch(self) -> int:
        """The member epoch."""
        epoch: int = self.current["memberEpoch"]
        return epoch

    @property
    def previous_epoch(self) -> int:
        """The previous member epoch."""
        epoch: int = self.current["previousMemberEpoch"]
        return epoch

    @property
    def topics(self) -> list[str]:
        """The names of the topics that the member subscribed to."""
        names: list[str] = self.metadata["subscribedTopicNames"]
        return names

    @property
    def regex(self) -> str | None:
        """The regular expression that the member subscribed to; share groups have none."""
        return self.metadata.get("subscribedTopicRegex") or None

    @property
    def assigned(self) -> Assignment:
        """The partitions that the member may own."""
        return from_record(self.current.get("assignedPartitions", ()))

    def size_bytes(self) -> int:
        """Return the approximate memory of the member: its objects, its texts, and its partitions in four places."""
        texts = (self.member_id, self.metadata["clientId"], *self.topics)
        optional = (self.metadata["rackId"], self.regex)
        return (
            _MEMBER_BYTES
            + sum(map(len, texts))
            + sum(len(text or "") for text in optional)
            + 32 * sum(len(topic["partitions"]) for topic in self.current.get("assignedPartitions", ()))
        )
