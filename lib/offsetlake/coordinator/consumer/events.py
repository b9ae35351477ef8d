"""The timers of a consumer group that are due."""

from offsetlake.coordinator.consumer import leaving
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.steps import Step, Timer, TimerKind

_OF_MEMBERS = frozenset({TimerKind.SESSION, TimerKind.REVOCATION, TimerKind.MEMBER_JOIN, TimerKind.MEMBER_SYNC})


def timer_due(step: Step, group: ConsumerGroup, timer: Timer) -> None:
    """Do what is due at a timer; nothing if its member no longer exists, or if it was set for a classic group."""
    if timer.kind not in _OF_MEMBERS:
        return
    if timer.kind is TimerKind.MEMBER_JOIN:
        group.awaited_joins -= {timer.member_id}
    epoch = group.revocation_epochs.pop(timer.member_id, None) if timer.kind is TimerKind.REVOCATION else None
    member = group.member(timer.member_id)
    if member is not None and (timer.kind is not TimerKind.REVOCATION or member.epoch == epoch):
        leaving.remove(step, group, [member])
