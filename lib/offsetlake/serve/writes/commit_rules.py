"""The checks of a commit against its group, in the order of a broker (`OffsetMetadataManager.validateOffsetCommit`)."""

from collections.abc import Iterable

from offsetlake.kafka.error_codes import (
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNSUPPORTED_VERSION,
)
from offsetlake.serve.storage.group_details import NO_MEMBER, CommitSender, StreamsMember
from offsetlake.serve.storage.store import Store

MAX_METADATA_UNITS = 4096
"""In UTF-16 code units, the default of a broker's offset.metadata.max.bytes."""

_FIRST_GROUP_ID_NOT_FOUND_VERSION = 9  # version of OffsetCommit; before, a missing group is ILLEGAL_GENERATION (22)


def commit_error(store: Store, group: bytes, committer: CommitSender, version: int) -> int:
    """Return the error code of a commit, NONE if it is accepted."""
    live = store.live.get(group)
    if live is not None:
        return live.commit_error(committer, version, transactional=False)
    kind = store.group(group)
    if kind is None:
        if committer.generation < 0:
            return NONE
        return GROUP_ID_NOT_FOUND if version >= _FIRST_GROUP_ID_NOT_FOUND_VERSION else ILLEGAL_GENERATION
    if kind["group_type"] == "share":
        return GROUP_ID_NOT_FOUND
    members = store.details(group).get("members", ())
    if committer.generation < 0 and not members:
        return NONE
    return _member_error(members, committer, version)


def transactional_commit_error(store: Store, group: bytes, committer: CommitSender) -> int:
    """Return the error code of a commit in a transaction, which is accepted without a member even beside members."""
    live = store.live.get(group)
    if live is not None:
        return live.commit_error(committer, _FIRST_GROUP_ID_NOT_FOUND_VERSION, transactional=True)
    kind = store.group(group)
    if kind is not None and kind["group_type"] != "share" and committer == NO_MEMBER:
        return NONE
    error = commit_error(store, group, committer, _FIRST_GROUP_ID_NOT_FOUND_VERSION)
    if kind is None and error:
        return ILLEGAL_GENERATION
    return ILLEGAL_GENERATION if error == STALE_MEMBER_EPOCH else error


def fetch_error(store: Store, group: bytes, committer: CommitSender) -> int:
    """Return the error code of an OffsetFetch with the member id and the member epoch of a consumer group."""
    live = store.live.get(group)
    if live is not None:
        return live.fetch_error(committer)
    kind = store.group(group)
    if kind is None or kind["group_type"] in {"classic", "share"}:
        return NONE
    return _member_error(store.details(group).get("members", ()), committer, _FIRST_GROUP_ID_NOT_FOUND_VERSION)


def _member_error(members: Iterable[StreamsMember], committer: CommitSender, version: int) -> int:
    """Return the error code of a member of a streams group; of any other group that is not live, nobody is a member."""
    member_id = committer.member.decode(errors="replace")
    member = next((member for member in members if member["member_id"] == member_id), None)
    if member is None:
        return UNKNOWN_MEMBER_ID
    if version < _FIRST_GROUP_ID_NOT_FOUND_VERSION:
        return UNSUPPORTED_VERSION
    return NONE if committer.generation == member["member_epoch"] else STALE_MEMBER_EPOCH


def metadata_error(metadata: bytes) -> int:
    """Return OFFSET_METADATA_TOO_LARGE (12) if the metadata is too long, else NONE."""
    units = len(metadata) if len(metadata) <= MAX_METADATA_UNITS else len(metadata.decode().encode("utf-16-le")) // 2
    return OFFSET_METADATA_TOO_LARGE if units > MAX_METADATA_UNITS else NONE
