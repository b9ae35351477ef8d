"""JoinGroup, SyncGroup and Heartbeat of a member that uses the classic protocol in a consumer group.

Its generation is the member epoch. It reconciles when it joins again, which a heartbeat tells it to do: the
subscription in JoinGroup contains the partitions that it still owns.
"""

from collections.abc import Mapping
from typing import Any

from offsetlake.coordinator.classic.group import CONSUMER_PROTOCOL_TYPE
from offsetlake.coordinator.classic.member import first_of_each
from offsetlake.coordinator.classic.rebalance.join import (
    FIRST_VERSION_REQUIRING_MEMBER_ID,
    MAX_PROTOCOLS,
    request_error,
)
from offsetlake.coordinator.classic.requests import (
    NO_MEMBER_ID,
    ClassicHeartbeatReply,
    ClassicHeartbeatRequest,
    JoinReply,
    JoinRequest,
    SyncReply,
    SyncRequest,
)
from offsetlake.coordinator.consumer import leaving, rewind, timers
from offsetlake.coordinator.consumer.group import NO_EPOCH, ConsumerGroup
from offsetlake.coordinator.consumer.member import ConsumerMember, MemberState
from offsetlake.coordinator.consumer.member_update import MemberUpdate
from offsetlake.coordinator.consumer.regexes import RegexChange
from offsetlake.coordinator.epoch_groups.assignment import NO_PARTITIONS, NO_TARGET, to_assignment
from offsetlake.coordinator.epoch_groups.member import Value
from offsetlake.coordinator.epoch_groups.requests import RequestError
from offsetlake.coordinator.migration import assignments, downgrade
from offsetlake.coordinator.migration.upgrade import classic_metadata
from offsetlake.coordinator.steps import Step, TimerKind, Token
from offsetlake.kafka import error_codes
from offsetlake.kafka.records.consumer_protocol import read_subscription


def join(step: Step, group: ConsumerGroup, request: JoinRequest, token: Token) -> None:
    """Process a JoinGroup request, which is answered at once."""
    error = request_error(step, group.group_id, request)
    if error != error_codes.NONE:
        step.reply(token, JoinReply(error, request.member_id))
        return
    try:
        reply = _join(step, group, request)
    except RequestError as refused:
        reply = JoinReply(refused.error_code, NO_MEMBER_ID)
    step.reply(token, reply)


def sync(step: Step, group: ConsumerGroup, request: SyncRequest, token: Token) -> None:
    """Process a SyncGroup request, which is answered with the assignment of the member; there is no leader."""
    try:
        member = _identified(group, request.member_id, request.instance_id, request.generation)
    except RequestError as refused:
        step.reply(token, SyncReply(refused.error_code))
        return
    protocol, subscription = next(iter(member.classic_protocols.items()), ("", b""))
    if request.protocol_type not in {None, CONSUMER_PROTOCOL_TYPE} or request.protocol not in {None, protocol}:
        step.reply(token, SyncReply(error_codes.INCONSISTENT_GROUP_PROTOCOL))
        return
    if _is_behind(group, member) and member.state is not MemberState.UNREVOKED_PARTITIONS:
        timers.await_join(step, group, member)
        step.reply(token, SyncReply(error_codes.REBALANCE_IN_PROGRESS))
        return
    step.cancel_timer(TimerKind.MEMBER_SYNC, group.group_id, member.member_id)
    timers.restart_session(step, group, member)
    assignment = assignments.encoded(member.assigned, subscription, step.topics)
    step.reply(token, SyncReply(error_codes.NONE, request.protocol_type, request.protocol, assignment))


def heartbeat(step: Step, group: ConsumerGroup, request: ClassicHeartbeatRequest, token: Token) -> None:
    """Process a Heartbeat request; a member that must join again has its rebalance timeout to do so."""
    try:
        member = _identified(group, request.member_id, request.instance_id, request.generation)
    except RequestError as refused:
        step.reply(token, ClassicHeartbeatReply(refused.error_code))
        return
    timers.restart_session(step, group, member)
    error = error_codes.NONE
    if _must_join(group, member):
        timers.await_join(step, group, member)
        error = error_codes.REBALANCE_IN_PROGRESS
    step.reply(token, ClassicHeartbeatReply(error))


def _join(step: Step, group: ConsumerGroup, request: JoinRequest) -> JoinReply:
    update = MemberUpdate(step, group)
    member_id = request.member_id or step.new_id()
    update.check_size(member_id)
    protocols = first_of_each(request.protocols)
    is_supported = request.protocol_type == CONSUMER_PROTOCOL_TYPE and group.supports_classic(protocols)
    if not is_supported or len(request.protocols) > MAX_PROTOCOLS:
        raise RequestError(error_codes.INCONSISTENT_GROUP_PROTOCOL, "The protocols of the member are not supported.")
    is_new = request.member_id == NO_MEMBER_ID
    if is_new and request.instance_id is None and request.version >= FIRST_VERSION_REQUIRING_MEMBER_ID:
        return JoinReply(error_codes.MEMBER_ID_REQUIRED, member_id)
    existing = None if request.instance_id is None else group.static_member(request.instance_id)
    subscription = read_subscription(next(iter(protocols.values())))
    if subscription is None:
        raise RequestError(error_codes.UNKNOWN_SERVER_ERROR, "The subscription cannot be decoded.")
    old = _member(group, request, update, existing, member_id)
    new = old._replace(metadata=_updated(old.metadata, request, subscription, protocols))
    names_changed, regex_change = update.subscribe(old, new, lambda _topic: True)
    changed = names_changed or regex_change is not RegexChange.NONE
    group_epoch, homogeneous = update.bump_epoch(old, new, bump=changed)
    owned = to_assignment(assignments.by_topic_id(subscription.get("ownedPartitions", ()), step.topics))
    if (
        existing is not None
        and not existing.uses_classic_protocol
        and downgrade.is_possible(step.settings, group, [existing], joining=new)
    ):
        if not changed:
            target, epoch = group.target(new), group.state.assignment_epoch
            new = update.reconcile(new, epoch, target, owned, changed=False)
        step.records += update.records
        rebalance = changed or not _is_settled(group, existing, new)
        downgrade.convert(step, group, removed=(), joining=new, rebalance=rebalance)
    else:
        epoch, target = update.assign(old, new, group_epoch, homogeneous=homogeneous)
        new = update.reconcile(new, epoch, target, owned, changed=changed)
        group.append(step, update.records)
        timers.joined(step, group, new)
    return JoinReply(error_codes.NONE, new.member_id, new.epoch, CONSUMER_PROTOCOL_TYPE, next(iter(protocols)))


def _member(
    group: ConsumerGroup, request: JoinRequest, update: MemberUpdate, existing: ConsumerMember | None, member_id: str
) -> ConsumerMember:
    """Return the member that sent the request, as it is or as it joins."""
    if request.instance_id is not None and request.member_id != NO_MEMBER_ID:
        return leaving.identified(group, member_id, request.instance_id)
    if existing is not None:
        return update.replace_static_member(existing, member_id)
    return group.member(member_id) or ConsumerMember(member_id)


def _is_settled(group: ConsumerGroup, replaced: ConsumerMember, joining: ConsumerMember) -> bool:
    """Return whether all members have their target assignments when one takes the place of another.

    A broker starts no rebalance also if they have not, and there may be partitions that no member then reads.
    """
    epoch = group.state.epoch
    members = [joining, *(member for member in group.members() if member.member_id != replaced.member_id)]
    return group.state.assignment_epoch == epoch and all(member.is_reconciled_to(epoch) for member in members)


def _updated(
    metadata: Value, request: JoinRequest, subscription: Mapping[str, Any], protocols: Mapping[str, bytes]
) -> Value:
    """Return the metadata with what the request has; the same object if nothing changed."""
    changes: dict[str, object] = {
        "clientId": request.client_id,
        "clientHost": request.client_host,
        "subscribedTopicNames": sorted(set(subscription["topics"])),
        "subscribedTopicRegex": "",
        "classicMemberMetadata": classic_metadata(request.session_timeout_ms, protocols),
    }
    if request.instance_id is not None:
        changes["instanceId"] = request.instance_id
    if subscription.get("rackId"):
        changes["rackId"] = subscription["rackId"]
    if request.rebalance_timeout_ms != -1:
        changes["rebalanceTimeoutMs"] = request.rebalance_timeout_ms
    updated = {**metadata, **changes}
    return metadata if updated == metadata else updated


def _identified(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
    """Return the sender of a request.

    Raises:
        RequestError: There is no such member with the classic protocol, or it has another generation.
    """
    member = leaving.identified(group, member_id, instance_id)
    if not member.uses_classic_protocol:
        raise leaving.unknown_member(group, member_id)
    if generation != member.epoch:
        raise RequestError(error_codes.ILLEGAL_GENERATION, f"The generation of member {member_id} is {member.epoch}.")
    return member


def _is_behind(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether there is a newer target assignment, or one is computed when the member joins."""
    return member.epoch < rewind.target_epoch(group, group.state.epoch)


def _must_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether a rebalance has begun, or the member must revoke partitions, or can have all of its target."""
    if _is_behind(group, member) or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_partitions(group, member)


def _waits_for_partitions(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether another member owns a partition of the target assignment of a member."""
    assigned = member.assigned
    return any(
        group.partition_epoch(topic_id, partition) != NO_EPOCH
        for topic_id, partitions in group.targets.get(member.member_id, NO_TARGET).items()
        for partition in set(partitions).difference(assigned.get(topic_id, NO_PARTITIONS))
    )
