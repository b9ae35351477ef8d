"""The timers of a classic group."""

from offsetlake.coordinator.classic.group import ClassicGroup
from offsetlake.coordinator.classic.leave import session_timer_due
from offsetlake.coordinator.classic.rebalance.join_phase import join_timer_due
from offsetlake.coordinator.classic.rebalance.sync import sync_timer_due
from offsetlake.coordinator.steps import Step, Timer, TimerKind


def timer_due(step: Step, group: ClassicGroup, timer: Timer) -> None:
    """Process a timer that is due and has been neither cancelled nor set again."""
    match timer.kind:
        case TimerKind.SESSION:
            session_timer_due(step, group, timer.member_id)
        case TimerKind.JOIN:
            join_timer_due(step, group)
        case TimerKind.SYNC:
            sync_timer_due(step, group)
