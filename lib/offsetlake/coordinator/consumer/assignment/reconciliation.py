"""Moves a member from its current assignment towards the target assignment (`CurrentAssignmentBuilder`).

| State                 | The member | It leaves the state when |
|-----------------------|------------|--------------------------|
| STABLE                | has its target assignment | there is a newer target assignment |
| UNREVOKED_PARTITIONS  | must revoke partitions, and keeps its epoch | it no longer owns them |
| UNRELEASED_PARTITIONS | has the epoch of the target | all partitions of its target are free or assigned to it |
"""

from collections.abc import Container
from dataclasses import dataclass

from offsetlake.coordinator.consumer.group import NO_EPOCH, ConsumerGroup
from offsetlake.coordinator.consumer.member import ConsumerMember, MemberState
from offsetlake.coordinator.epoch_groups.assignment import NO_PARTITIONS, NOTHING_ASSIGNED, Assignment, overlap
from offsetlake.coordinator.epoch_groups.requests import RequestError
from offsetlake.kafka import error_codes


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What one heartbeat of a member is reconciled with.

    Attributes:
        group: The group, for the owners of partitions.
        epoch: The epoch of the target assignment.
        target: The target assignment of the member.
        subscribed: The IDs of the topics that the member is subscribed to.
        owned: The partitions that the member owns; None if it did not send them.
        subscription_changed: Whether the member changed its subscription in this heartbeat.
    """

    group: ConsumerGroup
    epoch: int
    target: Assignment
    subscribed: Container[str]
    owned: Assignment | None
    subscription_changed: bool

    def next_state(self, member: ConsumerMember) -> ConsumerMember:
        """Return the member after the heartbeat.

        Raises:
            RequestError: The member is in an unknown state and must rejoin.
        """
        match member.state:
            case MemberState.STABLE:
                if member.epoch != self.epoch:
                    return self._towards_target(member, member.epoch)
                return self._without_unsubscribed(member)
            case MemberState.UNREVOKED_PARTITIONS:
                if overlap(self.owned, member.pending_revocation):
                    return self._without_unsubscribed(member)
                return self._towards_target(member, member.epoch)
            case MemberState.UNRELEASED_PARTITIONS:
                return self._towards_target(member, member.epoch)
            case _:
                if self.owned is None or self.owned:
                    message = (
                        "The consumer group member is in a unknown state. "
                        "The member must abandon all its partitions and rejoin."
                    )
                    raise RequestError(error_codes.FENCED_MEMBER_EPOCH, message)
                return self._towards_target(member, self.epoch)

    def _without_unsubscribed(self, member: ConsumerMember) -> ConsumerMember:
        """Return the member without the topics that it just unsubscribed from, at the same epochs."""
        assigned = member.assigned
        removed = {topic_id: assigned[topic_id] for topic_id in assigned if topic_id not in self.subscribed}
        if not self.subscription_changed or not removed:
            return member
        kept = {topic_id: partitions for topic_id, partitions in assigned.items() if topic_id not in removed}
        pending = {**member.pending_revocation}
        for topic_id, partitions in removed.items():
            pending[topic_id] = partitions | pending.get(topic_id, NO_PARTITIONS)
        if overlap(self.owned, pending):
            state = MemberState.UNREVOKED_PARTITIONS
            return member.with_current(member.epoch, member.previous_epoch, state, kept, pending)
        return member.with_current(member.epoch, member.previous_epoch, member.state, kept, member.pending_revocation)

    def _towards_target(self, member: ConsumerMember, epoch: int) -> ConsumerMember:
        assigned, already_pending = member.assigned, member.pending_revocation
        kept: dict[str, frozenset[int]] = {}
        to_revoke: dict[str, frozenset[int]] = {}
        to_assign: dict[str, frozenset[int]] = {}
        unreleased = False
        for topic_id in self.target.keys() | assigned.keys():
            target = self.target.get(topic_id, NO_PARTITIONS) if topic_id in self.subscribed else NO_PARTITIONS
            current = assigned.get(topic_id, NO_PARTITIONS)
            if target == current:
                if current:
                    kept[topic_id] = current
                continue
            if current:
                if still_assigned := current & target:
                    kept[topic_id] = still_assigned
                if revoked := current - target:
                    to_revoke[topic_id] = revoked
            missing = target - current if current else target
            free = self._free(topic_id, missing, already_pending.get(topic_id, NO_PARTITIONS))
            unreleased = unreleased or len(free) < len(missing)
            if free:
                to_assign[topic_id] = free
        if to_revoke and overlap(self.owned, to_revoke):
            return member.moved_to(epoch, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke)
        grown = {topic_id: kept[topic_id] | to_assign[topic_id] for topic_id in kept.keys() & to_assign.keys()}
        new = {**kept, **to_assign, **grown}
        state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
        return member.moved_to(self.epoch, state, new, NOTHING_ASSIGNED)

    def _free(self, topic_id: str, partitions: frozenset[int], pending: frozenset[int]) -> frozenset[int]:
        """Return the partitions that no other member owns; `pending` are those that the member is about to revoke."""
        epochs = self.group.partition_epochs.get(topic_id)
        if epochs is None:
            return partitions
        return frozenset(
            partition for partition in partitions if partition in pending or epochs.get(partition, NO_EPOCH) == NO_EPOCH
        )
