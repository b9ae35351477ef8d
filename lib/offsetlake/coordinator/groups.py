"""Groups of all types, as a host sees them that only knows their ids."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from offsetlake.coordinator.classic import administration, heartbeat
from offsetlake.coordinator.classic import events as classic_events
from offsetlake.coordinator.classic import rewind as classic_rewind
from offsetlake.coordinator.classic.group import ClassicGroup
from offsetlake.coordinator.classic.loading import from_value
from offsetlake.coordinator.consumer import events, timers, validation
from offsetlake.coordinator.consumer import rewind as consumer_rewind
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.epoch_groups.requests import RequestError
from offsetlake.coordinator.rewind import IN_PROGRESS, SHARE_GROUP, Rewind, RewindReply
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.share import members as share_members
from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.coordinator.steps import Step, Timer
from offsetlake.kafka.error_codes import GROUP_ID_NOT_FOUND, NONE
from offsetlake.rules.groups.state import GroupState

OffsetGroup = ClassicGroup | ConsumerGroup
"""A group with committed offsets."""

Group = OffsetGroup | ShareGroup


class Kind(NamedTuple):
    """What ListGroups returns about a group."""

    group_type: str
    state: str
    protocol_type: str | None
    protocol: str | None


class Committer(NamedTuple):
    """The sender of a commit: member id, instance id, and generation or member epoch, -1 for none."""

    member_id: str
    instance_id: str | None
    epoch: int


def is_coordinated(group_type: str) -> bool:
    """Return whether the coordinator has members of groups of a type."""
    return group_type in {"classic", "consumer", "share"}


def loaded(step: Step, group_id: str, state: Mapping[str, Any]) -> Group:
    """Return a group from `GroupState.to_dict`, with the timers of a broker that has loaded the log.

    A member whose record cannot be decoded is unknown to the coordinator, and has to join again.

    Raises:
        ValueError: The coordinator has no members of groups of this type.
    """
    if not is_coordinated(state["group_type"]):
        raise ValueError(f"Group {group_id!r} has the type {state['group_type']}, which is not coordinated.")
    if state["group_type"] == "classic":
        return from_value(step, group_id, state["metadata"])
    if state["group_type"] == "share":
        share_group = ShareGroup(group_id, GroupState.from_dict({**state, "unread": {}}))
        share_group.initializing_since_ms = step.now_ms
        share_members.loaded(step, share_group)
        return share_group
    group = ConsumerGroup(group_id, GroupState.from_dict({**state, "unread": {}}))
    timers.loaded(step, group)
    return group


def timer_due(step: Step, group: Group, timer: Timer) -> None:
    """Process a timer that is due."""
    if isinstance(group, ClassicGroup):
        classic_events.timer_due(step, group, timer)
    elif isinstance(group, ShareGroup):
        share_members.timer_due(step, group, timer)
    else:
        events.timer_due(step, group, timer)


def start_rewind(step: Step, group: Group, rewind: Rewind) -> None:
    """Set offsets of a group, also while it has members; only one such request at a time is accepted."""
    if isinstance(group, ShareGroup):
        step.reply(rewind.token, RewindReply(SHARE_GROUP))
    elif group.rewind is not None:
        step.reply(rewind.token, RewindReply(IN_PROGRESS))
    elif isinstance(group, ClassicGroup):
        classic_rewind.start(step, group, rewind)
    else:
        consumer_rewind.start(step, group, rewind)


def settle_rewind(step: Step, group: Group) -> None:
    """Write the offsets of a rewind if the step made that possible; the host calls this at the end of each step."""
    if isinstance(group, ConsumerGroup):
        consumer_rewind.settle(step, group)


def cancel_rewind(step: Step, group: Group, reason: str) -> None:
    """End a rewind in progress, if there is one; the group continues with the offsets that it had."""
    if end_rewind(step, group, reason) and isinstance(group, ClassicGroup):
        classic_rewind.cancelled(step, group)


def end_rewind(step: Step, group: Group, reason: str) -> bool:
    """End a rewind in progress of a group that another one replaces; return whether there was one."""
    if isinstance(group, ShareGroup) or group.rewind is None:
        return False
    step.reply(group.rewind.token, RewindReply(reason))
    group.rewind = None
    return True


def rewind_limit_ms(group: OffsetGroup, settings: CoordinatorSettings) -> int:
    """Return after how long a rewind that begins now has removed the members that do not respond."""
    if isinstance(group, ClassicGroup):
        return classic_rewind.limit_ms(group)
    return consumer_rewind.limit_ms(group, settings)


def kind(group: Group) -> Kind:
    """Return what ListGroups returns about a group."""
    if not isinstance(group, ClassicGroup):
        return Kind(group.group_type, group.state_name(), group.group_type, None)
    state = group.state.value
    return Kind("classic", state, group.protocol_type, group.protocol if state == "Stable" else None)


def is_empty(group: Group) -> bool:
    """Return whether the group has neither members nor clients that are about to join."""
    if isinstance(group, ClassicGroup):
        return group.is_empty() and not group.pending_joins
    return not group.state.members


def has_member(group: Group | None, member_id: str) -> bool:
    """Return whether the group exists and has a member."""
    if group is None:
        return False
    return member_id in (group.members if isinstance(group, ClassicGroup) else group.state.members)


def commit_error(group: Group, committer: Committer, version: int, *, transactional: bool) -> int:
    """Return the error code of a commit by OffsetCommit of a version, or in a transaction; NONE if it is accepted."""
    member_id, instance_id, epoch = committer
    if isinstance(group, ClassicGroup):
        return administration.commit_error(group, member_id, instance_id, epoch, transactional=transactional)
    if isinstance(group, ShareGroup):
        return GROUP_ID_NOT_FOUND
    try:
        if transactional:
            validation.check_transactional_commit(group, member_id, instance_id, epoch)
        else:
            validation.check_commit(group, member_id, epoch, version)
    except RequestError as error:
        return error.error_code
    return NONE


def committed(step: Step, group: Group, member_id: str) -> None:
    """Process that the OffsetCommit of a member was accepted, which is a sign of life in the classic protocol only."""
    if isinstance(group, ClassicGroup):
        heartbeat.committed(step, group, member_id)


def fetch_error(group: Group, member_id: str, epoch: int) -> int:
    """Return the error code of an OffsetFetch by a member, NONE if it is accepted."""
    if isinstance(group, ConsumerGroup):
        try:
            validation.check_fetch(group, member_id, epoch)
        except RequestError as error:
            return error.error_code
    return NONE
