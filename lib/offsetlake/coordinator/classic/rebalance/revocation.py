"""Revocation of the partitions whose offsets are set, in the generations of a classic group."""

from collections.abc import Mapping

from offsetlake.coordinator import rewind as rewinds
from offsetlake.coordinator.classic.group import ClassicGroup
from offsetlake.coordinator.classic.member import EMPTY_ASSIGNMENT
from offsetlake.coordinator.classic.records import group_record
from offsetlake.coordinator.rewind import RewindReply
from offsetlake.coordinator.steps import Step
from offsetlake.kafka.records.consumer_protocol import decode_assignment, encode_assignment

MAX_GENERATIONS = 10
"""The number of generations after which a rewind fails, because members do not revoke the partitions."""
NOT_REVOKED = f"in {MAX_GENERATIONS} generations, a member has not revoked the partitions"


def write_offsets(step: Step, group: ClassicGroup) -> bool:
    """Write the offsets of the rewind if there is one and no member that has joined owns the partitions.

    A generation of members without assignments is written with them: after a restart, the previous owners cannot
    commit. The members join the generation after that, so that the restart makes them join again. Until it has
    assignments, those that the members had remain known: if the group changes its protocol, they own them.

    Returns:
        Whether the offsets are written.
    """
    rewind = group.rewind
    if rewind is None:
        return False
    if _is_owned(group):
        rewind.generations += 1
        if rewind.generations > MAX_GENERATIONS:
            group.rewind = None
            step.reply(rewind.token, RewindReply(NOT_REVOKED))
        return False
    if group.members:
        group.next_generation(step.now_ms)
        step.records.append(group_record(group, assigned=False))
    rewinds.complete(step, rewind)
    group.rewind = None
    return True


def _is_owned(group: ClassicGroup) -> bool:
    """Return whether the subscription of a member that has joined lists one of the partitions."""
    if group.rewind is None or not group.members or not group.uses_consumer_protocol():
        return False
    protocol = group.selected_protocol()
    joined = {member.protocols[protocol] for member in group.members.values() if member.join_token is not None}
    return rewinds.list_as_owned(joined, group.rewind.partitions)


def without_partitions(group: ClassicGroup, assignments: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return assignments by member without the partitions whose owners have to revoke them.

    An assignment that cannot be decoded remains. Then the member lists the partitions again, and the rewind fails.
    """
    return {member_id: _without(group, blob) for member_id, blob in assignments.items()}


def _without(group: ClassicGroup, blob: bytes) -> bytes:
    if group.rewind is None or blob == EMPTY_ASSIGNMENT:
        return blob
    value, is_complete = decode_assignment(blob)
    if value is None or not is_complete:
        return blob
    topics = [
        {**topic, "partitions": [number for number in topic["partitions"] if number not in revoked]}
        for topic in value["assignedPartitions"]
        for revoked in [group.rewind.partitions.get(topic["topic"], frozenset())]
    ]
    kept = [topic for topic in topics if topic["partitions"]]
    return encode_assignment({**value, "assignedPartitions": kept}, blob)
