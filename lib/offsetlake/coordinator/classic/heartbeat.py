"""Heartbeat: a member is alive, and learns that a rebalance is in progress."""

from offsetlake.coordinator.classic.answers import restart_session
from offsetlake.coordinator.classic.group import ClassicGroup, ClassicState
from offsetlake.coordinator.classic.requests import ClassicHeartbeatReply, ClassicHeartbeatRequest
from offsetlake.coordinator.steps import Step, Token
from offsetlake.kafka.error_codes import ILLEGAL_GENERATION, INVALID_GROUP_ID, NONE, REBALANCE_IN_PROGRESS


def heartbeat(step: Step, group: ClassicGroup, request: ClassicHeartbeatRequest, token: Token) -> None:
    """Process a Heartbeat request."""
    error = group.member_error(request.member_id, request.instance_id) if group.group_id else INVALID_GROUP_ID
    if error == NONE and request.generation != group.generation:
        error = ILLEGAL_GENERATION
    if error == NONE:
        restart_session(step, group, group.members[request.member_id])
        if group.state is ClassicState.PREPARING_REBALANCE:
            error = REBALANCE_IN_PROGRESS
    step.reply(token, ClassicHeartbeatReply(error))


def committed(step: Step, group: ClassicGroup, member_id: str) -> None:
    """Restart the session of the member whose OffsetCommit was accepted; ignore other IDs."""
    if group.state in {ClassicState.STABLE, ClassicState.PREPARING_REBALANCE} and member_id in group.members:
        restart_session(step, group, group.members[member_id])
