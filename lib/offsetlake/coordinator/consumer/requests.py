"""Requests and responses of the consumer protocol (KIP-848)."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from offsetlake.coordinator.epoch_groups.requests import JOIN_EPOCH, LEAVE_EPOCH, RequestError, require_text
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.kafka import error_codes

STATIC_LEAVE_EPOCH = -2

_CLIENT_GENERATED_IDS = 1  # the first version of ConsumerGroupHeartbeat in which the client chooses the member ID


def _everything(_topic: str) -> bool:
    return True


class ConsumerHeartbeatRequest(NamedTuple):
    """ConsumerGroupHeartbeat. None, and -1 for the rebalance timeout, means: unchanged since the previous request.

    Attributes:
        client_host: The address as a broker writes it, such as `/127.0.0.1`.
        owned: The partitions that the member owns, by topic ID.
        api_version: The version of the request.
        may_describe: Whether the principal may see a topic that a regular expression matches.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topics: tuple[str, ...] | None = None
    subscribed_regex: str | None = None
    server_assignor: str | None = None
    owned: Mapping[str, frozenset[int]] | None = None
    client_id: str = ""
    client_host: str = ""
    api_version: int = 1
    may_describe: Callable[[str], bool] = _everything

    def is_full(self) -> bool:
        """Return whether the member sent its whole state, as it does after a failed request."""
        subscription = self.subscribed_topics is not None or self.subscribed_regex is not None
        return self.rebalance_timeout_ms != -1 and subscription and self.owned is not None


def check(request: ConsumerHeartbeatRequest, settings: CoordinatorSettings) -> None:
    """Raise RequestError if a broker refuses the request whatever the state of the group."""
    epoch = request.member_epoch
    if request.api_version >= _CLIENT_GENERATED_IDS or epoch > 0 or epoch == LEAVE_EPOCH:
        require_text(request.member_id, "MemberId")
    require_text(request.group_id, "GroupId")
    require_text(request.instance_id, "InstanceId")
    require_text(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise RequestError(error_codes.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise RequestError(error_codes.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in settings.consumer_assignors:
        supported = ", ".join(settings.consumer_assignors)
        message = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {supported}."
        raise RequestError(error_codes.UNSUPPORTED_ASSIGNOR, message)


def _check_join(request: ConsumerHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise RequestError(error_codes.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise RequestError(error_codes.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topics is None and request.subscribed_regex is None:
        message = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        raise RequestError(error_codes.INVALID_REQUEST, message)
