"""Heartbeat, and members whose session expires."""

import pytest

from offsetlake.coordinator.classic.group import ClassicState
from offsetlake.coordinator.groups import committed
from offsetlake.kafka.error_codes import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    INVALID_GROUP_ID,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from support.coordinator.classic_host import DELAY_MS, REBALANCE_MS, SESSION_MS, Host


def test_heartbeats_without_a_member() -> None:
    assert Host("").heartbeat("m", 0) == INVALID_GROUP_ID
    host = Host()
    assert host.heartbeat("m", 0) == UNKNOWN_MEMBER_ID
    assert not host.group.exists
    (member_id,) = host.stable()
    assert host.heartbeat("m", 0) == UNKNOWN_MEMBER_ID
    host.leave(member_id)
    assert host.heartbeat(member_id, 2) == UNKNOWN_MEMBER_ID


def test_a_pending_member_sends_no_heartbeats() -> None:
    host = Host()
    member_id = host.joined(host.join()).member_id
    assert host.heartbeat(member_id, 0) == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("generation", [-1, 0, 2])
def test_the_generation_must_be_the_present_one(generation: int) -> None:
    host = Host()
    (member_id,) = host.stable()
    assert host.heartbeat(member_id, generation) == ILLEGAL_GENERATION
    assert host.heartbeat(member_id, 1) == NONE


def test_heartbeats_in_each_state() -> None:
    host = Host()
    member_id, _ = host.join_dynamic()
    assert host.heartbeat(member_id, 0) == REBALANCE_IN_PROGRESS
    host.advance(DELAY_MS)
    assert host.group.state is ClassicState.COMPLETING_REBALANCE
    assert host.heartbeat(member_id, 1) == NONE
    host.sync(member_id, 1)
    assert host.heartbeat(member_id, 1) == NONE
    host.join_dynamic()
    assert host.heartbeat(member_id, 1) == REBALANCE_IN_PROGRESS


def test_a_static_member_is_fenced() -> None:
    host = Host()
    token = host.join(instance_id="i")
    host.advance(DELAY_MS)
    host.assign([token])
    assert host.heartbeat("other", 1, "i") == FENCED_INSTANCE_ID
    assert host.heartbeat("other", 1, "j") == UNKNOWN_MEMBER_ID
    assert host.heartbeat(host.group.static_ids["i"], 1) == NONE


def test_heartbeats_keep_a_session() -> None:
    host = Host()
    (member_id,) = host.stable()
    for _ in range(5):
        host.advance(SESSION_MS - 1)
        assert host.heartbeat(member_id, 1) == NONE
    host.advance(SESSION_MS)
    assert host.group.is_empty()


def test_heartbeats_with_errors_do_not_keep_a_session() -> None:
    host = Host()
    (member_id,) = host.stable()
    host.advance(SESSION_MS - 1)
    assert host.heartbeat(member_id, 0) == ILLEGAL_GENERATION
    host.advance(1)
    assert host.group.is_empty()


def test_an_expired_member_starts_a_rebalance() -> None:
    host = Host()
    leader, follower = host.stable(2)
    host.advance(SESSION_MS - 1)
    assert host.heartbeat(follower, 1) == NONE
    host.advance(1)
    assert host.heartbeat(leader, 1) == UNKNOWN_MEMBER_ID
    assert host.heartbeat(follower, 1) == REBALANCE_IN_PROGRESS
    assert host.joined(host.join(follower)).leader_id == follower


def test_the_last_expired_member_leaves_an_empty_group() -> None:
    host = Host()
    host.stable()
    host.advance(SESSION_MS)
    assert host.group.is_empty()
    value = host.records[-1].value
    assert value is not None
    assert value == {
        "protocolType": "consumer",
        "generation": 2,
        "protocol": None,
        "leader": None,
        "currentStateTimestamp": host.now_ms,
        "members": [],
    }


def test_an_expired_member_ends_the_join_phase_of_the_others() -> None:
    host = Host()
    leader, follower = host.stable(2)
    token = host.join(leader)
    host.advance(SESSION_MS - 1)
    assert host.is_waiting(token)
    host.advance(1)
    assert host.joined(token).generation == 2
    assert host.heartbeat(follower, 1) == UNKNOWN_MEMBER_ID


def test_the_session_of_a_waiting_member_does_not_expire() -> None:
    host = Host()
    leader, follower = host.stable(2)
    token = host.join(leader)
    for _ in range(5):
        host.advance(SESSION_MS - 1)
        host.heartbeat(follower, 1)
    assert host.is_waiting(token)
    host.join(follower)
    assert host.joined(token).error == NONE
    host.advance(SESSION_MS - 1)
    assert host.heartbeat(leader, 2) == NONE


def test_the_session_of_a_member_that_waits_for_its_assignment_does_not_expire() -> None:
    host = Host()
    leader, _ = host.join_dynamic()
    follower, _ = host.join_dynamic()
    host.advance(2 * DELAY_MS)
    waiting = host.sync(follower, 1)
    for _ in range(3):
        host.advance(SESSION_MS - 1)
        host.heartbeat(leader, 1)
    host.sync(leader, 1)
    assert host.synced(waiting).error == NONE
    host.advance(SESSION_MS - 1)
    assert host.heartbeat(follower, 1) == NONE


def test_a_new_member_that_waits_too_long_is_removed() -> None:
    host = Host(new_member_join_timeout_ms=20_000)
    (leader,) = host.stable()
    _, token = host.join_dynamic()
    for _ in range(4):
        host.advance(5_000)
        host.heartbeat(leader, 1)
    reply = host.joined(token)
    assert (reply.error, reply.member_id) == (UNKNOWN_MEMBER_ID, "")
    assert host.group.state is ClassicState.PREPARING_REBALANCE
    assert host.joined(host.join(leader)).generation == 2


def test_the_timeout_of_new_members_ends_with_their_first_join() -> None:
    host = Host(new_member_join_timeout_ms=DELAY_MS + 1)
    token = host.join(version=3, session_ms=SESSION_MS * 2)
    host.advance(DELAY_MS)
    host.assign([token])
    host.advance(SESSION_MS * 2 - 1)
    assert host.group.state is ClassicState.STABLE
    host.advance(1)
    assert host.group.is_empty()


def test_a_new_member_that_dies_while_it_waits_is_removed_in_the_next_generation() -> None:
    host = Host()
    (leader,) = host.stable()
    _, token = host.join_dynamic()
    host.join(leader)
    assert host.joined(token).generation == 2
    host.sync(leader, 2)
    host.advance(SESSION_MS - 1)
    host.heartbeat(leader, 2)
    host.advance(1)
    assert list(host.group.members) == [leader]
    assert host.heartbeat(leader, 2) == REBALANCE_IN_PROGRESS
    host.advance(REBALANCE_MS)
    assert host.group.is_empty()


def test_a_commit_restarts_the_session_unless_an_assignment_is_awaited() -> None:
    host = Host()
    (member_id,) = host.stable()
    for member in (member_id, "unknown"):
        host.advance(SESSION_MS - 1)
        host.run(committed, host.group, member)
    assert host.heartbeat(member_id, 1) == NONE
    host.join_dynamic()
    host.advance(SESSION_MS - 1)
    host.run(committed, host.group, member_id)
    host.advance(1)
    assert host.group.state is ClassicState.PREPARING_REBALANCE
    token = host.join(member_id)
    assert host.group.state is ClassicState.COMPLETING_REBALANCE
    assert host.joined(token).member_id == member_id
    host.advance(SESSION_MS - 1)
    host.run(committed, host.group, member_id)
    host.advance(1)
    assert host.heartbeat(member_id, 2) == UNKNOWN_MEMBER_ID
