"""ShareGroupHeartbeat: the requests and responses of members of share groups (KIP-932)."""

from typing import Any

from offsetlake.coordinator.epoch_groups.requests import JOIN_EPOCH, HeartbeatResponse, RequestError
from offsetlake.coordinator.groups import Group
from offsetlake.coordinator.migration.requests import share_heartbeat
from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.coordinator.share.requests import ShareHeartbeatReply, ShareHeartbeatRequest, check
from offsetlake.coordinator.steps import Step, Token
from offsetlake.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    GROUP_MAX_SIZE_REACHED,
    INVALID_GROUP_ID,
    INVALID_REQUEST,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
)
from offsetlake.serve.groups.consumer_apis import heartbeat_values
from offsetlake.serve.groups.membership import Membership
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handlers, Respond
from offsetlake.serve.protocol.api_keys import SHARE_GROUP_HEARTBEAT
from offsetlake.share.initializer import Initializer

_MAX_MEMBER_ID_CHARACTERS = 36  # KafkaApis.isMemberIdValid


class ShareHeartbeats:
    """Answers the requests of members of share groups."""

    def __init__(self, membership: Membership, partitions: Initializer) -> None:
        self._membership, self._partitions = membership, partitions

    def handlers(self) -> Handlers:
        """Return the handler by API key."""
        return {SHARE_GROUP_HEARTBEAT: self.heartbeat}

    def heartbeat(self, request: Any, context: RequestContext, respond: Respond) -> None:
        """Answer ShareGroupHeartbeat."""
        topics = request.subscribed_topic_names
        beat = ShareHeartbeatRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            rack_id=request.rack_id,
            subscribed_topics=None if topics is None else tuple(topics),
            client_id=(context.client_id or b"").decode(errors="replace"),
            client_host=context.client.host,
        )
        refused = self._refusal(beat, context)
        if refused.error_code:
            respond(heartbeat_values(refused))
            return

        def reply(answer: object | None, error: int) -> None:
            if not isinstance(answer, ShareHeartbeatReply):
                respond(heartbeat_values(HeartbeatResponse(error)))
                return
            if answer.initialization is not None:
                self._partitions.start(beat.group_id, answer.initialization)
            respond(heartbeat_values(answer.response))

        def act(step: Step, group: Group, token: Token) -> None:
            share_heartbeat(step, group, beat, token)

        self._membership.handle(beat.group_id, ShareGroup, act, reply)

    def _refusal(self, beat: ShareHeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        """Return the response to a request that is refused before its group is looked at, or one without an error."""
        error = self._membership.refusal(beat.group_id, context)
        if error == GROUP_AUTHORIZATION_FAILED:
            return HeartbeatResponse(error)
        if not 0 < len(beat.member_id) <= _MAX_MEMBER_ID_CHARACTERS:
            return HeartbeatResponse(INVALID_REQUEST)
        if not all(context.client.may_read_topic(topic.encode()) for topic in beat.subscribed_topics or ()):
            return HeartbeatResponse(TOPIC_AUTHORIZATION_FAILED)
        if not error and beat.member_epoch == JOIN_EPOCH and self._membership.is_full():
            error = GROUP_MAX_SIZE_REACHED
        if error in {GROUP_MAX_SIZE_REACHED, INVALID_GROUP_ID}:  # otherwise the core checks the request
            try:
                check(beat)
            except RequestError as refused:
                return HeartbeatResponse(refused.error_code, str(refused))
        return HeartbeatResponse(error or NONE)
