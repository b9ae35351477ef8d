"""ShareGroupHeartbeat (`GroupMetadataManager.shareGroupHeartbeat`)."""

from collections.abc import Collection

from offsetlake.coordinator.epoch_groups.assignment import NO_TARGET, Target, is_same_target
from offsetlake.coordinator.epoch_groups.member import Value
from offsetlake.coordinator.epoch_groups.requests import JOIN_EPOCH, LEAVE_EPOCH, HeartbeatResponse, RequestError
from offsetlake.coordinator.hash_order import hash_code, set_order
from offsetlake.coordinator.share import members
from offsetlake.coordinator.share.assignor import ShareSpecification, assign
from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.coordinator.share.member import ShareMember
from offsetlake.coordinator.share.records import RECORDS
from offsetlake.coordinator.share.requests import Initialization, ShareHeartbeatReply, ShareHeartbeatRequest, check
from offsetlake.coordinator.steps import Step, Token
from offsetlake.coordinator.topics import TopicDescriptions
from offsetlake.kafka import error_codes

_UNINITIALIZED_OFFSET = -1


def heartbeat(step: Step, group: ShareGroup, request: ShareHeartbeatRequest, token: Token) -> None:
    """Handle a heartbeat, which may also be that of a member that joins or leaves.

    The reply is a HeartbeatReply. If `group.exists` is still false afterwards, the group is not needed.
    """
    try:
        check(request)
        if request.member_epoch == LEAVE_EPOCH:
            reply = ShareHeartbeatReply(_leave(step, group, request))
        else:
            reply = ShareHeartbeatReply(_stay(step, group, request), _initialize(step, group))
    except RequestError as error:
        reply = ShareHeartbeatReply(HeartbeatResponse(error.error_code, str(error)))
    step.reply(token, reply)


def _leave(step: Step, group: ShareGroup, request: ShareHeartbeatRequest) -> HeartbeatResponse:
    if not group.exists:
        raise RequestError(error_codes.GROUP_ID_NOT_FOUND, f"Group {group.group_id} not found.")
    members.known(group, request.member_id)
    members.remove(step, group, request.member_id)
    return HeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)


def _stay(step: Step, group: ShareGroup, request: ShareHeartbeatRequest) -> HeartbeatResponse:
    """Handle the heartbeat of a member that joins or stays."""
    old = _member(step, group, request)
    new = old._replace(metadata=_updated(old.metadata, request))
    is_new = old.member_id not in group.state.members
    order = group.member_order.ordered_with(old.member_id) if is_new else group.member_order.ordered()
    if new.metadata is not old.metadata:
        group.append(step, [RECORDS.member_metadata(group.group_id, new)])
    changed = set(old.topics) != set(new.topics) or group.is_assignment_pending()
    changed = _bump_epoch(step, group, changed=changed)
    if group.state.epoch > group.state.assignment_epoch:
        _assign(step, group, order)
    epoch = group.state.assignment_epoch
    if changed or new.epoch != epoch:
        new = _reconciled(step, group, new, epoch)
    members.restart_session(step, group, new.member_id)
    with_assignment = request.member_epoch == JOIN_EPOCH or request.subscribed_topics is not None
    return HeartbeatResponse(
        member_id=new.member_id,
        member_epoch=new.epoch,
        heartbeat_interval_ms=step.settings.share_heartbeat_interval_ms,
        assignment=new.assigned if with_assignment or new.assigned != old.assigned else None,
    )


def _member(step: Step, group: ShareGroup, request: ShareHeartbeatRequest) -> ShareMember:
    """Return the member that sent the request, as it is or as it joins."""
    member_id, joins = request.member_id, request.member_epoch == JOIN_EPOCH
    if not group.exists and not joins:
        raise RequestError(error_codes.GROUP_ID_NOT_FOUND, f"Share group {group.group_id} not found.")
    max_size = step.settings.share_max_size
    if len(group.state.members) >= max_size and member_id not in group.state.members:
        message = f"The share group has reached its maximum capacity of {max_size} members."
        raise RequestError(error_codes.GROUP_MAX_SIZE_REACHED, message)
    if joins:
        return group.member(member_id) or ShareMember(member_id)
    member = members.known(group, member_id)
    _check_epoch(member, request.member_epoch)
    return member


def _check_epoch(member: ShareMember, received: int) -> None:
    if received in {member.epoch, member.previous_epoch}:  # the previous response may have been lost
        return
    if received > member.epoch:
        size, but = "greater", ""
    else:
        size, but = "smaller", f", and it does not match the previous member epoch ({member.previous_epoch})"
    message = (
        f"The share group member has a {size} member epoch ({received}) than the one known by the group coordinator "
        f"({member.epoch}){but}. The member must abandon all its partitions and rejoin."
    )
    raise RequestError(error_codes.FENCED_MEMBER_EPOCH, message)


def _updated(metadata: Value, request: ShareHeartbeatRequest) -> Value:
    """Return the metadata with what the request has; the same object if nothing changed."""
    changes: dict[str, object] = {"clientId": request.client_id, "clientHost": request.client_host}
    if request.rack_id is not None:
        changes["rackId"] = request.rack_id
    if request.subscribed_topics is not None:
        changes["subscribedTopicNames"] = sorted(set(request.subscribed_topics))
    updated = {**metadata, **changes}
    return metadata if updated == metadata else updated


def _bump_epoch(step: Step, group: ShareGroup, *, changed: bool) -> bool:
    """Increase the group epoch if something has changed, or if the topics have since the last comparison."""
    if not changed and not group.metadata_expired(step.now_ms):
        return False
    metadata_hash, epoch = step.hashes.of(group.subscriptions.topics(), step.topics), group.state.epoch
    changed = changed or metadata_hash != group.state.metadata_hash
    if changed:
        epoch += 1
        group.append(step, [RECORDS.group_epoch(group.group_id, epoch, metadata_hash)])
    group.metadata_refreshed(step.now_ms, epoch)
    return changed


def _assign(step: Step, group: ShareGroup, order: list[str]) -> None:
    """Compute the target assignment of the group epoch, for members in a broker's order, and write what changed."""
    topics_of = {member.member_id: tuple(member.topics) for member in group.members()}
    partitions = {names: _partitions(names, step.topics) for names in {*topics_of.values()}}
    specification = ShareSpecification(
        members=order,
        subscription=lambda member_id: partitions[topics_of[member_id]],
        previous=group.targets,
        assignable=group.assignable(),
        homogeneous=group.homogeneous,
    )
    assigned = assign(specification)
    changes = [
        RECORDS.target_assignment(group.group_id, member_id, assigned.get(member_id, NO_TARGET))
        for member_id in specification.members
        if _is_changed(group.targets.get(member_id), assigned.get(member_id, NO_TARGET))
    ]
    group.append(step, [*changes, RECORDS.assignment_epoch(group.group_id, group.state.epoch)])


def _is_changed(previous: Target | None, assigned: Target) -> bool:
    return previous is None or not is_same_target(previous, assigned)


def _partitions(names: Collection[str], topics: TopicDescriptions) -> dict[str, int]:
    """Return the number of partitions by ID of the topics that exist, in the order of a `HashSet` of their names."""
    ids = ((name, topics.id_of(name)) for name in set_order(names, hash_code))
    return {topic_id: topics.partitions(name) for name, topic_id in ids if topic_id is not None}


def _reconciled(step: Step, group: ShareGroup, member: ShareMember, epoch: int) -> ShareMember:
    """Return the member with its target assignment, without topics that it is not subscribed to."""
    target = group.targets.get(member.member_id, NO_TARGET)
    assigned = {
        topic_id: frozenset(partitions)
        for topic_id, partitions in target.items()
        if step.topics.name_of(topic_id) in member.topics
    }
    if epoch == member.epoch and assigned == member.assigned:
        return member
    new = member.at(epoch, assigned)
    group.append(step, [RECORDS.current_assignment(group.group_id, new)])
    return new


def _initialize(step: Step, group: ShareGroup) -> Initialization | None:
    """Return the share partitions to initialize, which are recorded as initializing."""
    missing = group.uninitialized(step)
    if not missing:
        return None
    group.write_topics(step, group.topics.initialize(missing))
    offsets = {
        topic_id: dict.fromkeys(sorted(topic.partitions), _UNINITIALIZED_OFFSET) for topic_id, topic in missing.items()
    }
    return Initialization(group.state.epoch, offsets)
