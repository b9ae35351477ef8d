"""The change of a classic group with members to a consumer group, when a member joins with the consumer protocol."""

import base64
from collections.abc import Mapping
from typing import Any

from offsetlake.coordinator.classic.answers import answer_all, restart_session
from offsetlake.coordinator.classic.group import ClassicGroup, ClassicState
from offsetlake.coordinator.classic.member import ClassicMember
from offsetlake.coordinator.classic.records import no_group
from offsetlake.coordinator.classic.rewind import cancelled
from offsetlake.coordinator.consumer import records, timers
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.heartbeat import respond
from offsetlake.coordinator.consumer.member import NO_METADATA, ConsumerMember, MemberState
from offsetlake.coordinator.consumer.requests import ConsumerHeartbeatRequest
from offsetlake.coordinator.epoch_groups.assignment import NO_TARGET, NOTHING_ASSIGNED, Target, to_assignment
from offsetlake.coordinator.epoch_groups.requests import HeartbeatResponse, RequestError
from offsetlake.coordinator.hash_order import TimelineOrder, hash_code, hash_order
from offsetlake.coordinator.migration import assignments
from offsetlake.coordinator.rewind import PROTOCOL_CHANGED, RewindReply
from offsetlake.coordinator.steps import Record, Step, TimerKind
from offsetlake.coordinator.topics import TopicDescriptions
from offsetlake.kafka.error_codes import GROUP_ID_NOT_FOUND, REBALANCE_IN_PROGRESS
from offsetlake.kafka.records.consumer_protocol import decode_assignment, read_subscription

_PHASE_TIMERS = {ClassicState.PREPARING_REBALANCE: TimerKind.JOIN, ClassicState.COMPLETING_REBALANCE: TimerKind.SYNC}


def join(step: Step, group: ClassicGroup, request: ConsumerHeartbeatRequest) -> HeartbeatResponse:
    """Replace a classic group by a consumer group that has its members, and let a member join that.

    The members of the classic group continue in the consumer group with the classic protocol. Their waiting requests
    are answered with REBALANCE_IN_PROGRESS.

    Raises:
        RequestError: The group cannot be converted, or the member cannot join it.
    """
    successor = ConsumerGroup(group.group_id)
    converted = [] if group.is_empty() else _records(step, group, successor)
    successor.apply(converted)
    response = respond(step, successor, request)
    unsettled = group.state is not ClassicState.STABLE or group.rewind is not None
    if not group.is_empty() and unsettled and successor.state.epoch == group.generation:
        # A static member changed its protocol. The rebalance in progress continues, which a broker forgets. So does a
        # generation without the partitions whose offsets are set.
        epoch, metadata_hash = group.generation + 1, successor.state.metadata_hash
        successor.append(step, [records.group_epoch(group.group_id, epoch, metadata_hash)])
    step.records[:0] = [no_group(group), *converted]
    step.successor = successor
    rewind, group.rewind = group.rewind, None
    if rewind is not None:
        step.reply(rewind.token, RewindReply(PROTOCOL_CHANGED))
    answer_all(step, group, REBALANCE_IN_PROGRESS)
    for member in successor.members():
        if member.uses_classic_protocol:
            timers.restart_session(step, successor, member)

    def undo(undo_step: Step, _error: int) -> None:
        for member_id in successor.state.members:
            timers.cancel(undo_step, successor, member_id)
        for member in group.members.values():
            restart_session(undo_step, group, member)
        if group.state in _PHASE_TIMERS:
            undo_step.set_timer(_PHASE_TIMERS[group.state], group.group_id, group.rebalance_timeout_ms())
        if rewind is not None:
            cancelled(undo_step, group)

    step.undo.append(undo)
    return response


def _records(step: Step, group: ClassicGroup, successor: ConsumerGroup) -> list[Record]:
    """Return the records of the consumer group in the order of a broker."""
    if not group.uses_consumer_protocol():
        raise _refusal(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > step.settings.consumer_max_size:
        raise _refusal(group, "the group size exceeds the consumer group maximum size")
    order = TimelineOrder()
    members: dict[str, tuple[ConsumerMember, Target]] = {}
    for member_id in hash_order(group.members.keys(), hash_code):
        order.add(member_id)
        members[member_id] = _member(group, group.members[member_id], step.topics)
    ids = order.keys()
    in_order = [members[member_id] for member_id in ids]
    topics = {topic for member, _ in in_order for topic in member.topics}
    group_id, generation = group.group_id, group.generation
    return [
        *(records.member_metadata(group_id, member) for member, _ in in_order),
        records.group_epoch(group_id, generation, step.hashes.of(topics, step.topics)),
        *(records.target_assignment(group_id, member.member_id, assigned) for member, assigned in in_order),
        records.assignment_epoch(group_id, generation),
        *(records.current_assignment(group_id, member) for member, _ in in_order),
    ]


def _member(group: ClassicGroup, member: ClassicMember, topics: TopicDescriptions) -> tuple[ConsumerMember, Target]:
    """Return a member and its assignment; it may not support the protocol of a generation that it has not joined."""
    protocols = member.protocols
    subscription = read_subscription(protocols.get(group.protocol or "") or next(iter(protocols.values()), b""))
    if subscription is None:
        raise _refusal(group, "the embedded consumer protocol is malformed")
    metadata = {
        **NO_METADATA,
        "instanceId": member.instance_id,
        "rackId": subscription.get("rackId") or None,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "subscribedTopicNames": sorted(set(subscription["topics"])),
        "rebalanceTimeoutMs": member.rebalance_timeout_ms,
        "classicMemberMetadata": classic_metadata(member.session_timeout_ms, protocols),
    }
    assigned = _assigned(group, member, topics)
    converted = ConsumerMember(member.member_id, metadata).with_current(
        group.generation, group.generation, MemberState.STABLE, to_assignment(assigned), NOTHING_ASSIGNED
    )
    return converted, assigned


def classic_metadata(session_timeout_ms: int, protocols: Mapping[str, bytes]) -> dict[str, Any]:
    """Return what a member with the classic protocol has in its metadata."""
    supported = [{"name": name, "metadata": base64.b64encode(blob).decode()} for name, blob in protocols.items()]
    return {"sessionTimeoutMs": session_timeout_ms, "supportedProtocols": supported}


def _assigned(group: ClassicGroup, member: ClassicMember, topics: TopicDescriptions) -> Target:
    if not member.assignment:
        return NO_TARGET
    assignment, _ = decode_assignment(member.assignment)
    if assignment is None:
        raise _refusal(group, "the embedded consumer protocol is malformed")
    if assignment["userData"]:
        reason = "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
        raise _refusal(group, f"{reason}assignor before re-attempting the upgrade")
    return assignments.by_topic_id(assignment["assignedPartitions"], topics)


def _refusal(group: ClassicGroup, reason: str) -> RequestError:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}."
    return RequestError(GROUP_ID_NOT_FOUND, message)
