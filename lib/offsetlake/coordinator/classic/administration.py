"""The description of a classic group, and who can commit its offsets."""

from dataclasses import dataclass

from offsetlake.coordinator.classic.group import ClassicGroup, ClassicState
from offsetlake.kafka.error_codes import ILLEGAL_GENERATION, NONE, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member in a description of its group; the metadata is empty unless the group is Stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Description:
    """A group in a DescribeGroups response; the protocol is empty unless the group is Stable."""

    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


def describe(group: ClassicGroup) -> Description:
    """Return what DescribeGroups returns about a group."""
    protocol = (group.protocol or "") if group.state is ClassicState.STABLE else ""
    members = tuple(
        DescribedMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.protocols.get(protocol, b"") if group.state is ClassicState.STABLE else b"",
            member.assignment,
        )
        for member in group.members.values()
    )
    return Description(group.state.value, group.protocol_type or "", protocol, members)


def commit_error(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
) -> int:
    """Return NONE if a member, or a client without membership, can commit offsets.

    Without membership (no generation, member ID and instance ID), that requires an Empty group, except in a
    transaction: the first versions of TxnOffsetCommit have no such fields.
    """
    if generation < 0 and group.is_empty():
        return NONE
    if generation >= 0 or member_id or instance_id is not None:
        error = group.member_error(member_id, instance_id)
        if error != NONE:
            return error
        if generation != group.generation:
            return ILLEGAL_GENERATION
    elif not transactional:
        return UNKNOWN_MEMBER_ID
    if not transactional and group.state is ClassicState.COMPLETING_REBALANCE:
        return REBALANCE_IN_PROGRESS
    return NONE
