"""Members that leave a share group, and their sessions."""

from offsetlake.coordinator.epoch_groups.requests import RequestError
from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.coordinator.share.member import ShareMember
from offsetlake.coordinator.share.records import RECORDS
from offsetlake.coordinator.steps import Step, Timer, TimerKind
from offsetlake.kafka import error_codes


def known(group: ShareGroup, member_id: str) -> ShareMember:
    """Return a member.

    Raises:
        RequestError: It does not exist.
    """
    member = group.member(member_id)
    if member is None:
        message = f"Member {member_id} is not a member of group {group.group_id}."
        raise RequestError(error_codes.UNKNOWN_MEMBER_ID, message)
    return member


def remove(step: Step, group: ShareGroup, member_id: str) -> None:
    """Remove a member, and increase the group epoch."""
    group.append(step, RECORDS.no_member(group.group_id, member_id))
    metadata_hash = step.hashes.of(group.subscriptions.topics(), step.topics)
    group.append(step, [RECORDS.group_epoch(group.group_id, group.state.epoch + 1, metadata_hash)])
    step.undo.append(lambda undo_step, _error: restart_session(undo_step, group, member_id))
    step.cancel_timer(TimerKind.SESSION, group.group_id, member_id)


def restart_session(step: Step, group: ShareGroup, member_id: str) -> None:
    """Set the session timer of a member from now on."""
    step.set_timer(TimerKind.SESSION, group.group_id, step.settings.share_session_timeout_ms, member_id)


def loaded(step: Step, group: ShareGroup) -> None:
    """Set the timers of all members after the group was loaded from the log."""
    for member_id in group.state.members:
        restart_session(step, group, member_id)


def timer_due(step: Step, group: ShareGroup, timer: Timer) -> None:
    """Remove a member whose session has ended; do nothing at timers that were set for a group of another type."""
    if timer.kind is TimerKind.SESSION and timer.member_id in group.state.members:
        remove(step, group, timer.member_id)
