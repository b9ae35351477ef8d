"""Static members that were restarted: a join with the instance ID of a member and without a member ID."""

from dataclasses import replace

from offsetlake.coordinator.classic.answers import answer_join, answer_sync, await_join, joined, restart_session
from offsetlake.coordinator.classic.group import ClassicGroup, ClassicState
from offsetlake.coordinator.classic.member import ClassicMember
from offsetlake.coordinator.classic.rebalance.join_phase import complete_if_all_joined, prepare_rebalance
from offsetlake.coordinator.classic.records import group_record
from offsetlake.coordinator.classic.requests import JoinReply, JoinRequest, SyncReply
from offsetlake.coordinator.steps import Step, TimerKind, Token
from offsetlake.kafka.error_codes import FENCED_INSTANCE_ID

_FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9


def replace_static_member(step: Step, group: ClassicGroup, request: JoinRequest, member_id: str, token: Token) -> None:
    """Replace the ID of a static member.

    In a Stable group, the member keeps its assignment and there is no rebalance, unless its metadata changes the
    selected protocol. In CompletingRebalance there is one, because the leader assigns partitions to the previous ID.
    """
    old_leader_id = group.leader_id
    member = group.members[group.static_ids[request.instance_id or ""]]
    old = (member.member_id, tuple(member.protocols.items()), member.session_timeout_ms, member.rebalance_timeout_ms)
    _fence_and_rename(step, group, member, member_id)
    group.update(member, request.protocols, request.session_timeout_ms, request.rebalance_timeout_ms)
    reason = f"static member {member_id} joined: {request.reason or 'reason not provided'}"
    if group.state is not ClassicState.STABLE or group.selected_protocol() != group.protocol:
        await_join(step, group, member, token)
        if group.state is ClassicState.PREPARING_REBALANCE:
            complete_if_all_joined(step, group)
        else:
            prepare_rebalance(step, group, reason)
        return
    step.reply(token, _reply(group, request, member_id, old_leader_id))
    step.records.append(group_record(group))

    def undo(undo_step: Step, _error: int) -> None:
        if group.members.get(member_id) is member:
            group.update(member, *old[1:])
            _fence_and_rename(undo_step, group, member, old[0])

    step.undo.append(undo)


def _fence_and_rename(step: Step, group: ClassicGroup, member: ClassicMember, member_id: str) -> None:
    old_id = member.member_id
    answer_join(step, group, member, JoinReply(FENCED_INSTANCE_ID, old_id, protocol=None))
    answer_sync(step, member, SyncReply(FENCED_INSTANCE_ID))
    step.cancel_timer(TimerKind.SESSION, group.group_id, old_id)
    group.rename(member, member_id)
    member.is_new = False
    restart_session(step, group, member)


def _reply(group: ClassicGroup, request: JoinRequest, member_id: str, old_leader_id: str | None) -> JoinReply:
    """Return the reply in a Stable group.

    Clients before version 9 must not assign partitions, because nobody would receive them: they find that the leader is
    another member.
    """
    if request.version < _FIRST_VERSION_WITH_SKIP_ASSIGNMENT:
        return replace(joined(group, member_id), leader_id=old_leader_id or "", members=())
    return replace(joined(group, member_id), skip_assignment=group.is_leader(member_id))
