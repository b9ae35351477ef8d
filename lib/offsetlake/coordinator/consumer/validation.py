"""Checks of requests about the offsets of a consumer group (`ConsumerGroup.validate…`)."""

from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.leaving import unknown_member
from offsetlake.coordinator.consumer.member import ConsumerMember
from offsetlake.coordinator.epoch_groups.requests import RequestError
from offsetlake.kafka import error_codes

_MEMBER_EPOCH_VERSION = 9  # the first version of OffsetCommit whose error codes include those of member epochs
_NO_EPOCH = -1


def check_commit(group: ConsumerGroup, member_id: str, member_epoch: int, api_version: int) -> None:
    """Raise RequestError if an OffsetCommit is refused.

    A request without a member epoch, such as that of a tool, is accepted while the group has no members.
    """
    if member_epoch < 0 and not group.state.members:
        return
    member = _known_member(group, member_id)
    if not member.uses_classic_protocol and api_version < _MEMBER_EPOCH_VERSION:
        message = "OffsetCommit version 9 or above must be used by members using the modern group protocol"
        raise RequestError(error_codes.UNSUPPORTED_VERSION, message)
    _check_epoch(member, member_epoch)


def check_transactional_commit(
    group: ConsumerGroup, member_id: str, instance_id: str | None, member_epoch: int
) -> None:
    """Raise RequestError if a TxnOffsetCommit is refused, whose fields about the member are optional."""
    if member_epoch < 0 and not group.state.members:
        return
    if member_epoch == _NO_EPOCH and not member_id and instance_id is None:
        return
    try:
        _check_epoch(_known_member(group, member_id), member_epoch)
    except RequestError as error:
        if error.error_code != error_codes.STALE_MEMBER_EPOCH:
            raise
        message = "Specified group generation id is not valid."
        raise RequestError(error_codes.ILLEGAL_GENERATION, message) from error


def check_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
    """Raise RequestError if an OffsetFetch is refused; the fields about the member are optional."""
    if member_id is not None or member_epoch >= 0:
        _check_epoch(_known_member(group, member_id or ""), member_epoch)


def _known_member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    member = group.member(member_id)
    if member is None:
        raise unknown_member(group, member_id)
    return member


def _check_epoch(member: ConsumerMember, received: int) -> None:
    if received == member.epoch:
        return
    if member.uses_classic_protocol:
        message = f"The received generation id {received} does not match the expected member epoch {member.epoch}."
        raise RequestError(error_codes.ILLEGAL_GENERATION, message)
    message = f"The received member epoch {received} does not match the expected member epoch {member.epoch}."
    raise RequestError(error_codes.STALE_MEMBER_EPOCH, message)
