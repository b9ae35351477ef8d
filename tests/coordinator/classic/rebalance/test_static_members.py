"""Static members (KIP-345, KIP-814): restarts, fencing, and a group that waits for them."""

import pytest

from offsetlake.coordinator.classic.group import ClassicState
from offsetlake.coordinator.classic.requests import JoinedMember, JoinReply, SyncReply
from offsetlake.kafka.error_codes import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from offsetlake.kafka.uuid import uuid_bytes
from support.coordinator.classic_host import DELAY_MS, REBALANCE_MS, SESSION_MS, Host

RANGE = (("range", b"r"),)
STICKY = (("sticky", b"s"),)
BOTH = (*RANGE, *STICKY)


def stable(protocols: tuple[tuple[str, bytes], ...] = RANGE, **options: int) -> tuple[Host, str, str]:
    """Return a Stable group with the static members L, the leader, and F."""
    host = Host()
    tokens = [host.join(instance_id=name, protocols=protocols, **options) for name in "LF"]
    host.advance(DELAY_MS * 2)
    leader, follower = host.assign(tokens)
    return host, leader, follower


def test_a_static_member_needs_no_second_join() -> None:
    host = Host()
    token = host.join(instance_id="i")
    host.advance(DELAY_MS)
    reply = host.joined(token)
    assert reply.member_id == f"i-00000000-0000-0000-0000-{int.from_bytes(uuid_bytes('A' * 21 + 'Q')):012x}"
    assert reply.members == (JoinedMember(reply.member_id, "i", b"m"),)


@pytest.mark.parametrize(
    ("version", "skip_assignment"),
    [(8, False), (9, True)],
)
def test_a_restarted_leader_of_a_stable_group_keeps_its_assignment(version: int, skip_assignment: bool) -> None:
    host, leader, follower = stable()
    reply = host.joined(host.join(instance_id="L", protocols=RANGE, version=version))
    members = (JoinedMember(follower, "F", b"r"), JoinedMember(reply.member_id, "L", b"r"))
    assert reply.member_id not in {"", leader}
    assert reply == JoinReply(
        NONE,
        reply.member_id,
        1,
        "consumer",
        "range",
        reply.member_id if skip_assignment else leader,
        skip_assignment,
        members if skip_assignment else (),
    )
    assert host.group.state is ClassicState.STABLE
    assert host.group.leader_id == reply.member_id
    assert host.synced(host.sync(reply.member_id, 1, {}, "L")).assignment == leader.encode()
    value = host.records[-1].value
    assert value is not None
    assert value["leader"] == reply.member_id
    assert {member["memberId"]: member["assignment"] for member in value["members"]} == {
        follower: follower.encode(),
        reply.member_id: leader.encode(),
    }


@pytest.mark.parametrize("version", [8, 9])
def test_a_restarted_follower_of_a_stable_group_keeps_its_assignment(version: int) -> None:
    host, leader, follower = stable()
    reply = host.joined(host.join(instance_id="F", protocols=RANGE, version=version))
    assert reply == JoinReply(NONE, reply.member_id, 1, "consumer", "range", leader)
    assert host.synced(host.sync(reply.member_id, 1, None, "F")).assignment == follower.encode()
    assert host.heartbeat(leader, 1, "L") == NONE


def test_the_previous_id_of_a_restarted_member_is_fenced() -> None:
    host, _, follower = stable()
    new_id = host.joined(host.join(instance_id="F", protocols=RANGE)).member_id
    assert host.heartbeat(follower, 1, "F") == FENCED_INSTANCE_ID
    assert host.heartbeat(follower, 1) == UNKNOWN_MEMBER_ID
    assert host.synced(host.sync(follower, 1, instance_id="F")).error == FENCED_INSTANCE_ID
    assert host.joined(host.join(follower, "F", protocols=RANGE)) == JoinReply(
        FENCED_INSTANCE_ID, follower, protocol=None
    )
    host.advance(SESSION_MS - 1)
    assert host.heartbeat(new_id, 1, "F") == NONE


def test_each_restart_gives_another_id() -> None:
    host, _, _ = stable()
    ids = {host.joined(host.join(instance_id="L", protocols=RANGE)).member_id for _ in range(5)}
    assert len(ids) == 5
    assert len(host.group.members) == 2


def test_a_restart_with_other_metadata_but_the_same_protocol_starts_no_rebalance() -> None:
    host, _, _ = stable()
    token = host.join(instance_id="F", protocols=BOTH, session_ms=20_000, rebalance_ms=30_000)
    member = host.group.members[host.joined(token).member_id]
    assert host.group.state is ClassicState.STABLE
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (20_000, 30_000)
    assert list(member.protocols) == ["range", "sticky"]


def test_a_restart_that_changes_the_selected_protocol_starts_a_rebalance() -> None:
    host, leader, _ = stable(BOTH)
    token = host.join(instance_id="F", protocols=STICKY)
    assert host.is_waiting(token)
    assert host.heartbeat(leader, 1, "L") == REBALANCE_IN_PROGRESS
    host.join(leader, "L", protocols=BOTH)
    assert host.joined(token).protocol == "sticky"
    assert host.joined(token).generation == 2


def test_a_restart_without_a_common_protocol_is_refused() -> None:
    host, _, follower = stable()
    assert host.joined(host.join(instance_id="F", protocols=STICKY)).error == INCONSISTENT_GROUP_PROTOCOL
    assert host.heartbeat(follower, 1, "F") == NONE


@pytest.mark.parametrize("instance_id", ["L", "F"])
def test_a_restart_before_the_assignment_starts_a_rebalance(instance_id: str) -> None:
    host = Host()
    tokens = [host.join(instance_id=name) for name in "LF"]
    host.advance(DELAY_MS * 2)
    leader, follower = (host.joined(token).member_id for token in tokens)
    waiting = host.sync(follower, 1, instance_id="F")
    token = host.join(instance_id=instance_id)
    assert host.group.state is ClassicState.PREPARING_REBALANCE
    assert host.is_waiting(token)
    error = FENCED_INSTANCE_ID if instance_id == "F" else REBALANCE_IN_PROGRESS
    assert host.synced(waiting) == SyncReply(error)
    other = host.join(follower, "F") if instance_id == "L" else host.join(leader, "L")
    assert host.joined(token).generation == host.joined(other).generation == 2
    assert len(host.group.members) == 2


def test_a_restart_during_the_join_phase_fences_the_previous_join() -> None:
    host, leader, follower = stable()
    host.join(version=3, protocols=RANGE)
    first = host.join(follower, "F", protocols=RANGE)
    second = host.join(instance_id="F", protocols=RANGE)
    assert host.joined(first) == JoinReply(FENCED_INSTANCE_ID, follower, protocol=None)
    assert host.is_waiting(second)
    host.join(leader, "L", protocols=RANGE)
    assert host.joined(second).generation == 2


def test_a_restart_that_cannot_be_stored_is_undone() -> None:
    host, leader, follower = stable(session_ms=8_000, rebalance_ms=9_000)
    host.write_error = NOT_COORDINATOR
    reply = host.joined(host.join(instance_id="L", protocols=BOTH))
    assert reply == JoinReply(NOT_COORDINATOR, "")
    member = host.group.members[leader]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (8_000, 9_000)
    assert list(member.protocols) == ["range"]
    assert host.group.leader_id == leader
    assert set(host.group.members) == {leader, follower}
    assert host.heartbeat(leader, 1, "L") == NONE
    host.advance(8_000)
    assert not host.group.members.keys() & {follower}


@pytest.mark.parametrize("instance_id", ["L", "other"])
def test_a_known_id_with_another_instance_id_is_refused(instance_id: str) -> None:
    host, _, follower = stable()
    error = FENCED_INSTANCE_ID if instance_id == "L" else UNKNOWN_MEMBER_ID
    for member_id in (follower, "unknown"):
        assert host.joined(host.join(member_id, instance_id, protocols=RANGE)).error == error


def test_a_leader_with_its_id_starts_a_rebalance_and_a_follower_does_not() -> None:
    host, leader, follower = stable()
    reply = host.joined(host.join(follower, "F", protocols=RANGE))
    assert reply == JoinReply(NONE, follower, 1, "consumer", "range", leader)
    token = host.join(leader, "L", protocols=RANGE)
    assert host.is_waiting(token)
    host.join(follower, "F", protocols=RANGE)
    assert host.joined(token).generation == 2
    assert host.joined(token).leader_id == leader


def test_a_static_member_that_does_not_join_again_stays_until_its_session_expires() -> None:
    host, leader, follower = stable(rebalance_ms=15_000, session_ms=40_000)
    token = host.join(follower, "F", protocols=BOTH, rebalance_ms=15_000, session_ms=40_000)
    host.advance(15_000)
    reply = host.joined(token)
    assert reply.leader_id == follower
    assert {member.member_id for member in reply.members} == {leader, follower}
    assert host.heartbeat(leader, 1, "L") == ILLEGAL_GENERATION
    host.sync(follower, 2, {leader: b"l"})
    assert host.synced(host.sync(leader, 2)).assignment == b"l"
    host.advance(25_000 - 1)
    assert host.heartbeat(follower, 2, "F") == NONE
    host.advance(15_000 + 1)
    assert list(host.group.members) == [follower]
    assert host.heartbeat(follower, 2, "F") == REBALANCE_IN_PROGRESS


def test_the_join_phase_continues_while_only_absent_static_members_are_left() -> None:
    host, leader, follower = stable(rebalance_ms=10_000, session_ms=100_000)
    member_id, _ = host.join_dynamic(protocols=RANGE, session_ms=100_000)
    host.leave(member_id)
    assert host.group.state is ClassicState.PREPARING_REBALANCE
    host.advance(25_000)
    assert host.group.state is ClassicState.PREPARING_REBALANCE
    assert host.group.generation == 1
    tokens = [host.join(leader, "L", protocols=RANGE), host.join(follower, "F", protocols=RANGE)]
    assert [host.joined(token).generation for token in tokens] == [2, 2]


def test_absent_static_members_are_removed_with_their_sessions() -> None:
    host, _, _ = stable()
    host.join_dynamic(protocols=RANGE)
    host.advance(REBALANCE_MS * 10)
    assert host.group.is_empty()
    assert not host.timers


def test_a_static_member_of_an_empty_group_is_new() -> None:
    host = Host()
    token = host.join(instance_id="i")
    host.advance(DELAY_MS + SESSION_MS)
    assert host.joined(token).error == NONE
    assert host.group.is_empty()
    again = host.join(instance_id="i")
    host.advance(DELAY_MS)
    assert host.joined(again).generation == 3
