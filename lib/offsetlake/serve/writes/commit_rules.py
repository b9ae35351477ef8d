"""The checks of a commit against its group, in the order of a broker (`OffsetMetadataManager.validateOffsetCommit`)."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from offsetlake.kafka.error_codes import (
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNSUPPORTED_VERSION,
)

MAX_METADATA_UNITS = 4096
"""In UTF-16 code units, the default of a broker's offset.metadata.max.bytes."""

_FIRST_GROUP_ID_NOT_FOUND_VERSION = 9  # version of OffsetCommit; before, a missing group is ILLEGAL_GENERATION (22)


class Committer(NamedTuple):
    """The sender of a commit as in the request: generation or member epoch (-1: none), member id, instance id."""

    generation: int
    member: bytes
    instance: bytes | None


NO_MEMBER = Committer(-1, b"", None)


def commit_error(
    group: Mapping[str, Any] | None, members_of: Callable[[], Mapping[str, Any]], committer: Committer, version: int
) -> int:
    """Return the error code of a commit, NONE if it is accepted; `group` and `members_of` are as in `Store`."""
    if group is None:
        if committer.generation < 0:
            return NONE
        return GROUP_ID_NOT_FOUND if version >= _FIRST_GROUP_ID_NOT_FOUND_VERSION else ILLEGAL_GENERATION
    if group["state"] == "Empty" and committer.generation < 0 and not committer.member and committer.instance is None:
        return NONE if group["group_type"] != "share" else GROUP_ID_NOT_FOUND
    details = members_of()
    members = {member["member_id"]: member for member in details.get("members", ())}
    if group["group_type"] == "classic":
        return _classic_error(members, details, committer)
    if group["group_type"] == "share":
        return GROUP_ID_NOT_FOUND
    return _member_epoch_error(members, committer, version)


def transactional_commit_error(
    group: Mapping[str, Any] | None, members_of: Callable[[], Mapping[str, Any]], committer: Committer
) -> int:
    """Return the error code of a commit in a transaction, which is accepted without a member even beside members."""
    if group is None or group["group_type"] == "share":
        error = commit_error(group, members_of, committer, _FIRST_GROUP_ID_NOT_FOUND_VERSION)
        return ILLEGAL_GENERATION if group is None and error else error
    if committer == NO_MEMBER:
        return NONE
    error = commit_error(group, members_of, committer, _FIRST_GROUP_ID_NOT_FOUND_VERSION)
    return ILLEGAL_GENERATION if error == STALE_MEMBER_EPOCH else error


def _classic_error(members: Mapping[str, Any], details: Mapping[str, Any], committer: Committer) -> int:
    if committer.generation < 0 and not members:
        return NONE
    if committer.generation >= 0 or committer.member or committer.instance is not None:
        member = members.get(committer.member.decode(errors="replace"))
        if committer.instance is not None:
            instance = committer.instance.decode(errors="replace")
            owner = next((name for name, fields in members.items() if fields["group_instance_id"] == instance), None)
            if owner is None:
                return UNKNOWN_MEMBER_ID
            if owner.encode() != committer.member:
                return FENCED_INSTANCE_ID
        if member is None:
            return UNKNOWN_MEMBER_ID
        return NONE if committer.generation == details["generation"] else ILLEGAL_GENERATION
    return UNKNOWN_MEMBER_ID


def _member_epoch_error(members: Mapping[str, Any], committer: Committer, version: int) -> int:
    if committer.generation < 0 and not members:
        return NONE
    member = members.get(committer.member.decode(errors="replace"))
    if member is None:
        return UNKNOWN_MEMBER_ID
    if version < _FIRST_GROUP_ID_NOT_FOUND_VERSION:
        return UNSUPPORTED_VERSION
    return NONE if committer.generation == member["member_epoch"] else STALE_MEMBER_EPOCH


def fetch_error(group: Mapping[str, Any] | None, details: Mapping[str, Any], committer: Committer) -> int:
    """Return the error code of an OffsetFetch with the member id and the member epoch of a consumer group."""
    if group is None or group["group_type"] in {"classic", "share"}:
        return NONE
    members = {member["member_id"]: member for member in details.get("members", ())}
    member = members.get(committer.member.decode(errors="replace"))
    if member is None:
        return UNKNOWN_MEMBER_ID
    return NONE if committer.generation == member["member_epoch"] else STALE_MEMBER_EPOCH


def metadata_error(metadata: bytes) -> int:
    """Return OFFSET_METADATA_TOO_LARGE (12) if the metadata is too long, else NONE."""
    units = len(metadata) if len(metadata) <= MAX_METADATA_UNITS else len(metadata.decode().encode("utf-16-le")) // 2
    return OFFSET_METADATA_TOO_LARGE if units > MAX_METADATA_UNITS else NONE
