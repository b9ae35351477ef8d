"""Members that leave a consumer group or are removed from it."""

from collections.abc import Iterable, Sequence

from offsetlake.coordinator.consumer import records, timers
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.member import ConsumerMember
from offsetlake.coordinator.consumer.requests import STATIC_LEAVE_EPOCH, ConsumerHeartbeatRequest
from offsetlake.coordinator.epoch_groups.assignment import NOTHING_ASSIGNED
from offsetlake.coordinator.epoch_groups.requests import HeartbeatResponse, RequestError
from offsetlake.coordinator.migration import downgrade
from offsetlake.coordinator.steps import Record, Step
from offsetlake.kafka import error_codes


def leave(step: Step, group: ConsumerGroup, request: ConsumerHeartbeatRequest) -> HeartbeatResponse:
    """Remove a member; a static member that leaves with the epoch -2 keeps its assignment until it expires.

    Raises:
        RequestError: There is no such member.
    """
    if not group.exists:
        raise RequestError(error_codes.GROUP_ID_NOT_FOUND, f"Group {group.group_id} not found.")
    if request.instance_id is None:
        member = identified(group, request.member_id, None)
    else:
        member = identified(group, request.member_id, request.instance_id)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            away = member.with_current(
                STATIC_LEAVE_EPOCH, member.previous_epoch, member.state, member.assigned, NOTHING_ASSIGNED
            )
            group.append(step, [records.current_assignment(group.group_id, away)])
            return HeartbeatResponse(member_id=member.member_id, member_epoch=STATIC_LEAVE_EPOCH)
    remove(step, group, [member])
    return HeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)


def remove_each(
    step: Step, group: ConsumerGroup, members: Iterable[tuple[str, str | None]]
) -> list[RequestError | None]:
    """Remove members by member ID and instance ID, as a LeaveGroup of an administrator does, at one group epoch.

    The member ID of a static member may be empty.

    Returns:
        The error of each member, None if it was removed.
    """
    removed: dict[str, ConsumerMember] = {}
    errors: list[RequestError | None] = []
    for member_id, instance_id in members:
        known_id = member_id if instance_id is None else member_id or group.static_members.get(instance_id, "")
        try:
            member = identified(group, known_id, instance_id)
            removed[member.member_id] = member
            errors.append(None)
        except RequestError as error:
            errors.append(error)
    if removed:
        remove(step, group, [*removed.values()])
    return errors


def remove(step: Step, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
    """Remove members and increase the group epoch, or make the group a classic one if that is the protocol of the rest.

    Every removal of members ends here.
    """
    if downgrade.is_possible(step.settings, group, members):
        downgrade.convert(step, group, removed={member.member_id for member in members})
        return
    state, group_id = group.state, group.group_id
    out: list[Record] = []
    after = group.subscriptions.copy()
    for member in members:
        out += records.no_member(group_id, member.member_id)
        after.replace(member, None)
    for expression in sorted({member.regex for member in members if member.regex} - after.regex_members.keys()):
        out.append(records.no_regex(group_id, expression))
        after.match(state.regexes.get(expression, ()), ())
    metadata_hash = step.hashes.of(after.topics(), step.topics)
    out.append(records.group_epoch(group_id, state.epoch + 1, metadata_hash))
    group.append(step, out)
    step.undo.append(lambda undo_step, _error: timers.restore(undo_step, group, members))
    for member in members:
        timers.cancel(step, group, member.member_id)


def unknown_member(group: ConsumerGroup, member_id: str) -> RequestError:
    """Return the error of a request of a member that does not exist."""
    message = f"Member {member_id} is not a member of group {group.group_id}."
    return RequestError(error_codes.UNKNOWN_MEMBER_ID, message)


def identified(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the member with a member ID, and with an instance ID if that is given.

    Raises:
        RequestError: There is none, or the static member has another member ID.
    """
    if instance_id is None:
        member = group.member(member_id)
        if member is None:
            raise unknown_member(group, member_id)
        return member
    existing = group.static_member(instance_id)
    if existing is None:
        raise RequestError(error_codes.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if existing.member_id != member_id:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.member_id}."
        raise RequestError(error_codes.FENCED_INSTANCE_ID, message)
    return existing
