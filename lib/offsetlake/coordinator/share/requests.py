"""Requests and replies of share groups (KIP-932)."""

from collections.abc import Mapping
from dataclasses import dataclass

from offsetlake.coordinator.epoch_groups.requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    HeartbeatResponse,
    RequestError,
    require_text,
)
from offsetlake.kafka import error_codes

StartOffsets = Mapping[str, Mapping[int, int]]
"""The start offset by partition and topic ID; -1 is the one that `share.auto.offset.reset` determines."""


@dataclass(frozen=True, slots=True)
class ShareHeartbeatRequest:
    """ShareGroupHeartbeat. None means: unchanged since the previous request.

    Attributes:
        client_host: The address as a broker writes it, such as `/127.0.0.1`.
    """

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    subscribed_topics: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class Initialization:
    """Share partitions to initialize in the share coordinator at a group epoch, once the records are durable."""

    epoch: int
    start_offsets: StartOffsets


@dataclass(frozen=True, slots=True)
class ShareHeartbeatReply:
    """The response to a heartbeat, and the share partitions to initialize after it."""

    response: HeartbeatResponse
    initialization: Initialization | None = None


def check(request: ShareHeartbeatRequest) -> None:
    """Raise RequestError if a broker refuses the request whatever the state of the group."""
    require_text(request.member_id, "MemberId")
    require_text(request.group_id, "GroupId")
    require_text(request.rack_id, "RackId")
    if request.member_epoch == JOIN_EPOCH:
        if not request.subscribed_topics:
            raise RequestError(error_codes.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE_EPOCH:
        raise RequestError(error_codes.INVALID_REQUEST, "MemberEpoch is invalid.")
