"""Who may commit to a group: the checks of a coordinator, in the order of Kafka's `OffsetMetadataManager`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from offsetlake.kafka.error_codes import (
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    NONE,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNSUPPORTED_VERSION,
)

_NAMED_SINCE = 9  # version of OffsetCommit that tells a group that is not there from a wrong generation


class Committer(NamedTuple):
    """Who commits, as the request says: generation or member epoch (-1: nobody's), member id, instance id."""

    generation: int
    member: bytes
    instance: bytes | None


NOBODY = Committer(-1, b"", None)


def refusal(
    group: Mapping[str, Any] | None, members_of: Callable[[], Mapping[str, Any]], committer: Committer, version: int
) -> int:
    """Give the error code a commit gets, NONE if it may go on; `group` and its members as a `Store` gives them."""
    if group is None:
        if committer.generation < 0:
            return NONE
        return GROUP_ID_NOT_FOUND if version >= _NAMED_SINCE else ILLEGAL_GENERATION
    if group["state"] == "Empty" and committer.generation < 0 and not committer.member and committer.instance is None:
        return NONE if group["group_type"] != "share" else GROUP_ID_NOT_FOUND
    details = members_of()
    members = {member["member_id"]: member for member in details.get("members", ())}
    if group["group_type"] == "classic":
        return _of_classic(members, details, committer)
    if group["group_type"] == "share":
        return GROUP_ID_NOT_FOUND
    return _of_members_epoch(members, committer, version)


def transactional_refusal(
    group: Mapping[str, Any] | None, members_of: Callable[[], Mapping[str, Any]], committer: Committer
) -> int:
    """Give the error code a commit in a transaction gets: who does not say who it is may write beside members."""
    if group is None or group["group_type"] == "share":
        error = refusal(group, members_of, committer, _NAMED_SINCE)
        return ILLEGAL_GENERATION if group is None and error else error
    if committer == NOBODY:
        return NONE
    error = refusal(group, members_of, committer, _NAMED_SINCE)
    return ILLEGAL_GENERATION if error == STALE_MEMBER_EPOCH else error


def _of_classic(members: Mapping[str, Any], details: Mapping[str, Any], committer: Committer) -> int:
    if committer.generation < 0 and not members:
        return NONE
    if committer.generation >= 0 or committer.member or committer.instance is not None:
        member = members.get(committer.member.decode(errors="replace"))
        if committer.instance is not None:
            instance = committer.instance.decode(errors="replace")
            owner = next((name for name, of in members.items() if of["group_instance_id"] == instance), None)
            if owner is None:
                return UNKNOWN_MEMBER_ID
            if owner.encode() != committer.member:
                return FENCED_INSTANCE_ID
        if member is None:
            return UNKNOWN_MEMBER_ID
        return NONE if committer.generation == details["generation"] else ILLEGAL_GENERATION
    return UNKNOWN_MEMBER_ID


def _of_members_epoch(members: Mapping[str, Any], committer: Committer, version: int) -> int:
    if committer.generation < 0 and not members:
        return NONE
    member = members.get(committer.member.decode(errors="replace"))
    if member is None:
        return UNKNOWN_MEMBER_ID
    if version < _NAMED_SINCE:
        return UNSUPPORTED_VERSION
    return NONE if committer.generation == member["member_epoch"] else STALE_MEMBER_EPOCH


def fetch_refusal(group: Mapping[str, Any] | None, details: Mapping[str, Any], committer: Committer) -> int:
    """Give the error code of a fetch that says who asks: member id and member epoch of a consumer group."""
    if group is None or group["group_type"] in {"classic", "share"}:
        return NONE
    members = {member["member_id"]: member for member in details.get("members", ())}
    member = members.get(committer.member.decode(errors="replace"))
    if member is None:
        return UNKNOWN_MEMBER_ID
    return NONE if committer.generation == member["member_epoch"] else STALE_MEMBER_EPOCH
