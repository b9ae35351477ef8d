"""Timers of the members of consumer groups: sessions, revocations, and the joins and syncs of the classic protocol."""

from collections.abc import Iterable

from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.member import ConsumerMember, MemberState
from offsetlake.coordinator.steps import Step, TimerKind


def loaded(step: Step, group: ConsumerGroup) -> None:
    """Set the timers of all members after the group was loaded from the log.

    As in a broker, the session timeout is that of the consumer protocol also for members with the classic protocol.
    """
    for member in group.members():
        step.set_timer(TimerKind.SESSION, group.group_id, step.settings.consumer_session_timeout_ms, member.member_id)
        set_revocation_timer(step, group, member)


def restore(step: Step, group: ConsumerGroup, members: Iterable[ConsumerMember]) -> None:
    """Set the timers of members again whose removal could not be written."""
    for member in members:
        restart_session(step, group, member)
        if not member.uses_classic_protocol:
            set_revocation_timer(step, group, member)


def restart_session(step: Step, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Set the session timer of a member from now on."""
    classic = member.classic
    timeout_ms = step.settings.consumer_session_timeout_ms if classic is None else classic["sessionTimeoutMs"]
    step.set_timer(TimerKind.SESSION, group.group_id, timeout_ms, member.member_id)


def set_revocation_timer(step: Step, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Set the timer of a member that must revoke partitions."""
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        group.revocation_epochs[member.member_id] = member.epoch
        step.set_timer(TimerKind.REVOCATION, group.group_id, member.rebalance_timeout_ms, member.member_id)


def cancel_revocation_timer(step: Step, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Cancel the timer of a member that has revoked its partitions."""
    group.revocation_epochs.pop(member.member_id, None)
    step.cancel_timer(TimerKind.REVOCATION, group.group_id, member.member_id)


def await_join(step: Step, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Fence a member with the classic protocol unless it joins again within its rebalance timeout."""
    if member.member_id not in group.awaited_joins:
        group.awaited_joins |= {member.member_id}
        step.set_timer(TimerKind.MEMBER_JOIN, group.group_id, member.rebalance_timeout_ms, member.member_id)


def joined(step: Step, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Wait for SyncGroup of a member with the classic protocol that has joined."""
    group.awaited_joins -= {member.member_id}
    step.cancel_timer(TimerKind.MEMBER_JOIN, group.group_id, member.member_id)
    restart_session(step, group, member)
    step.set_timer(TimerKind.MEMBER_SYNC, group.group_id, member.rebalance_timeout_ms, member.member_id)


def cancel(step: Step, group: ConsumerGroup, member_id: str) -> None:
    """Cancel all timers of a member."""
    group.revocation_epochs.pop(member_id, None)
    group.awaited_joins -= {member_id}
    for kind in (TimerKind.SESSION, TimerKind.REVOCATION, TimerKind.MEMBER_JOIN, TimerKind.MEMBER_SYNC):
        step.cancel_timer(kind, group.group_id, member_id)


def metadata_changed(group: ConsumerGroup) -> None:
    """Compare the subscribed topics with the ones of the target assignment at the next heartbeat."""
    group.refresh_metadata()
