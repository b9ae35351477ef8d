"""Members leave a group: by LeaveGroup, or because their session expired."""

from offsetlake.coordinator.classic.answers import remove_member
from offsetlake.coordinator.classic.group import ClassicGroup, ClassicState
from offsetlake.coordinator.classic.rebalance.join_phase import complete_join, prepare_rebalance, rebalance
from offsetlake.coordinator.classic.requests import (
    NO_MEMBER_ID,
    LeaveReply,
    LeaveRequest,
    LeavingMember,
    LeftMember,
)
from offsetlake.coordinator.steps import Step, Token
from offsetlake.kafka.error_codes import INVALID_GROUP_ID, NONE, UNKNOWN_MEMBER_ID


def leave(step: Step, group: ClassicGroup, request: LeaveRequest, token: Token) -> None:
    """Process a LeaveGroup request, in which each member succeeds or fails on its own."""
    if not group.group_id:
        step.reply(token, LeaveReply(INVALID_GROUP_ID))
        return
    left = tuple(_leave(step, group, member) for member in request.members)
    step.reply(token, LeaveReply(NONE, left))
    if any(member.error == NONE for member in left) and not group.is_empty():
        reasons = {member.reason or "reason not provided" for member in request.members}
        rebalance(step, group, f"members left: {', '.join(sorted(reasons))}")


def session_timer_due(step: Step, group: ClassicGroup, member_id: str) -> None:
    """Remove a member that has sent no heartbeat, or an ID whose member has not joined.

    As in a broker, an initial delay ends if the others have all joined.
    """
    member = group.members.get(member_id)
    if member is not None and member.is_expired_by_session():
        remove_member(step, group, member_id)
        if group.state is not ClassicState.PREPARING_REBALANCE:
            prepare_rebalance(step, group, f"the session of member {member_id} expired")
            return
    elif member_id in group.pending_joins:
        remove_member(step, group, member_id)
    else:
        return
    if group.state is ClassicState.PREPARING_REBALANCE and not group.is_awaiting_joins():
        complete_join(step, group)


def _leave(step: Step, group: ClassicGroup, member: LeavingMember) -> LeftMember:
    """Remove a member; an administrator removes a static member by its instance ID alone."""
    member_id: str | None = member.member_id
    if member_id == NO_MEMBER_ID:
        member_id = None if member.instance_id is None else group.static_ids.get(member.instance_id)
        error = UNKNOWN_MEMBER_ID if member_id is None else NONE
    elif member_id in group.pending_joins:
        error = NONE
    else:
        error = group.member_error(member.member_id, member.instance_id)
    if member_id is not None and error == NONE:
        remove_member(step, group, member_id)
    return LeftMember(member.member_id, member.instance_id, error)
