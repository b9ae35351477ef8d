"""JoinGroup: the checks of a request, new members, and members that join again."""

import uuid
from functools import partial

from offsetlake.coordinator.classic.answers import await_join, forget, joined, remove_member
from offsetlake.coordinator.classic.group import ClassicGroup, ClassicState
from offsetlake.coordinator.classic.member import ClassicMember, first_of_each
from offsetlake.coordinator.classic.rebalance.join_phase import rebalance
from offsetlake.coordinator.classic.rebalance.static_members import replace_static_member
from offsetlake.coordinator.classic.records import new_group_record
from offsetlake.coordinator.classic.requests import NO_MEMBER_ID, JoinReply, JoinRequest
from offsetlake.coordinator.steps import Step, TimerKind, Token
from offsetlake.kafka.error_codes import (
    GROUP_MAX_SIZE_REACHED,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    NONE,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_SERVER_ERROR,
)
from offsetlake.kafka.uuid import uuid_bytes

MAX_PROTOCOLS = 1_000
"""The number of protocols that a member can support. A broker has no such limit."""
MAX_PENDING_JOINS = 10_000
"""The number of member IDs in a group whose members have not joined yet. A broker has no such limit."""

FIRST_VERSION_REQUIRING_MEMBER_ID = 4


def join(step: Step, group: ClassicGroup, request: JoinRequest, token: Token) -> None:
    """Process a JoinGroup request, which creates the group if it does not exist and the member has no ID yet."""
    error = request_error(step, group.group_id, request)
    if error == NONE and request.member_id != NO_MEMBER_ID and not group.exists:
        error = UNKNOWN_MEMBER_ID
    if error == NONE and len(request.protocols) > MAX_PROTOCOLS:
        error = INCONSISTENT_GROUP_PROTOCOL
    if error != NONE:
        step.reply(token, JoinReply(error, request.member_id))
        return
    is_new_group = not group.exists
    if is_new_group:
        group.exists = True
        group.state_timestamp_ms = step.now_ms
    if not _accepts(step, group, request.member_id):
        remove_member(step, group, request.member_id)
        step.reply(token, JoinReply(GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID))
    elif not group.supports(request.protocol_type, request.protocols):
        step.reply(token, JoinReply(INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif request.member_id == NO_MEMBER_ID:
        _join_without_id(step, group, request, token)
    elif request.member_id in group.pending_joins:
        _join_with_new_id(step, group, request, token)
    else:
        _join_again(step, group, request, token)
    if is_new_group:
        step.records.append(new_group_record(group))
        step.undo.append(partial(_undo_creation, group))


def _undo_creation(group: ClassicGroup, step: Step, error: int) -> None:
    forget(step, group, error)


def request_error(step: Step, group_id: str, request: JoinRequest) -> int:
    """Return the error code of a request that is refused whatever the state of the group, else NONE."""
    settings = step.settings
    if not group_id:
        return INVALID_GROUP_ID
    if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
        return INVALID_SESSION_TIMEOUT
    return NONE


def _accepts(step: Step, group: ClassicGroup, member_id: str) -> bool:
    """Return whether the group has a place for the member.

    In the join phase only members that have joined count, so that a group which is larger than the limit shrinks.
    """
    if group.state is ClassicState.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is ClassicState.PREPARING_REBALANCE:
        has_place = member is not None and member.join_token is not None
        return has_place or group.joins_waiting < step.settings.max_size
    return member is not None or len(group.members) < step.settings.max_size


def _join_without_id(step: Step, group: ClassicGroup, request: JoinRequest, token: Token) -> None:
    name = request.client_id if request.instance_id is None else request.instance_id
    member_id = f"{name}-{uuid.UUID(bytes=uuid_bytes(step.new_id()))}"
    if request.instance_id is not None and request.instance_id in group.static_ids:
        replace_static_member(step, group, request, member_id, token)
    elif request.instance_id is not None or request.version < FIRST_VERSION_REQUIRING_MEMBER_ID:
        _add_member(step, group, request, member_id, token)
    elif len(group.pending_joins) >= MAX_PENDING_JOINS:
        step.reply(token, JoinReply(GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID))
    else:
        group.add_pending(member_id)
        step.set_timer(TimerKind.SESSION, group.group_id, request.session_timeout_ms, member_id)
        step.reply(token, JoinReply(MEMBER_ID_REQUIRED, member_id))


def _join_with_new_id(step: Step, group: ClassicGroup, request: JoinRequest, token: Token) -> None:
    if request.instance_id is None:
        _add_member(step, group, request, request.member_id, token)
    else:  # Only dynamic members receive an ID before they join.
        step.reply(token, JoinReply(UNKNOWN_SERVER_ERROR, NO_MEMBER_ID))


def _add_member(step: Step, group: ClassicGroup, request: JoinRequest, member_id: str, token: Token) -> None:
    """Add a member.

    Its session timer is longer until its first join is answered: it cannot send heartbeats. A client that disconnected
    meanwhile may have joined again under another ID.
    """
    member = ClassicMember(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        first_of_each(request.protocols),
        join_token=token,
        is_new=True,
    )
    if group.initial_delay is not None:
        group.member_added = True
    group.add(member, request.protocol_type)
    timeout_ms = step.settings.new_member_join_timeout_ms
    step.set_timer(TimerKind.SESSION, group.group_id, timeout_ms, member_id)
    rebalance(step, group, _reason(f"member {member_id} joined", request))


def _join_again(step: Step, group: ClassicGroup, request: JoinRequest, token: Token) -> None:
    """Process the request of a member.

    In CompletingRebalance and Stable, a member whose metadata did not change receives the present generation: it may
    have missed the reply. The leader of a Stable group starts a rebalance, as it does when topics changed.
    """
    error = group.member_error(request.member_id, request.instance_id)
    if error != NONE:
        step.reply(token, JoinReply(error, request.member_id, protocol=None))
        return
    member = group.members[request.member_id]
    is_leader_of_stable = group.state is ClassicState.STABLE and group.is_leader(member.member_id)
    in_join_phase = group.state is ClassicState.PREPARING_REBALANCE
    if in_join_phase or is_leader_of_stable or not member.supports_exactly(request.protocols):
        await_join(step, group, member, token)
        group.update(member, request.protocols, request.session_timeout_ms, request.rebalance_timeout_ms)
        rebalance(step, group, _reason(f"member {member.member_id} joined again", request))
    else:
        step.reply(token, joined(group, member.member_id))


def _reason(event: str, request: JoinRequest) -> str:
    return f"{event}: {request.reason or 'reason not provided'}"
