"""SyncGroup."""

import pytest

from offsetlake.coordinator.classic.group import ClassicState
from offsetlake.coordinator.classic.requests import SyncReply
from offsetlake.coordinator.steps import Timer, TimerKind
from offsetlake.kafka.error_codes import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from support.coordinator.classic_host import DELAY_MS, REBALANCE_MS, SESSION_MS, Host

SYNC_TIMER = Timer(TimerKind.SYNC, "g")


def completing(members: int = 2) -> tuple[Host, list[str]]:
    """Return a group in CompletingRebalance, and its members, the leader first."""
    host = Host()
    ids = [host.join_dynamic(session_ms=REBALANCE_MS * 2)[0] for _ in range(members)]
    host.advance(DELAY_MS * 2)
    assert host.group.state is ClassicState.COMPLETING_REBALANCE
    return host, ids


def test_followers_wait_for_the_leader() -> None:
    host, (leader, follower) = completing()
    waiting = host.sync(follower, 1)
    assert host.is_waiting(waiting)
    token = host.sync(leader, 1, {leader: b"a", follower: b"b", "unknown": b"c"})
    assert host.synced(token) == SyncReply(NONE, "consumer", "range", b"a")
    assert host.synced(waiting) == SyncReply(NONE, "consumer", "range", b"b")
    assert host.group.state is ClassicState.STABLE
    value = host.records[-1].value
    assert value is not None
    assert {member["memberId"]: member["assignment"] for member in value["members"]} == {leader: b"a", follower: b"b"}
    assert SYNC_TIMER not in host.timers


def test_a_follower_that_syncs_later_receives_its_assignment() -> None:
    host, (leader, follower) = completing()
    host.sync(leader, 1, {leader: b"a", follower: b"b"})
    assert SYNC_TIMER in host.timers
    assert host.synced(host.sync(follower, 1)).assignment == b"b"
    assert SYNC_TIMER not in host.timers
    assert host.synced(host.sync(follower, 1)).assignment == b"b"


def test_a_member_without_an_assignment_receives_an_empty_one() -> None:
    host, (leader, follower) = completing()
    token = host.sync(leader, 1)
    assert host.synced(token) == SyncReply(NONE, "consumer", "range", b"")
    assert host.synced(host.sync(follower, 1)).assignment == b""


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"protocol_type": "connect"}, INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": "sticky"}, INCONSISTENT_GROUP_PROTOCOL),
        ({"version": 5}, INCONSISTENT_GROUP_PROTOCOL),
        ({"version": 5, "protocol": "range"}, INCONSISTENT_GROUP_PROTOCOL),
        ({"generation": 0}, ILLEGAL_GENERATION),
        ({"generation": 2, "protocol": "sticky"}, ILLEGAL_GENERATION),
        ({"member_id": "unknown", "generation": 2}, UNKNOWN_MEMBER_ID),
        ({"instance_id": "unknown"}, UNKNOWN_MEMBER_ID),
    ],
)
def test_errors_of_members(request_: dict[str, object], error: int) -> None:
    host, (leader, _) = completing()
    assert host.synced(host.sync(**{"member_id": leader, "generation": 1, **request_})) == SyncReply(error)
    assert host.synced(host.sync(leader, 1, protocol_type="consumer", protocol="range", version=5)).error == NONE


def test_errors_without_members() -> None:
    for host, error in ((Host(""), INVALID_GROUP_ID), (Host(), UNKNOWN_MEMBER_ID)):
        assert host.synced(host.sync("m", 1)) == SyncReply(error)
        assert not host.group.exists


def test_a_static_member_is_fenced() -> None:
    host = Host()
    token = host.join(instance_id="i")
    host.advance(DELAY_MS)
    member_id = host.joined(token).member_id
    assert host.synced(host.sync("other", 1, instance_id="i")).error == FENCED_INSTANCE_ID
    assert host.synced(host.sync(member_id, 1, instance_id="j")).error == UNKNOWN_MEMBER_ID
    assert host.synced(host.sync(member_id, 1, instance_id="i")).error == NONE


def test_a_sync_during_the_join_phase_is_refused() -> None:
    host = Host()
    leader, follower = host.stable(2)
    host.join(leader)
    assert host.synced(host.sync(follower, 1)) == SyncReply(REBALANCE_IN_PROGRESS)


def test_a_second_sync_replaces_the_first() -> None:
    host, (leader, follower) = completing()
    first = host.sync(follower, 1)
    second = host.sync(follower, 1)
    assert host.synced(first) == SyncReply(REBALANCE_IN_PROGRESS)
    host.sync(leader, 1, {follower: b"b"})
    assert host.synced(second).assignment == b"b"


def test_a_waiting_follower_that_leaves_is_answered() -> None:
    host, (_, follower) = completing()
    waiting = host.sync(follower, 1)
    host.leave(follower)
    assert host.synced(waiting) == SyncReply(UNKNOWN_MEMBER_ID)


def test_waiting_followers_join_again_if_the_leader_dies() -> None:
    host = Host()
    leader, _ = host.join_dynamic()
    follower, _ = host.join_dynamic()
    host.advance(2 * DELAY_MS)
    waiting = host.sync(follower, 1)
    host.advance(SESSION_MS)
    assert host.synced(waiting) == SyncReply(REBALANCE_IN_PROGRESS)
    assert list(host.group.members) == [follower]
    assert host.joined(host.join(follower)).leader_id == follower
    assert host.heartbeat(leader, 1) == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("synced", [(), (0,), (1,)])
def test_members_that_do_not_sync_are_removed_at_the_rebalance_timeout(synced: tuple[int, ...]) -> None:
    host, ids = completing()
    tokens = [host.sync(ids[index], 1) for index in synced]
    host.advance(REBALANCE_MS - 1)
    assert list(host.group.members) == ids
    host.advance(1)
    assert list(host.group.members) == [ids[index] for index in synced]
    assert host.group.state is (ClassicState.PREPARING_REBALANCE if synced else ClassicState.EMPTY)
    for index, token in zip(synced, tokens, strict=True):
        assert host.synced(token).error == (NONE if index == 0 else REBALANCE_IN_PROGRESS)
        assert host.heartbeat(ids[index], 1) == REBALANCE_IN_PROGRESS


def test_there_is_no_timeout_if_all_members_sync() -> None:
    host, ids = completing(3)
    for member_id in reversed(ids):
        host.sync(member_id, 1)
    host.advance(REBALANCE_MS)
    assert list(host.group.members) == ids
    assert host.group.state is ClassicState.STABLE


def test_an_assignment_that_cannot_be_stored_starts_a_rebalance() -> None:
    host, (leader, follower) = completing()
    waiting = host.sync(follower, 1)
    host.write_error = NOT_COORDINATOR
    token = host.sync(leader, 1, {leader: b"a", follower: b"b"})
    assert host.synced(token) == host.synced(waiting) == SyncReply(NOT_COORDINATOR)
    assert host.group.state is ClassicState.PREPARING_REBALANCE
    assert all(member.assignment == b"" for member in host.group.members.values())
    assert "16" in host.group.reason
    host.write_error = None
    tokens = [host.join(member_id) for member_id in (leader, follower)]
    assert [host.joined(token).generation for token in tokens] == [2, 2]
