"""A member that joins or changes: its records, the group epoch, the target assignment, and its current assignment."""

from collections.abc import Callable

from offsetlake.coordinator.consumer import records, regexes, rewind, timers
from offsetlake.coordinator.consumer.assignment import target
from offsetlake.coordinator.consumer.assignment.reconciliation import Reconciliation
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.member import ConsumerMember, MemberState
from offsetlake.coordinator.consumer.regexes import RegexChange
from offsetlake.coordinator.epoch_groups.assignment import Assignment, Target, to_assignment
from offsetlake.coordinator.epoch_groups.requests import RequestError
from offsetlake.coordinator.steps import Record, Step
from offsetlake.kafka import error_codes


class MemberUpdate:
    """One request of a member; the state is not changed before all of its `records` are known."""

    def __init__(self, step: Step, group: ConsumerGroup) -> None:
        self._step, self._group = step, group
        self.records: list[Record] = []

    def check_size(self, member_id: str) -> None:
        """Raise RequestError if the group has no place for the member."""
        max_size = self._step.settings.consumer_max_size
        if len(self._group.state.members) >= max_size and member_id not in self._group.state.members:
            message = f"The consumer group has reached its maximum capacity of {max_size} members."
            raise RequestError(error_codes.GROUP_MAX_SIZE_REACHED, message)

    def replace_static_member(self, existing: ConsumerMember, member_id: str) -> ConsumerMember:
        """Return the member that takes the place, subscription and assignment of one with the same instance ID."""
        group_id = self._group.group_id
        assigned, pending = existing.assigned, existing.pending_revocation
        member = existing.with_current(0, 0, existing.state, assigned, pending)._replace(member_id=member_id)
        self.records += records.no_member(group_id, existing.member_id)
        self.records += [
            records.member_metadata(group_id, member),
            records.target_assignment(group_id, member_id, self._group.target(existing)),
            records.current_assignment(group_id, member),
        ]
        return member

    def subscribe(
        self, old: ConsumerMember, new: ConsumerMember, may_describe: Callable[[str], bool]
    ) -> tuple[bool, RegexChange]:
        """Return whether the topic names changed, and what happened to the regular expression.

        Raises:
            RequestError: The regular expression is not valid.
        """
        is_changed = new.metadata is not old.metadata
        if is_changed:
            self.records.append(records.member_metadata(self._group.group_id, new))
        change = regexes.update(self._step, self._group, old, new, may_describe, self.records)
        return is_changed and set(new.topics) != set(old.topics), change

    def bump_epoch(self, old: ConsumerMember, new: ConsumerMember, *, bump: bool) -> tuple[int, bool]:
        """Return the group epoch, and whether all members are subscribed to the same topics.

        The epoch increases if that is required, and if the subscribed topics have changed since the last comparison.
        """
        step, group, state = self._step, self._group, self._group.state
        if not bump and not group.metadata_expired(step.now_ms):
            return state.epoch, group.homogeneous and self._is_homogeneous_with(old, new)
        after = group.subscriptions.copy()
        if old.regex and old.regex != new.regex and after.regex_members.get(old.regex) == 1:
            after.match(state.regexes.get(old.regex, ()), ())
        after.replace(old, new)
        metadata_hash = step.hashes.of(after.topics(), step.topics)
        epoch = state.epoch
        if bump or metadata_hash != state.metadata_hash:
            epoch += 1
            self.records.append(records.group_epoch(group.group_id, epoch, metadata_hash))
        group.metadata_refreshed(step.now_ms, epoch)
        if state.has_partition_metadata:
            self.records.append(records.no_partition_metadata(group.group_id))
        return epoch, after.is_homogeneous(len(state.members) + self._is_additional(new))

    def assign(self, old: ConsumerMember, new: ConsumerMember, epoch: int, *, homogeneous: bool) -> tuple[int, Target]:
        """Return the epoch of the target assignment and that of the member, computed if the group epoch is greater."""
        group = self._group
        epoch = rewind.target_epoch(group, epoch)
        if epoch <= group.state.assignment_epoch:
            return group.state.assignment_epoch, group.target(new)
        assignment, changes = target.assign(self._step, group, epoch, old, new, homogeneous=homogeneous)
        self.records += changes
        return epoch, assignment

    def reconcile(
        self, member: ConsumerMember, epoch: int, assignment: Target, owned: Assignment | None, *, changed: bool
    ) -> ConsumerMember:
        """Return the member with its next current assignment; `changed` is whether its subscription has changed."""
        if not changed and member.is_reconciled_to(epoch):
            return member
        step, group = self._step, self._group
        subscribed = target.SubscribedTopics(group, step.topics).of(member.subscription)
        reconciliation = Reconciliation(group, epoch, to_assignment(assignment), subscribed, owned, changed)
        new = reconciliation.next_state(member)
        if new.same_current(member):
            return member
        self.records.append(records.current_assignment(group.group_id, new))
        if new.uses_classic_protocol:  # it has the timers of JoinGroup and SyncGroup
            return new
        if new.state is MemberState.UNREVOKED_PARTITIONS:
            timers.set_revocation_timer(step, group, new)
        else:
            timers.cancel_revocation_timer(step, group, new)
        return new

    def _is_homogeneous_with(self, old: ConsumerMember, new: ConsumerMember) -> bool:
        """Return whether all members are subscribed to the same topics when the member is among them.

        A broker does not consider a member that joins without topic names after another one has left. It then assigns
        partitions to the new member, which is not subscribed to them, and they have no owner.
        """
        group = self._group
        if old.metadata is new.metadata:
            return True
        after = group.subscriptions.copy()
        after.replace(old, new)
        return after.is_homogeneous(len(group.state.members) + self._is_additional(new))

    def _is_additional(self, member: ConsumerMember) -> bool:
        """Return whether the member is new and does not replace another one."""
        return (
            member.member_id not in self._group.state.members and member.instance_id not in self._group.static_members
        )
