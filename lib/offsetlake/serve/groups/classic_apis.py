"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the requests and responses of the classic group protocol."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from offsetlake.coordinator.classic.group import ClassicGroup
from offsetlake.coordinator.classic.requests import (
    ClassicHeartbeatReply,
    ClassicHeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeaveRequest,
    LeavingMember,
    LeftMember,
    SyncReply,
    SyncRequest,
)
from offsetlake.coordinator.groups import Group, has_member
from offsetlake.coordinator.migration import requests
from offsetlake.coordinator.steps import Step, Token
from offsetlake.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_MAX_SIZE_REACHED,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_REQUEST,
    NONE,
    UNKNOWN_MEMBER_ID,
)
from offsetlake.serve.groups.membership import Membership
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handlers, Respond
from offsetlake.serve.protocol.api_keys import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from offsetlake.serve.protocol.encoding import Values

Request = TypeVar("Request")
_NAMED_PROTOCOL_SINCE = 5  # version of SyncGroup in which the protocol type and the protocol are mandatory
_NULLABLE_PROTOCOL_SINCE = 7  # version of JoinGroup
MAX_NAME_BYTES = 32_000
"""Maximum length of the client id and the instance id of a member, to which its member id adds 37 bytes."""

_MEMBERS_SINCE = 3  # version of LeaveGroup


class ClassicApis:
    """Answers the requests of members of classic groups."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    def handlers(self) -> Handlers:
        """Return the handlers by API key."""
        return {
            JOIN_GROUP: self.join_group,
            SYNC_GROUP: self.sync_group,
            HEARTBEAT: self.heartbeat,
            LEAVE_GROUP: self.leave_group,
        }

    def join_group(self, request: Any, context: RequestContext, respond: Respond) -> None:
        """Answer JoinGroup when the rebalance has a new generation."""
        timeout_ms = _milliseconds(request.session_timeout)
        joining = JoinRequest(
            version=context.version,
            client_id=(context.client_id or b"").decode(errors="replace"),
            client_host=context.client.host,
            member_id=request.member_id,
            instance_id=getattr(request, "group_instance_id", None),
            session_timeout_ms=timeout_ms,
            rebalance_timeout_ms=_milliseconds(getattr(request, "rebalance_timeout", request.session_timeout)),
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            reason=getattr(request, "reason", None),
        )

        def reply(joined: object | None, error: int) -> None:
            if not isinstance(joined, JoinReply):
                joined = JoinReply(error, request.member_id)
            respond(_join_values(joined, context.version))

        error = self._membership.refusal(request.group_id, context)
        if max(len(joining.client_id.encode()), len((joining.instance_id or "").encode())) > MAX_NAME_BYTES:
            error = error or INVALID_REQUEST  # the member id, which contains the name, would be no string of Kafka
        if not error and self._membership.is_full():
            group = self._membership.live(request.group_id.encode())
            error = NONE if has_member(group, request.member_id) else GROUP_MAX_SIZE_REACHED
        if error:
            reply(None, error)
        else:
            self._handle(request.group_id, requests.join, joining, reply)

    def sync_group(self, request: Any, context: RequestContext, respond: Respond) -> None:
        """Answer SyncGroup when the leader has sent the assignments."""
        syncing = SyncRequest(
            version=context.version,
            member_id=request.member_id,
            instance_id=getattr(request, "group_instance_id", None),
            generation=request.generation_id,
            protocol_type=getattr(request, "protocol_type", None),
            protocol=getattr(request, "protocol_name", None),
            assignments=tuple((entry.member_id, entry.assignment) for entry in request.assignments),
        )

        def reply(synced: object | None, error: int) -> None:
            synced = synced if isinstance(synced, SyncReply) else SyncReply(error)
            respond(
                {
                    "error_code": synced.error,
                    "protocol_type": synced.protocol_type,
                    "protocol_name": synced.protocol,
                    "assignment": synced.assignment,
                }
            )

        error = NONE
        if context.version >= _NAMED_PROTOCOL_SINCE and None in {syncing.protocol_type, syncing.protocol}:
            error = INCONSISTENT_GROUP_PROTOCOL
        error = error or self._membership.refusal(request.group_id, context)
        if error:
            reply(None, error)
        else:
            self._handle(request.group_id, requests.sync, syncing, reply)

    def heartbeat(self, request: Any, context: RequestContext, respond: Respond) -> None:
        """Answer Heartbeat."""
        beat = ClassicHeartbeatRequest(
            request.member_id, getattr(request, "group_instance_id", None), request.generation_id
        )

        def reply(answer: object | None, error: int) -> None:
            respond({"error_code": answer.error if isinstance(answer, ClassicHeartbeatReply) else error})

        error = self._membership.refusal(request.group_id, context)
        if error:
            # While a broker loads the group, it does not tell members that something is wrong.
            reply(None, NONE if error == COORDINATOR_LOAD_IN_PROGRESS else error)
        else:
            self._handle(request.group_id, requests.heartbeat, beat, reply)

    def leave_group(self, request: Any, context: RequestContext, respond: Respond) -> None:
        """Answer LeaveGroup."""
        if context.version >= _MEMBERS_SINCE:
            leaving = tuple(
                LeavingMember(member.member_id, member.group_instance_id, getattr(member, "reason", None))
                for member in request.members
            )
        else:
            leaving = (LeavingMember(request.member_id),)

        def reply(left: object | None, error: int) -> None:
            respond(_leave_values(left if isinstance(left, LeaveReply) else LeaveReply(error), context.version))

        error = self._membership.refusal(request.group_id, context)
        if error:
            reply(None, error)
        elif self._membership.find(request.group_id.encode()) is None:
            reply(LeaveReply(NONE, tuple(_left(member, UNKNOWN_MEMBER_ID) for member in leaving)), NONE)
        else:
            self._handle(request.group_id, requests.leave, LeaveRequest(leaving), reply)

    def _handle(
        self,
        group_id: str,
        act: Callable[[Step, Group, Request, Token], None],
        request: Request,
        reply: Callable[[object | None, int], None],
    ) -> None:
        """Handle a request in the core; a new group is a classic one."""
        self._membership.handle(
            group_id, ClassicGroup, lambda step, group, token: act(step, group, request, token), reply
        )


def _left(member: LeavingMember, error: int) -> LeftMember:
    return LeftMember(member.member_id, member.instance_id, error)


def _milliseconds(duration: timedelta) -> int:
    return round(duration / timedelta(milliseconds=1))


def _join_values(reply: JoinReply, version: int) -> Values:
    return {
        "error_code": reply.error,
        "generation_id": reply.generation,
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol or (None if version >= _NULLABLE_PROTOCOL_SINCE else ""),
        "leader": reply.leader_id,
        "skip_assignment": reply.skip_assignment,
        "member_id": reply.member_id,
        "members": [
            {"member_id": member.member_id, "group_instance_id": member.instance_id, "metadata": member.metadata}
            for member in reply.members
        ],
    }


def _leave_values(reply: LeaveReply, version: int) -> Values:
    if version < _MEMBERS_SINCE:
        return {"error_code": reply.error or next((member.error for member in reply.members), NONE)}
    members = [
        {"member_id": member.member_id, "group_instance_id": member.instance_id, "error_code": member.error}
        for member in reply.members
    ]
    return {"error_code": reply.error, "members": members}
