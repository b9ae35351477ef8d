"""Replies to members that wait, and the removal of members.

Every request is answered exactly once. There are two cases in which a broker never answers: a request that waits while
the same member sends another one, and a SyncGroup request of a member that leaves. Here, the first is answered with
REBALANCE_IN_PROGRESS, so that the client joins again, and the second with UNKNOWN_MEMBER_ID.
"""

from offsetlake.coordinator.classic.group import ClassicGroup
from offsetlake.coordinator.classic.member import EMPTY_ASSIGNMENT, ClassicMember
from offsetlake.coordinator.classic.requests import NO_MEMBER_ID, JoinedMember, JoinReply, SyncReply
from offsetlake.coordinator.rewind import NOT_WRITTEN, RewindReply
from offsetlake.coordinator.steps import Step, TimerKind, Token
from offsetlake.kafka.error_codes import NONE, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID


def await_join(step: Step, group: ClassicGroup, member: ClassicMember, token: Token) -> None:
    """Store a JoinGroup request, which is answered when the join phase ends."""
    answer_join(step, group, member, JoinReply(REBALANCE_IN_PROGRESS, member.member_id))
    group.set_join_token(member, token)


def await_sync(step: Step, member: ClassicMember, token: Token) -> None:
    """Store a SyncGroup request, which is answered when the leader has sent the assignment."""
    answer_sync(step, member, SyncReply(REBALANCE_IN_PROGRESS))
    member.sync_token = token


def answer_join(step: Step, group: ClassicGroup, member: ClassicMember, reply: JoinReply) -> None:
    """Answer the JoinGroup request of a member, if one waits."""
    if member.join_token is not None:
        step.reply(member.join_token, reply)
        group.set_join_token(member, None)


def answer_sync(step: Step, member: ClassicMember, reply: SyncReply) -> bool:
    """Answer the SyncGroup request of a member, and return whether one was waiting."""
    if member.sync_token is None:
        return False
    step.reply(member.sync_token, reply)
    member.sync_token = None
    return True


def answer_all(step: Step, group: ClassicGroup, error: int) -> None:
    """Answer all waiting requests with an error."""
    for member in group.members.values():
        answer_join(step, group, member, JoinReply(error, member.member_id))
        answer_sync(step, member, SyncReply(error))
    if group.rewind is not None:
        step.reply(group.rewind.token, RewindReply(NOT_WRITTEN))
        group.rewind = None


def joined(group: ClassicGroup, member_id: str) -> JoinReply:
    """Return the reply of a successful join in the present generation; the leader receives the members."""
    return JoinReply(
        NONE,
        member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader_id or "",
        members=joined_members(group) if group.is_leader(member_id) else (),
    )


def joined_members(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    """Return the members with their metadata for the protocol of the generation."""
    protocol = group.protocol or ""
    return tuple(
        JoinedMember(member.member_id, member.instance_id, member.protocols[protocol])
        for member in group.members.values()
    )


def distribute_assignments(step: Step, group: ClassicGroup) -> None:
    """Answer all waiting SyncGroup requests with the assignments of their members."""
    for member in group.members.values():
        if answer_sync(step, member, synced(group, member)):
            restart_session(step, group, member)


def reset_assignments(step: Step, group: ClassicGroup, error: int) -> None:
    """Take all assignments away, and answer all waiting SyncGroup requests with an error."""
    for member in group.members.values():
        group.assign(member, EMPTY_ASSIGNMENT)
        if answer_sync(step, member, SyncReply(error)):
            restart_session(step, group, member)


def synced(group: ClassicGroup, member: ClassicMember) -> SyncReply:
    """Return the reply with the assignment of a member."""
    return SyncReply(NONE, group.protocol_type, group.protocol, member.assignment)


def restart_session(step: Step, group: ClassicGroup, member: ClassicMember) -> None:
    """Set the session timer of a member from now on."""
    step.set_timer(TimerKind.SESSION, group.group_id, member.session_timeout_ms, member.member_id)


def remove_member(step: Step, group: ClassicGroup, member_id: str) -> None:
    """Remove a member or a pending ID; a request of the member that waits is answered with UNKNOWN_MEMBER_ID."""
    member = group.members.get(member_id)
    if member is not None:
        answer_join(step, group, member, JoinReply(UNKNOWN_MEMBER_ID, NO_MEMBER_ID))
        answer_sync(step, member, SyncReply(UNKNOWN_MEMBER_ID))
    step.cancel_timer(TimerKind.SESSION, group.group_id, member_id)
    group.remove(member_id)


def forget(step: Step, group: ClassicGroup, error: int) -> None:
    """Answer all waiting requests with an error, cancel all timers, and remove all members."""
    answer_all(step, group, error)
    for member_id in [*group.members, *group.pending_joins]:
        remove_member(step, group, member_id)
    step.cancel_timer(TimerKind.JOIN, group.group_id)
    step.cancel_timer(TimerKind.SYNC, group.group_id)
    group.exists = False
