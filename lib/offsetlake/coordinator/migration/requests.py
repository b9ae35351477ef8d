"""The requests of members to groups of either type."""

from offsetlake.coordinator.classic import heartbeat as classic_heartbeat
from offsetlake.coordinator.classic import leave as classic_leave
from offsetlake.coordinator.classic.group import ClassicGroup
from offsetlake.coordinator.classic.rebalance import join as classic_join
from offsetlake.coordinator.classic.rebalance import sync as classic_sync
from offsetlake.coordinator.classic.requests import (
    ClassicHeartbeatReply,
    ClassicHeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeaveRequest,
    LeftMember,
    SyncReply,
    SyncRequest,
)
from offsetlake.coordinator.consumer import heartbeat as consumer
from offsetlake.coordinator.consumer import records
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.leaving import remove_each
from offsetlake.coordinator.consumer.requests import ConsumerHeartbeatRequest, check
from offsetlake.coordinator.epoch_groups.requests import JOIN_EPOCH, HeartbeatResponse, RequestError
from offsetlake.coordinator.migration import classic_members, upgrade
from offsetlake.coordinator.share import heartbeat as share
from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.coordinator.share.requests import ShareHeartbeatReply, ShareHeartbeatRequest
from offsetlake.coordinator.share.requests import check as check_share
from offsetlake.coordinator.steps import Step, Token
from offsetlake.kafka.error_codes import GROUP_ID_NOT_FOUND, INCONSISTENT_GROUP_PROTOCOL, NONE, UNKNOWN_MEMBER_ID

Group = ClassicGroup | ConsumerGroup | ShareGroup


def join(step: Step, group: Group, request: JoinRequest, token: Token) -> None:
    """Process a JoinGroup request; it replaces a consumer group without members by a classic group."""
    if isinstance(group, ClassicGroup):
        classic_join.join(step, group, request, token)
    elif isinstance(group, ShareGroup):
        step.reply(token, JoinReply(INCONSISTENT_GROUP_PROTOCOL, ""))
    elif group.state.members:
        classic_members.join(step, group, request, token)
    else:
        successor = ClassicGroup(group.group_id)
        classic_join.join(step, successor, request, token)
        if successor.exists:
            step.records[:0] = records.no_group(group, []) if group.exists else []
            step.successor = successor


def sync(step: Step, group: Group, request: SyncRequest, token: Token) -> None:
    """Process a SyncGroup request."""
    if isinstance(group, ClassicGroup):
        classic_sync.sync(step, group, request, token)
    elif isinstance(group, ShareGroup):
        step.reply(token, SyncReply(UNKNOWN_MEMBER_ID))
    else:
        classic_members.sync(step, group, request, token)


def heartbeat(step: Step, group: Group, request: ClassicHeartbeatRequest, token: Token) -> None:
    """Process a Heartbeat request."""
    if isinstance(group, ClassicGroup):
        classic_heartbeat.heartbeat(step, group, request, token)
    elif isinstance(group, ShareGroup):
        step.reply(token, ClassicHeartbeatReply(UNKNOWN_MEMBER_ID))
    else:
        classic_members.heartbeat(step, group, request, token)


def leave(step: Step, group: Group, request: LeaveRequest, token: Token) -> None:
    """Process a LeaveGroup request, by which an administrator also removes members with the consumer protocol."""
    if isinstance(group, ClassicGroup):
        classic_leave.leave(step, group, request, token)
        return
    if isinstance(group, ShareGroup):
        unknown = (LeftMember(member.member_id, member.instance_id, UNKNOWN_MEMBER_ID) for member in request.members)
        step.reply(token, LeaveReply(NONE, tuple(unknown)))
        return
    errors = remove_each(step, group, [(member.member_id, member.instance_id) for member in request.members])
    left = tuple(
        LeftMember(member.member_id, member.instance_id, NONE if error is None else error.error_code)
        for member, error in zip(request.members, errors, strict=True)
    )
    step.reply(token, LeaveReply(NONE, left))


def consumer_heartbeat(step: Step, group: Group, request: ConsumerHeartbeatRequest, token: Token) -> None:
    """Process a ConsumerGroupHeartbeat request; a member that joins replaces a classic group by a consumer group."""
    if isinstance(group, ConsumerGroup):
        consumer.heartbeat(step, group, request, token)
        return
    try:
        check(request, step.settings)
        if request.member_epoch == JOIN_EPOCH and isinstance(group, ClassicGroup):
            response = upgrade.join(step, group, request)
        else:
            message = f"Group {group.group_id} is not a consumer group."
            response = HeartbeatResponse(GROUP_ID_NOT_FOUND, message)
    except RequestError as error:
        response = HeartbeatResponse(error.error_code, str(error))
    step.reply(token, response)


def share_heartbeat(step: Step, group: Group, request: ShareHeartbeatRequest, token: Token) -> None:
    """Process a ShareGroupHeartbeat request, which a group of another type refuses."""
    if isinstance(group, ShareGroup):
        share.heartbeat(step, group, request, token)
        return
    try:
        check_share(request)
        response = HeartbeatResponse(GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a share group.")
    except RequestError as error:
        response = HeartbeatResponse(error.error_code, str(error))
    step.reply(token, ShareHeartbeatReply(response))
