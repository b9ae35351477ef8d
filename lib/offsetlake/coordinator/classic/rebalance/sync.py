"""SyncGroup: members wait for their assignment, which the leader sends."""

from offsetlake.coordinator.classic.answers import (
    await_sync,
    distribute_assignments,
    remove_member,
    reset_assignments,
    synced,
)
from offsetlake.coordinator.classic.group import ClassicGroup, ClassicState
from offsetlake.coordinator.classic.member import EMPTY_ASSIGNMENT
from offsetlake.coordinator.classic.rebalance.join_phase import prepare_rebalance
from offsetlake.coordinator.classic.rebalance.revocation import without_partitions
from offsetlake.coordinator.classic.records import group_record
from offsetlake.coordinator.classic.requests import SyncReply, SyncRequest
from offsetlake.coordinator.classic.rewind import after_sync
from offsetlake.coordinator.steps import Step, TimerKind, Token
from offsetlake.kafka.error_codes import (
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    NONE,
    REBALANCE_IN_PROGRESS,
)
from offsetlake.util.amounts import counted

_FIRST_VERSION_REQUIRING_PROTOCOL = 5


def sync(step: Step, group: ClassicGroup, request: SyncRequest, token: Token) -> None:
    """Process a SyncGroup request."""
    error = _request_error(group, request)
    if error != NONE:
        step.reply(token, SyncReply(error))
        return
    if group.state is ClassicState.PREPARING_REBALANCE:
        step.reply(token, SyncReply(REBALANCE_IN_PROGRESS))
        return
    member = group.members[request.member_id]
    _count_sync(step, group, request.member_id)
    if group.state is ClassicState.STABLE:
        step.reply(token, synced(group, member))
    else:
        await_sync(step, member, token)
        if group.is_leader(member.member_id):
            _complete(step, group, request.assignments)
    after_sync(step, group)


def sync_timer_due(step: Step, group: ClassicGroup) -> None:
    """Remove the members of the generation that have not sent SyncGroup, and start a rebalance."""
    if group.state is ClassicState.PREPARING_REBALANCE or not group.pending_syncs:
        return
    removed = list(group.pending_syncs)
    for member_id in removed:
        remove_member(step, group, member_id)
    prepare_rebalance(step, group, f"{counted(len(removed), 'member')} did not send SyncGroup in time")


def _request_error(group: ClassicGroup, request: SyncRequest) -> int:
    has_protocol = request.protocol_type is not None and request.protocol is not None
    if request.version >= _FIRST_VERSION_REQUIRING_PROTOCOL and not has_protocol:
        return INCONSISTENT_GROUP_PROTOCOL
    if not group.group_id:
        return INVALID_GROUP_ID
    error = group.member_error(request.member_id, request.instance_id)
    if error != NONE:
        return error
    if request.generation != group.generation:
        return ILLEGAL_GENERATION
    is_consistent = request.protocol_type in {None, group.protocol_type} and request.protocol in {None, group.protocol}
    return NONE if is_consistent else INCONSISTENT_GROUP_PROTOCOL


def _count_sync(step: Step, group: ClassicGroup, member_id: str) -> None:
    if member_id in group.pending_syncs:
        group.pending_syncs.remove(member_id)
        if not group.pending_syncs:
            step.cancel_timer(TimerKind.SYNC, group.group_id)


def _complete(step: Step, group: ClassicGroup, assignments: tuple[tuple[str, bytes], ...]) -> None:
    """Set the assignments, store the generation, and make the group Stable.

    A broker changes the state after the write. Nobody can see the difference, because the replies wait for the write.
    """
    by_member = without_partitions(group, dict(assignments))
    for member in group.members.values():
        group.assign(member, by_member.get(member.member_id, EMPTY_ASSIGNMENT))
    step.records.append(group_record(group))
    distribute_assignments(step, group)
    group.transition_to(ClassicState.STABLE, step.now_ms)

    def undo(undo_step: Step, error: int) -> None:
        if group.state is ClassicState.STABLE:
            reset_assignments(undo_step, group, error)
            prepare_rebalance(undo_step, group, f"the assignments could not be stored: error code {error}")

    step.undo.append(undo)
