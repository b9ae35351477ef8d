"""The join phase of a rebalance: members join until all have, or until a timeout; then the next generation starts."""

from functools import partial

from offsetlake.coordinator.classic.answers import (
    answer_join,
    joined,
    remove_member,
    reset_assignments,
    restart_session,
)
from offsetlake.coordinator.classic.group import ClassicGroup, ClassicState, InitialDelay
from offsetlake.coordinator.classic.rebalance.revocation import write_offsets
from offsetlake.coordinator.classic.records import group_record
from offsetlake.coordinator.steps import Step, TimerKind
from offsetlake.kafka.error_codes import REBALANCE_IN_PROGRESS

MIN_JOIN_PHASE_MS = 1_000
"""The least time for which a join phase continues. A broker has no such limit, and checks again and again."""

MAX_REASON_LENGTH = 255
"""The length to which Kafka's clients limit the reason in a request."""


def rebalance(step: Step, group: ClassicGroup, reason: str) -> None:
    """Start a rebalance, or end the join phase of the present one if all members have joined."""
    if group.state is ClassicState.PREPARING_REBALANCE:
        complete_if_all_joined(step, group)
    else:
        prepare_rebalance(step, group, reason)


def prepare_rebalance(step: Step, group: ClassicGroup, reason: str) -> None:
    """Start the join phase in any other state.

    For the first rebalance of an Empty group there is a delay, so that members which are started together join the
    same generation.
    """
    if group.state is ClassicState.COMPLETING_REBALANCE:
        reset_assignments(step, group, REBALANCE_IN_PROGRESS)
    group.pending_syncs.clear()
    step.cancel_timer(TimerKind.SYNC, group.group_id)
    is_initial = group.state is ClassicState.EMPTY
    group.transition_to(ClassicState.PREPARING_REBALANCE, step.now_ms)
    group.reason = reason[:MAX_REASON_LENGTH]
    if is_initial:
        delay_ms = step.settings.initial_rebalance_delay_ms
        _delay(step, group, InitialDelay(delay_ms, max(group.rebalance_timeout_ms() - delay_ms, 0)))
    elif group.is_awaiting_joins():
        step.set_timer(TimerKind.JOIN, group.group_id, group.rebalance_timeout_ms())
    else:
        complete_join(step, group)


def complete_if_all_joined(step: Step, group: ClassicGroup) -> None:
    """End the join phase if all members have joined, but not before an initial delay ends."""
    in_phase = group.state is ClassicState.PREPARING_REBALANCE and group.initial_delay is None
    if in_phase and not group.is_awaiting_joins():
        complete_join(step, group)


def join_timer_due(step: Step, group: ClassicGroup) -> None:
    """End the join phase, or extend an initial delay because a member was added during it."""
    delay = group.initial_delay
    if delay is None or not group.member_added or not delay.remaining_ms:
        complete_join(step, group)
        return
    group.member_added = False
    next_delay_ms = min(step.settings.initial_rebalance_delay_ms, delay.remaining_ms)
    _delay(step, group, InitialDelay(next_delay_ms, max(delay.remaining_ms - delay.delay_ms, 0)))


def complete_join(step: Step, group: ClassicGroup) -> None:
    """Start the next generation with the members that have joined.

    Static members stay in the group although they have not joined. If no member has joined but static members are left,
    the join phase continues until their sessions expire.
    """
    step.cancel_timer(TimerKind.JOIN, group.group_id)
    absent = [member for member in group.members.values() if member.join_token is None and member.instance_id is None]
    for member in absent:
        remove_member(step, group, member.member_id)
    if group.members and not group.elect_joined_leader():
        delay_ms = max(group.rebalance_timeout_ms(), MIN_JOIN_PHASE_MS)
        step.set_timer(TimerKind.JOIN, group.group_id, delay_ms)
        return
    group.initial_delay = None
    offsets_written = write_offsets(step, group)
    group.next_generation(step.now_ms)
    if group.is_empty():
        step.records.append(group_record(group))
        return
    for member in group.members.values():
        answer_join(step, group, member, joined(group, member.member_id))
        restart_session(step, group, member)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    step.set_timer(TimerKind.SYNC, group.group_id, group.rebalance_timeout_ms())
    if offsets_written:
        step.undo.append(partial(_undo_generation, group, group.generation))


def _undo_generation(group: ClassicGroup, generation: int, step: Step, error: int) -> None:
    """Start another rebalance, because the replies to JoinGroup are errors."""
    if group.generation == generation and group.state is ClassicState.COMPLETING_REBALANCE:
        prepare_rebalance(step, group, f"offsets could not be stored: error code {error}")


def _delay(step: Step, group: ClassicGroup, delay: InitialDelay) -> None:
    group.initial_delay = delay
    step.set_timer(TimerKind.JOIN, group.group_id, delay.delay_ms)
