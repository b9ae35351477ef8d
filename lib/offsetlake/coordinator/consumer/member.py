"""Members of a consumer group, as their two records describe them."""

import base64
from enum import IntEnum
from typing import Self

from offsetlake.coordinator.epoch_groups.assignment import Assignment, from_record, to_record
from offsetlake.coordinator.epoch_groups.member import EpochMember, Value

NO_METADATA: Value = {
    "instanceId": None,
    "rackId": None,
    "clientId": "",
    "clientHost": "",
    "subscribedTopicNames": [],
    "subscribedTopicRegex": "",
    "rebalanceTimeoutMs": -1,
    "serverAssignor": None,
    "classicMemberMetadata": None,
}
"""The metadata of a member that has only a current assignment, as in a broker."""

NO_CURRENT: Value = {
    "memberEpoch": 0,
    "previousMemberEpoch": -1,
    "state": 0,
    "assignedPartitions": [],
    "partitionsPendingRevocation": [],
}
"""The current assignment of a member that has only metadata, as in a broker."""


class MemberState(IntEnum):
    """Values of `state` in a current assignment."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


_DEFAULT_CLASSIC: Value = {"sessionTimeoutMs": 0, "supportedProtocols": []}
_STATES = {int(state): state for state in MemberState}


class ConsumerMember(EpochMember):
    """A member: the values of its ConsumerGroupMemberMetadata and ConsumerGroupCurrentMemberAssignment."""

    __slots__ = ()

    def __new__(cls, member_id: str, metadata: Value = NO_METADATA, current: Value = NO_CURRENT) -> Self:
        """Return a member, by default one without records."""
        return super().__new__(cls, member_id, metadata, current)

    @property
    def state(self) -> MemberState:
        """The state of the reconciliation."""
        return _STATES.get(self.current.get("state", 0), MemberState.UNKNOWN)

    @property
    def instance_id(self) -> str | None:
        """The instance ID of a static member."""
        instance_id: str | None = self.metadata["instanceId"]
        return instance_id

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the member may take to revoke partitions."""
        timeout_ms: int = self.metadata["rebalanceTimeoutMs"]
        return timeout_ms

    @property
    def subscription(self) -> tuple[tuple[str, ...], str | None]:
        """The topic names and the regular expression that the member subscribed to."""
        return tuple(self.topics), self.regex

    @property
    def assignor(self) -> str | None:
        """The assignor that the member prefers."""
        name: str | None = self.metadata["serverAssignor"]
        return name

    @property
    def classic(self) -> Value | None:
        """The session timeout and the protocols of a member that uses the classic protocol, None for any other."""
        metadata: Value | None = self.metadata.get("classicMemberMetadata", _DEFAULT_CLASSIC)
        return metadata

    @property
    def uses_classic_protocol(self) -> bool:
        """Whether the member uses the classic protocol in a group of the consumer protocol."""
        return self.classic is not None

    @property
    def classic_protocols(self) -> dict[str, bytes]:
        """The metadata of each protocol that a member with the classic protocol supports, in order of preference."""
        protocols = (self.classic or _DEFAULT_CLASSIC)["supportedProtocols"]
        return {protocol["name"]: base64.b64decode(protocol["metadata"]) for protocol in protocols}

    @property
    def pending_revocation(self) -> Assignment:
        """The partitions that the member must revoke."""
        return from_record(self.current.get("partitionsPendingRevocation", ()))

    def size_bytes(self) -> int:
        """Return the approximate memory of the member, with what only this protocol has."""
        protocols = (self.classic or _DEFAULT_CLASSIC)["supportedProtocols"]
        return (
            super().size_bytes()
            + sum(len(text or "") for text in (self.instance_id, self.assignor))
            + sum(len(protocol["name"]) + len(protocol["metadata"]) for protocol in protocols)
            + 32 * sum(len(topic["partitions"]) for topic in self.current.get("partitionsPendingRevocation", ()))
        )

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether the member has all partitions of the target assignment of this epoch, and no others."""
        return self.epoch == epoch and self.state is MemberState.STABLE

    def moved_to(
        self, epoch: int, state: MemberState, assigned: Assignment, pending_revocation: Assignment
    ) -> "ConsumerMember":
        """Return the member with another current assignment; its epoch becomes the previous one."""
        return self.with_current(epoch, self.epoch, state, assigned, pending_revocation)

    def with_current(
        self, epoch: int, previous_epoch: int, state: MemberState, assigned: Assignment, pending_revocation: Assignment
    ) -> "ConsumerMember":
        """Return the member with another current assignment."""
        current = {
            "memberEpoch": epoch,
            "previousMemberEpoch": previous_epoch,
            "state": int(state),
            "assignedPartitions": to_record(assigned),
            "partitionsPendingRevocation": to_record(pending_revocation),
        }
        return self._replace(current=current)

    def same_current(self, other: "ConsumerMember") -> bool:
        """Return whether both have the same current assignment, in whatever order the partitions are."""
        return (
            (self.epoch, self.previous_epoch, self.state) == (other.epoch, other.previous_epoch, other.state)
            and self.assigned == other.assigned
            and self.pending_revocation == other.pending_revocation
        )
