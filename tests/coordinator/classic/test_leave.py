"""LeaveGroup."""

import pytest

from offsetlake.coordinator.classic.group import ClassicState
from offsetlake.coordinator.classic.requests import LeaveReply, LeavingMember, LeftMember
from offsetlake.kafka.error_codes import (
    FENCED_INSTANCE_ID,
    INVALID_GROUP_ID,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from support.coordinator.classic_host import DELAY_MS, SESSION_MS, Host


def static_group() -> tuple[Host, str, str]:
    host = Host()
    tokens = [host.join(instance_id=name) for name in "LF"]
    host.advance(DELAY_MS * 2)
    leader, follower = host.assign(tokens)
    return host, leader, follower


def test_without_a_group() -> None:
    assert Host("").leave("m") == LeaveReply(INVALID_GROUP_ID)
    host = Host()
    members = (LeavingMember("m"), LeavingMember("", "i"))
    expected = (LeftMember("m", None, UNKNOWN_MEMBER_ID), LeftMember("", "i", UNKNOWN_MEMBER_ID))
    assert host.leave(*members) == LeaveReply(NONE, expected)
    assert not host.group.exists


def test_the_last_member_leaves_an_empty_group() -> None:
    host = Host()
    (member_id,) = host.stable()
    assert host.leave(member_id) == LeaveReply(NONE, (LeftMember(member_id, None),))
    assert host.group.is_empty()
    assert not host.timers
    value = host.records[-1].value
    assert value is not None
    assert (value["generation"], value["members"]) == (2, [])
    assert host.leave(member_id).members[0].error == UNKNOWN_MEMBER_ID


def test_an_unknown_member_changes_nothing() -> None:
    host = Host()
    host.stable()
    assert host.leave("unknown").members == (LeftMember("unknown", None, UNKNOWN_MEMBER_ID),)
    assert host.group.state is ClassicState.STABLE


def test_the_others_join_again() -> None:
    host = Host()
    leader, follower = host.stable(2)
    host.leave(leader)
    assert host.heartbeat(follower, 1) == REBALANCE_IN_PROGRESS
    assert host.joined(host.join(follower)).leader_id == follower


def test_a_member_that_leaves_ends_the_join_phase_of_the_others() -> None:
    host = Host()
    leader, follower = host.stable(2)
    token = host.join(leader)
    host.leave(follower)
    assert host.joined(token).generation == 2


def test_a_member_that_waits_in_a_join_is_answered() -> None:
    host = Host()
    (leader,) = host.stable()
    member_id, token = host.join_dynamic()
    host.leave(member_id)
    assert (host.joined(token).error, host.joined(token).member_id) == (UNKNOWN_MEMBER_ID, "")
    assert host.heartbeat(leader, 1) == REBALANCE_IN_PROGRESS


def test_a_pending_member_leaves() -> None:
    host = Host()
    member_id = host.joined(host.join()).member_id
    assert host.leave(member_id) == LeaveReply(NONE, (LeftMember(member_id, None),))
    assert not host.group.pending_joins
    assert not host.timers
    assert len(host.records) == 1


def test_a_pending_member_that_leaves_ends_the_join_phase_of_the_others() -> None:
    host = Host()
    (leader,) = host.stable()
    pending = host.joined(host.join()).member_id
    token = host.join(leader)
    host.leave(pending)
    assert host.joined(token).generation == 2


def test_joined_and_pending_members_leave_together() -> None:
    host = Host()
    leader, follower = host.stable(2)
    pending = host.joined(host.join()).member_id
    reply = host.leave(leader, pending, "unknown", follower)
    assert [member.error for member in reply.members] == [NONE, NONE, UNKNOWN_MEMBER_ID, NONE]
    assert host.group.is_empty()


@pytest.mark.parametrize(
    ("member", "error"),
    [
        (LeavingMember("", "F"), NONE),
        (LeavingMember("follower", "F"), NONE),
        (LeavingMember("follower"), NONE),
        (LeavingMember("leader", "F"), FENCED_INSTANCE_ID),
        (LeavingMember("unknown", "F"), FENCED_INSTANCE_ID),
        (LeavingMember("follower", "unknown"), UNKNOWN_MEMBER_ID),
        (LeavingMember("", "unknown"), UNKNOWN_MEMBER_ID),
        (LeavingMember(""), UNKNOWN_MEMBER_ID),
    ],
)
def test_a_static_member_leaves(member: LeavingMember, error: int) -> None:
    host, leader, follower = static_group()
    member_id = {"leader": leader, "follower": follower}.get(member.member_id, member.member_id)
    leaving = LeavingMember(member_id, member.instance_id)
    assert host.leave(leaving).members == (LeftMember(member_id, member.instance_id, error),)
    assert ("F" in host.group.static_ids) == (error != NONE)
    assert (host.group.state is ClassicState.STABLE) == (error != NONE)


def test_all_static_members_leave_by_their_instance_ids() -> None:
    host, _, _ = static_group()
    reply = host.leave(LeavingMember("", "L", "scaled down"), LeavingMember("", "F"))
    assert [member.error for member in reply.members] == [NONE, NONE]
    assert host.group.is_empty()
    assert "scaled down" in host.group.reason


def test_a_member_without_an_instance_id_is_not_the_one_with_an_empty_instance_id() -> None:
    host = Host()
    token = host.join(instance_id="")
    host.advance(DELAY_MS)
    host.assign([token])
    assert host.leave(LeavingMember("")).members[0].error == UNKNOWN_MEMBER_ID
    assert host.leave(LeavingMember("", "")).members[0].error == NONE


def test_the_reply_of_the_last_member_that_cannot_be_stored() -> None:
    host = Host()
    (member_id,) = host.stable()
    host.write_error = NOT_COORDINATOR
    assert host.leave(member_id) == LeaveReply(NOT_COORDINATOR)
    assert host.group.is_empty()
    host.write_error = None
    host.restart()
    assert host.heartbeat(member_id, 1) == NONE
    host.advance(SESSION_MS)
    assert host.group.is_empty()
