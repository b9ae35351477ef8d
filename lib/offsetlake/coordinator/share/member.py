"""Members of a share group, as their two records describe them."""

from typing import Self

from offsetlake.coordinator.epoch_groups.assignment import Assignment, to_record
from offsetlake.coordinator.epoch_groups.member import EpochMember, Value

NO_METADATA: Value = {"rackId": None, "clientId": "", "clientHost": "", "subscribedTopicNames": []}
"""The metadata of a member that has only a current assignment, as in a broker."""

_STABLE = 0
NO_CURRENT: Value = {"memberEpoch": 0, "previousMemberEpoch": -1, "state": _STABLE, "assignedPartitions": []}
"""The current assignment of a member that has only metadata, as in a broker."""


class ShareMember(EpochMember):
    """A member: the values of its ShareGroupMemberMetadata and ShareGroupCurrentMemberAssignment."""

    __slots__ = ()

    def __new__(cls, member_id: str, metadata: Value = NO_METADATA, current: Value = NO_CURRENT) -> Self:
        """Return a member, by default one without records."""
        return super().__new__(cls, member_id, metadata, current)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether the member has the target assignment of this epoch."""
        return self.epoch == epoch and self.current.get("state", _STABLE) == _STABLE

    def at(self, epoch: int, assigned: Assignment) -> "ShareMember":
        """Return the member with the assignment of an epoch; if that is another one, its epoch is the previous one."""
        current = {
            "memberEpoch": epoch,
            "previousMemberEpoch": self.previous_epoch if epoch == self.epoch else self.epoch,
            "state": _STABLE,
            "assignedPartitions": to_record(assigned),
        }
        return self._replace(current=current)
