"""ConsumerGroupHeartbeat: the requests and responses of the consumer group protocol (KIP-848)."""

import struct
import uuid
from datetime import timedelta
from typing import Any

from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.requests import ConsumerHeartbeatRequest, check
from offsetlake.coordinator.epoch_groups.assignment import Assignment
from offsetlake.coordinator.epoch_groups.requests import JOIN_EPOCH, HeartbeatResponse, RequestError
from offsetlake.coordinator.groups import Group
from offsetlake.coordinator.migration.requests import consumer_heartbeat
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.steps import Step, Token
from offsetlake.kafka.error_codes import GROUP_MAX_SIZE_REACHED, INVALID_GROUP_ID, NONE
from offsetlake.kafka.uuid import uuid_bytes, uuid_text
from offsetlake.serve.groups.membership import Membership
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handlers, Respond
from offsetlake.serve.protocol.api_keys import CONSUMER_GROUP_HEARTBEAT
from offsetlake.serve.protocol.encoding import Values
from offsetlake.serve.protocol.wire import string

_MILLISECOND = timedelta(milliseconds=1)
_BEGIN = b"\0" + b"\0\0\0\0" + b"\0\0" + b"\0"
"""The tags of the header, the throttle time, the error code and the error message, which is null."""

_EPOCH_AND_INTERVAL = struct.Struct(">ii")
_END = b"\xff" + b"\0"
"""The assignment, which is null, and the tags."""


class ConsumerApis:
    """Answers the requests of members of consumer groups."""

    def __init__(self, membership: Membership, settings: CoordinatorSettings) -> None:
        self._membership, self._settings = membership, settings

    def handlers(self) -> Handlers:
        """Return the handler by API key."""
        return {CONSUMER_GROUP_HEARTBEAT: self.heartbeat}

    def heartbeat(self, request: Any, context: RequestContext, respond: Respond) -> None:
        """Answer ConsumerGroupHeartbeat."""
        beat = _request(request, context)

        def reply(response: object | None, error: int) -> None:
            result = response if isinstance(response, HeartbeatResponse) else HeartbeatResponse(error)
            if result.error_code == NONE and result.assignment is None and result.member_id is not None:
                respond(_usual(result.member_id, result.member_epoch, result.heartbeat_interval_ms))
            else:
                respond(heartbeat_values(result))

        refused = self._refusal(beat, context)
        if refused.error_code:
            reply(refused, NONE)
            return

        def act(step: Step, group: Group, token: Token) -> None:
            consumer_heartbeat(step, group, beat, token)

        self._membership.handle(beat.group_id, ConsumerGroup, act, reply)

    def _refusal(self, beat: ConsumerHeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        """Return the response to a request that is refused before its group is looked at, or one without an error."""
        error = self._membership.refusal(beat.group_id, context)
        if not error and beat.member_epoch == JOIN_EPOCH and self._membership.is_full():
            error = GROUP_MAX_SIZE_REACHED
        if error in {GROUP_MAX_SIZE_REACHED, INVALID_GROUP_ID}:  # otherwise the core checks the request
            try:
                check(beat, self._settings)
            except RequestError as refused:
                return HeartbeatResponse(refused.error_code, str(refused))
        return HeartbeatResponse(error)


def _request(request: Any, context: RequestContext) -> ConsumerHeartbeatRequest:
    topics, owned = request.subscribed_topic_names, request.topic_partitions
    return ConsumerHeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=round(request.rebalance_timeout / _MILLISECOND),
        subscribed_topics=None if topics is None else tuple(topics),
        subscribed_regex=getattr(request, "subscribed_topic_regex", None),
        server_assignor=request.server_assignor,
        owned=None if owned is None else _owned(owned),
        client_id=(context.client_id or b"").decode(errors="replace"),
        client_host=context.client.host,
        api_version=context.version,
        may_describe=context.client.access.may_list_topic,
    )


def _owned(topics: Any) -> dict[str, frozenset[int]]:
    owned: dict[str, frozenset[int]] = {}
    for topic in topics:
        topic_id = uuid_text(topic.topic_id.bytes if topic.topic_id else bytes(16))
        owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def _usual(member_id: str, epoch: int, interval_ms: int) -> bytes:
    """Return a response of any version without an error and an assignment, as nearly all are, already encoded."""
    return _BEGIN + string(member_id.encode(), flexible=True) + _EPOCH_AND_INTERVAL.pack(epoch, interval_ms) + _END


def heartbeat_values(response: HeartbeatResponse) -> Values:
    """Return the fields of a ConsumerGroupHeartbeat or ShareGroupHeartbeat response."""
    return {
        "error_code": response.error_code,
        "error_message": response.error_message,
        "member_id": response.member_id,
        "member_epoch": response.member_epoch,
        "heartbeat_interval": timedelta(milliseconds=response.heartbeat_interval_ms),
        "assignment": None if response.assignment is None else {"topic_partitions": _assigned(response.assignment)},
    }


def _assigned(assignment: Assignment) -> list[Values]:
    return [
        {"topic_id": uuid.UUID(bytes=uuid_bytes(topic_id)), "partitions": tuple(sorted(partitions))}
        for topic_id, partitions in assignment.items()
    ]
