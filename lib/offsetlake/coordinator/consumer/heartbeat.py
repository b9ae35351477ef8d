"""ConsumerGroupHeartbeat of a member that joins or stays (`GroupMetadataManager.consumerGroupHeartbeat`)."""

from sys import intern

from offsetlake.coordinator.consumer import leaving, timers
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.member import ConsumerMember
from offsetlake.coordinator.consumer.member_update import MemberUpdate
from offsetlake.coordinator.consumer.regexes import RegexChange
from offsetlake.coordinator.consumer.requests import STATIC_LEAVE_EPOCH, ConsumerHeartbeatRequest, check
from offsetlake.coordinator.epoch_groups.assignment import is_subset
from offsetlake.coordinator.epoch_groups.member import Value
from offsetlake.coordinator.epoch_groups.requests import JOIN_EPOCH, HeartbeatResponse, RequestError
from offsetlake.coordinator.steps import Step, Token
from offsetlake.kafka import error_codes


def heartbeat(step: Step, group: ConsumerGroup, request: ConsumerHeartbeatRequest, token: Token) -> None:
    """Handle a heartbeat, which may also be that of a member that joins or leaves.

    The reply is a HeartbeatResponse. If `group.exists` is still false afterwards, the group is not needed.
    """
    try:
        response = respond(step, group, request)
    except RequestError as error:
        response = HeartbeatResponse(error.error_code, str(error))
    step.replies.append((token, response))


def respond(step: Step, group: ConsumerGroup, request: ConsumerHeartbeatRequest) -> HeartbeatResponse:
    """Handle a heartbeat and return the response.

    Raises:
        RequestError: The request is refused.
    """
    check(request, step.settings)
    if request.member_epoch < JOIN_EPOCH:
        return leaving.leave(step, group, request)
    update = MemberUpdate(step, group)
    old = _member(step, group, request, update)
    metadata = _updated(old.metadata, request)
    if metadata is old.metadata and not update.records and group.has_nothing_to_do(old, step.now_ms):
        new = old
    else:
        new = _changed(step, group, request, update, old, old._replace(metadata=metadata))
    timers.restart_session(step, group, new)
    with_assignment = request.member_epoch == JOIN_EPOCH or request.is_full()
    return HeartbeatResponse(
        member_id=new.member_id,
        member_epoch=new.epoch,
        heartbeat_interval_ms=step.settings.consumer_heartbeat_interval_ms,
        assignment=new.assigned if with_assignment or _assignment_changed(old, new) else None,
    )


def _changed(
    step: Step,
    group: ConsumerGroup,
    request: ConsumerHeartbeatRequest,
    update: MemberUpdate,
    old: ConsumerMember,
    new: ConsumerMember,
) -> ConsumerMember:
    """Return a member that may change in this heartbeat, with its next current assignment, and write the records."""
    names_changed, regex_change = update.subscribe(old, new, request.may_describe)
    bump = group.state.epoch == 0 or names_changed or regex_change is RegexChange.CHANGED_AND_EVALUATED
    group_epoch, homogeneous = update.bump_epoch(old, new, bump=bump)
    epoch, assignment = update.assign(old, new, group_epoch, homogeneous=homogeneous)
    changed = names_changed or regex_change is not RegexChange.NONE
    new = update.reconcile(new, epoch, assignment, request.owned, changed=changed)
    group.append(step, update.records)
    return new


def _member(
    step: Step, group: ConsumerGroup, request: ConsumerHeartbeatRequest, update: MemberUpdate
) -> ConsumerMember:
    """Return the member that sent the request, as it is or as it joins."""
    if not group.exists and request.member_epoch != JOIN_EPOCH:
        raise RequestError(error_codes.GROUP_ID_NOT_FOUND, f"Consumer group {group.group_id} not found.")
    update.check_size(request.member_id)
    member_id = request.member_id or step.new_id()
    if request.member_epoch != JOIN_EPOCH:
        member = leaving.identified(group, member_id, request.instance_id)
        _check_epoch(member, request)
        return member
    existing = None if request.instance_id is None else group.static_member(request.instance_id)
    if existing is None:
        return group.member(member_id) or ConsumerMember(member_id)
    if not existing.uses_classic_protocol and existing.epoch != STATIC_LEAVE_EPOCH:
        message = (
            f"Static member {member_id} with instance id {request.instance_id} cannot join the group because the "
            f"instance id is owned by {existing.member_id} member."
        )
        raise RequestError(error_codes.UNRELEASED_INSTANCE_ID, message)
    return update.replace_static_member(existing, member_id)


def _updated(metadata: Value, request: ConsumerHeartbeatRequest) -> Value:
    """Return the metadata with what the request has; the same object if nothing changed.

    Texts that many members share are in memory once.
    """
    changes: dict[str, object] = {
        "clientId": intern(request.client_id),
        "clientHost": intern(request.client_host),
        "classicMemberMetadata": None,
    }
    if request.instance_id is not None:
        changes["instanceId"] = request.instance_id
    if request.rack_id is not None:
        changes["rackId"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        changes["rebalanceTimeoutMs"] = request.rebalance_timeout_ms
    if request.server_assignor is not None:
        changes["serverAssignor"] = request.server_assignor
    if request.subscribed_topics is not None:
        changes["subscribedTopicNames"] = sorted(set(map(intern, request.subscribed_topics)))
    if request.subscribed_regex is not None:
        changes["subscribedTopicRegex"] = request.subscribed_regex
    return metadata if changes.items() <= metadata.items() else {**metadata, **changes}


def _assignment_changed(old: ConsumerMember, new: ConsumerMember) -> bool:
    return old.current is not new.current and old.assigned != new.assigned


def _check_epoch(member: ConsumerMember, request: ConsumerHeartbeatRequest) -> None:
    received, known = request.member_epoch, member.epoch
    if received == known:
        return
    size = "greater" if received > known else "smaller"
    lost_response = received == member.previous_epoch and is_subset(request.owned, member.assigned)
    if received > known or not lost_response:
        message = (
            f"The consumer group member has a {size} member epoch ({received}) than the one known by the group "
            f"coordinator ({known}). The member must abandon all its partitions and rejoin."
        )
        raise RequestError(error_codes.FENCED_MEMBER_EPOCH, message)
