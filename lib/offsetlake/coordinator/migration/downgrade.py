"""The change of a consumer group to a classic group, when the last member with the consumer protocol is gone."""

from collections.abc import Collection, Sequence

from offsetlake.coordinator.classic.answers import answer_all, restart_session
from offsetlake.coordinator.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, ClassicState
from offsetlake.coordinator.classic.member import ClassicMember
from offsetlake.coordinator.classic.rebalance.join_phase import prepare_rebalance
from offsetlake.coordinator.classic.records import group_record
from offsetlake.coordinator.consumer import records, timers
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.member import ConsumerMember
from offsetlake.coordinator.epoch_groups.assignment import NO_TARGET
from offsetlake.coordinator.migration import assignments
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.steps import Step, TimerKind


def is_possible(
    settings: CoordinatorSettings,
    group: ConsumerGroup,
    removed: Sequence[ConsumerMember],
    joining: ConsumerMember | None = None,
) -> bool:
    """Return whether the other members, and one that joins, can continue as a classic group without those removed."""
    remaining = len(group.state.members) - len(removed)
    classic = group.classic_members - sum(member.uses_classic_protocol for member in removed)
    if classic != remaining:
        return False
    gone = {member.member_id for member in removed}
    rest = [member for member in group.members() if member.member_id not in gone]
    rest += [] if joining is None else [joining]
    if not 0 < len(rest) <= settings.max_size:
        return False
    return bool(set.intersection(*(set(member.classic_protocols) for member in rest)))


def convert(
    step: Step,
    group: ConsumerGroup,
    *,
    removed: Collection[str],
    joining: ConsumerMember | None = None,
    rebalance: bool = True,
) -> ClassicGroup:
    """Replace a group by a classic group, which has the target assignments as its assignments.

    Args:
        step: The step.
        group: The group, which remains as it is.
        removed: The IDs of the members that the classic group does not have.
        joining: A member that takes the place of the static member with the same instance ID.
        rebalance: Whether a rebalance starts.
    """
    replaced = "" if joining is None else group.static_members.get(joining.instance_id or "", "")
    names = {replaced: joining.member_id} if joining is not None else {}
    ids = group.member_order.keys()
    step.records += records.no_group(group, [names.get(member_id, member_id) for member_id in ids])
    classic = ClassicGroup(
        group.group_id,
        exists=True,
        state=ClassicState.STABLE,
        state_timestamp_ms=step.now_ms,
        generation=group.state.epoch,
    )
    kept = [member_id for member_id in ids if member_id not in removed and member_id != replaced]
    members = {member_id: member for member_id in kept if (member := group.member(member_id)) is not None}
    if joining is not None:
        members[replaced] = joining
    for member in members.values():
        classic.add(_member(member), CONSUMER_PROTOCOL_TYPE)
    classic.protocol = classic.selected_protocol()
    classic.compute_subscribed_topics()
    for target_id, member in members.items():
        target = group.targets.get(target_id, NO_TARGET)
        converted = classic.members[member.member_id]
        assignment = assignments.encoded(target, converted.protocols[classic.protocol], step.topics)
        classic.assign(converted, assignment)
    step.records.append(group_record(classic))
    step.successor = classic
    _set_timers(step, group, classic)
    if rebalance:
        prepare_rebalance(step, classic, "the group has no more members with the consumer protocol")
    return classic


def _member(member: ConsumerMember) -> ClassicMember:
    metadata, classic = member.metadata, member.classic or {}
    return ClassicMember(
        member.member_id,
        member.instance_id,
        metadata["clientId"],
        metadata["clientHost"],
        classic["sessionTimeoutMs"],
        member.rebalance_timeout_ms,
        member.classic_protocols,
    )


def _set_timers(step: Step, group: ConsumerGroup, classic: ClassicGroup) -> None:
    """Cancel the timers of a consumer group, and set the sessions of the classic one."""
    for kind in (TimerKind.JOIN, TimerKind.SYNC):  # of an earlier classic group
        step.cancel_timer(kind, group.group_id)
    revocations = dict(group.revocation_epochs)
    for member_id in group.state.members:
        timers.cancel(step, group, member_id)
    for member in classic.members.values():
        restart_session(step, classic, member)

    def undo(undo_step: Step, error: int) -> None:
        answer_all(undo_step, classic, error)
        group.revocation_epochs = revocations
        timers.restore(undo_step, group, group.members())
        if group.regexes_to_evaluate is not None:
            undo_step.set_timer(TimerKind.REGEX, group.group_id, 0)

    step.undo.append(undo)
