"""Offsets of a classic group that are set while its members run."""

from collections.abc import Iterable

import pytest

from offsetlake.coordinator import groups
from offsetlake.coordinator.classic.group import ClassicState
from offsetlake.coordinator.classic.rebalance.revocation import MAX_GENERATIONS, NOT_REVOKED
from offsetlake.coordinator.groups import Committer, commit_error
from offsetlake.coordinator.rewind import IN_PROGRESS, NOT_WRITTEN, RewindReply
from offsetlake.kafka.error_codes import (
    ILLEGAL_GENERATION,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from offsetlake.kafka.records.consumer_protocol import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from offsetlake.kafka.records.coordinator_records import OffsetsRecordType
from support.coordinator.classic_host import DELAY_MS, REBALANCE_MS, SESSION_MS, Host
from support.coordinator.rewinds import offset, offsets_in, rewind

NEW = {("t", 0): 7}
LONG_SESSION_MS = 2 * REBALANCE_MS


def protocols(owned: Iterable[int] | None = None, name: str = "range") -> list[tuple[str, bytes]]:
    """Return the protocol of a consumer; a cooperative one says which partitions it owns."""
    subscription: dict[str, object] = {"topics": ["t"], "userData": None}
    if owned is not None:
        subscription["ownedPartitions"] = [{"topic": "t", "partitions": [*owned]}]
    return [(name, encode_subscription(subscription))]


def assigned(*partitions: int) -> bytes:
    topics = [{"topic": "t", "partitions": [*partitions]}] if partitions else []
    return encode_assignment({"assignedPartitions": topics, "userData": None}, b"\0\1")


def partitions_of(blob: bytes) -> list[int]:
    value, is_complete = decode_assignment(blob)
    assert value is not None
    assert is_complete
    return [number for topic in value["assignedPartitions"] for number in topic["partitions"]]


def start(host: Host, committed: int = 7, partition: int = 0) -> int:
    """Set an offset, and return the token."""
    token = next(host.tokens)
    host.run(groups.start_rewind, host.group, rewind(token, offset("t", partition, committed)))
    return token


def commit(host: Host, member_id: str, generation: int) -> int:
    return commit_error(host.group, Committer(member_id, None, generation), 9, transactional=False)


def eager(members: int = 2, **options: object) -> tuple[Host, list[str]]:
    host = Host()
    ids = host.stable(members, protocols=protocols(), **options)
    return host, ids


def test_eager_members_join_one_generation_and_the_offsets_are_written_before_they_do() -> None:
    host, (leader, follower) = eager()
    generation = host.group.generation
    token = start(host)
    assert host.heartbeat(leader, generation) == REBALANCE_IN_PROGRESS
    assert commit(host, follower, generation) == NONE, "until all have given up their partitions"
    first = host.join(leader, protocols=protocols())
    assert host.is_waiting(token)
    host.writes_later = True
    second = host.join(follower, protocols=protocols())
    assert host.is_waiting(first)
    assert commit(host, leader, generation) == commit(host, follower, generation) == ILLEGAL_GENERATION
    before = len(host.records)
    host.write()
    host.writes_later = False
    types = [record.type for record in host.records[before:]]
    assert types == [OffsetsRecordType.OFFSET_COMMIT, OffsetsRecordType.GROUP_METADATA]
    assert offsets_in(host.records) == NEW
    assert host.replies[token] == RewindReply()
    host.assign([first, second])
    assert host.group.state is ClassicState.STABLE
    assert commit(host, follower, generation) == ILLEGAL_GENERATION
    assert commit(host, follower, host.group.generation) == NONE


def test_member_that_does_not_respond_is_removed_after_the_rebalance_timeout() -> None:
    host, (leader, silent) = eager(session_ms=LONG_SESSION_MS)
    generation, began_ms = host.group.generation, host.now_ms
    limit_ms = groups.rewind_limit_ms(host.group, host.settings)
    token = start(host)
    host.join(leader, protocols=protocols(), session_ms=LONG_SESSION_MS)
    host.advance(REBALANCE_MS - 1)
    assert host.is_waiting(token)
    host.advance(1)
    assert host.replies[token] == RewindReply()
    assert host.now_ms - began_ms <= limit_ms
    assert commit(host, silent, generation) == UNKNOWN_MEMBER_ID


def test_offsets_are_written_when_no_member_is_left() -> None:
    host, (leader, follower) = eager()
    token = start(host)
    host.leave(leader, follower)
    assert host.group.state is ClassicState.EMPTY
    assert host.replies[token] == RewindReply()
    assert offsets_in(host.records) == NEW
    assert host.replies[start(host, 8)] == RewindReply(), "at once, because the group is empty"
    assert offsets_in(host.records) == {("t", 0): 8}


def test_only_one_rewind_at_a_time() -> None:
    host, ids = eager()
    first = start(host)
    assert host.replies[start(host, 9)] == RewindReply(IN_PROGRESS)
    for name in ids:
        host.join(name, protocols=protocols())
    assert host.replies[first] == RewindReply()
    assert offsets_in(host.records) == NEW


def test_rewind_in_the_join_phase_and_before_the_assignment() -> None:
    host, (leader, follower) = eager()
    joins = [host.join(leader, protocols=protocols())]
    token = start(host)
    joins.append(host.join(follower, protocols=protocols()))
    assert host.replies[token] == RewindReply()
    assert host.group.state is ClassicState.COMPLETING_REBALANCE
    waiting = host.sync(follower, host.group.generation)
    token = start(host, 8)
    assert host.synced(waiting).error == REBALANCE_IN_PROGRESS
    joins = [host.join(name, protocols=protocols()) for name in (leader, follower)]
    assert host.replies[token] == RewindReply()
    host.assign(joins)
    assert offsets_in(host.records) == {("t", 0): 8}


def test_rewind_in_the_initial_delay() -> None:
    host = Host()
    _, join = host.join_dynamic(protocols=protocols())
    token = start(host)
    host.advance(DELAY_MS)
    assert host.replies[token] == RewindReply()
    host.assign([join])


def test_static_member_that_does_not_join_stays_without_the_right_to_commit() -> None:
    host = Host()
    joins = [host.join(instance_id=name, protocols=protocols(), session_ms=LONG_SESSION_MS) for name in "ab"]
    host.advance(2 * DELAY_MS)
    ids = host.assign(joins)
    leader, away = (ids[0], ids[1])
    instances = {member_id: name for name, member_id in host.group.static_ids.items()}
    generation, token = host.group.generation, start(host)
    host.join(leader, instances[leader], protocols=protocols(), session_ms=LONG_SESSION_MS)
    host.advance(REBALANCE_MS)
    assert host.replies[token] == RewindReply()
    assert away in host.group.members
    assert commit(host, away, generation) == ILLEGAL_GENERATION


def test_group_of_static_members_that_do_not_respond_ends_within_the_limit() -> None:
    host = Host()
    joins = [host.join(instance_id=name, protocols=protocols(), session_ms=LONG_SESSION_MS) for name in "ab"]
    host.advance(2 * DELAY_MS)
    host.assign(joins)
    limit_ms = groups.rewind_limit_ms(host.group, host.settings)
    token = start(host)
    host.advance(limit_ms)
    assert host.replies[token] == RewindReply()
    assert not host.group.members


def test_failed_write_leaves_the_offsets_and_starts_another_rebalance() -> None:
    host, ids = eager()
    token = start(host)
    generation = host.group.generation
    host.write_error = NOT_COORDINATOR
    joins = [host.join(name, protocols=protocols()) for name in ids]
    assert {host.joined(join).error for join in joins} == {NOT_COORDINATOR}
    assert not host.is_waiting(token)
    assert host.group.rewind is None
    host.write_error = None
    assert offsets_in(host.records) == {}
    assert {commit(host, name, generation) for name in ids} == {ILLEGAL_GENERATION}
    host.assign([host.join(name, protocols=protocols()) for name in ids])
    assert host.group.state is ClassicState.STABLE


def test_creation_that_cannot_be_written_ends_the_rewind() -> None:
    host = Host()
    host.writes_later = True
    host.join(instance_id="i", protocols=protocols())
    token = start(host)
    host.write_error = NOT_COORDINATOR
    host.write()
    assert host.replies[token] == RewindReply(NOT_WRITTEN)


def test_restart_after_the_offsets_keeps_previous_owners_from_committing_and_members_join_again() -> None:
    host, (leader, follower) = eager(session_ms=LONG_SESSION_MS)
    generation = host.group.generation
    start(host)
    host.join(leader, protocols=protocols(), session_ms=LONG_SESSION_MS)
    host.advance(REBALANCE_MS)
    joined = host.group.generation
    host.restart()
    assert offsets_in(host.records) == NEW
    assert commit(host, follower, generation) == UNKNOWN_MEMBER_ID, "it did not join in time"
    assert commit(host, leader, generation) == ILLEGAL_GENERATION
    assert host.synced(host.sync(leader, joined, {leader: assigned(0)})).error == ILLEGAL_GENERATION
    host.assign([host.join(leader, protocols=protocols(), session_ms=LONG_SESSION_MS)])
    assert host.group.state is ClassicState.STABLE


def test_restart_before_the_offsets_continues_with_the_old_ones() -> None:
    host, (leader, follower) = eager()
    generation = host.group.generation
    token = start(host)
    host.join(leader, protocols=protocols())
    host.restart()
    assert host.replies[token].error == NOT_WRITTEN
    assert host.group.state is ClassicState.STABLE
    assert commit(host, follower, generation) == NONE
    assert offsets_in(host.records) == {}


def cooperative() -> tuple[Host, str, str]:
    """Return a group in which the leader owns the partitions 0 and 1, and the follower 2."""
    host = Host()
    tokens = [host.join_dynamic(protocols=protocols((), "cooperative-sticky"))[1] for _ in range(2)]
    host.advance(2 * DELAY_MS)
    leader = host.joined(tokens[0]).leader_id
    (follower,) = (reply.member_id for reply in map(host.joined, tokens) if reply.member_id != leader)
    sync_both(host, leader, follower, (0, 1), (2,))
    return host, leader, follower


def join_both(host: Host, leader: str, follower: str, owned: dict[str, Iterable[int]]) -> None:
    joins = [host.join(name, protocols=protocols(owned[name], "cooperative-sticky")) for name in (leader, follower)]
    assert {host.joined(join).error for join in joins} == {NONE}


def sync_both(
    host: Host, leader: str, follower: str, of_leader: Iterable[int], of_follower: Iterable[int]
) -> tuple[list[int], list[int]]:
    """Send SyncGroup of both members, and return their assignments."""
    generation = host.group.generation
    waiting = host.sync(follower, generation)
    assignments = {leader: assigned(*of_leader), follower: assigned(*of_follower)}
    token = host.sync(leader, generation, assignments)
    return partitions_of(host.synced(token).assignment), partitions_of(host.synced(waiting).assignment)


def test_cooperative_members_have_a_generation_without_the_partitions() -> None:
    host, leader, follower = cooperative()
    first = host.group.generation
    token = start(host)
    join_both(host, leader, follower, {leader: (0, 1), follower: (2,)})
    second = host.group.generation
    assert sync_both(host, leader, follower, (0, 1), (2,)) == ([1], [2])
    assert host.is_waiting(token)
    assert commit(host, leader, first) == ILLEGAL_GENERATION
    assert commit(host, leader, second) == NONE, "it commits what it has processed while it revokes"
    assert host.heartbeat(follower, second) == REBALANCE_IN_PROGRESS
    join_both(host, leader, follower, {leader: (1,), follower: (2,)})
    assert host.replies[token] == RewindReply()
    assert offsets_in(host.records) == NEW
    assert commit(host, leader, second) == ILLEGAL_GENERATION
    assert sync_both(host, leader, follower, (1,), (2, 0)) == ([1], [2, 0])
    assert host.group.state is ClassicState.STABLE


def test_follower_that_syncs_late_learns_what_to_revoke() -> None:
    host, leader, follower = cooperative()
    token = start(host, partition=2)
    join_both(host, leader, follower, {leader: (0, 1), follower: (2,)})
    generation = host.group.generation
    host.sync(leader, generation, {leader: assigned(0, 1), follower: assigned(2)})
    assert host.group.state is ClassicState.STABLE
    assert partitions_of(host.synced(host.sync(follower, generation)).assignment) == []
    assert host.heartbeat(follower, generation) == REBALANCE_IN_PROGRESS
    join_both(host, leader, follower, {leader: (0, 1), follower: ()})
    assert host.replies[token] == RewindReply()


def test_cooperative_member_that_does_not_revoke_in_time_is_removed() -> None:
    host, leader, silent = cooperative()
    generation = host.group.generation
    limit_ms = groups.rewind_limit_ms(host.group, host.settings)
    began_ms, token = host.now_ms, start(host, partition=2)
    while host.is_waiting(token):
        assert host.now_ms - began_ms < limit_ms
        if host.group.state is ClassicState.PREPARING_REBALANCE:
            host.join(leader, protocols=protocols((0, 1), "cooperative-sticky"))
        host.advance(SESSION_MS // 2)
    assert offsets_in(host.records) == {("t", 2): 7}
    assert commit(host, silent, generation) == UNKNOWN_MEMBER_ID


def test_rewind_fails_if_a_member_keeps_the_partitions() -> None:
    host, leader, follower = cooperative()
    token = start(host)
    for _ in range(MAX_GENERATIONS):
        assert host.is_waiting(token)
        join_both(host, leader, follower, {leader: (0, 1), follower: (2,)})
        sync_both(host, leader, follower, (0, 1), (2,))
    join_both(host, leader, follower, {leader: (0, 1), follower: (2,)})
    assert host.replies[token] == RewindReply(NOT_REVOKED)
    assert sync_both(host, leader, follower, (0, 1), (2,)) == ([0, 1], [2])
    assert offsets_in(host.records) == {}


@pytest.mark.parametrize("synced", [False, True])
def test_cancelled_rewind_assigns_the_partitions_again(*, synced: bool) -> None:
    host, leader, follower = cooperative()
    token = start(host)
    join_both(host, leader, follower, {leader: (0, 1), follower: (2,)})
    if synced:
        host.sync(leader, host.group.generation, {leader: assigned(0, 1), follower: assigned(2)})
    host.run(groups.cancel_rewind, host.group, "reason")
    assert host.replies[token] == RewindReply("reason")
    if synced:
        assert host.group.state is ClassicState.PREPARING_REBALANCE
        join_both(host, leader, follower, {leader: (1,), follower: (2,)})
    assert sync_both(host, leader, follower, (0, 1), (2,)) == ([0, 1], [2])
    assert offsets_in(host.records) == {}


def test_assignment_that_cannot_be_decoded_is_not_changed() -> None:
    host, leader, follower = cooperative()
    start(host)
    join_both(host, leader, follower, {leader: (0, 1), follower: (2,)})
    blob = b"\0\1\xff"
    assert host.synced(host.sync(leader, host.group.generation, {leader: blob})).assignment == blob
