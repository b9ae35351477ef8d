"""JoinGroup of dynamic members: checks, member IDs, sizes, protocols and joins of present members."""

import tracemalloc

import pytest

from offsetlake.coordinator.classic.group import ClassicState
from offsetlake.coordinator.classic.rebalance.join import MAX_PENDING_JOINS, MAX_PROTOCOLS
from offsetlake.coordinator.classic.requests import JoinReply
from offsetlake.kafka.error_codes import (
    GROUP_MAX_SIZE_REACHED,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_SERVER_ERROR,
)
from offsetlake.kafka.records.coordinator_records import OffsetsRecordType
from support.coordinator.classic_host import DELAY_MS, REBALANCE_MS, SESSION_MS, START_MS, Host

RANGE = (("range", b"r"),)
ROUND_ROBIN = (("roundrobin", b"rr"),)
BOTH = (*RANGE, *ROUND_ROBIN)


def test_the_first_join_creates_the_group_and_requires_a_member_id() -> None:
    host = Host()
    reply = host.joined(host.join())
    assert reply == JoinReply(MEMBER_ID_REQUIRED, "client-00000000-0000-0000-0000-000000000001")
    (record,) = host.records
    assert record.type == OffsetsRecordType.GROUP_METADATA
    assert record.key == {"group": "g"}
    assert record.value == {
        "protocolType": "",
        "generation": 0,
        "protocol": None,
        "leader": None,
        "currentStateTimestamp": START_MS,
        "members": [],
    }
    assert host.group.state is ClassicState.EMPTY
    assert not host.group.is_simple()
    host.advance(SESSION_MS)
    assert host.group.is_simple()


def test_versions_before_4_join_without_a_member_id() -> None:
    host = Host()
    token = host.join(version=3)
    assert host.is_waiting(token)
    assert len(host.group.members) == 1
    assert len(host.records) == 1


def test_a_failed_write_of_a_new_group_forgets_it() -> None:
    host = Host()
    host.write_error = NOT_COORDINATOR
    for options in ({"version": 3}, {"version": 5}, {"instance_id": "i"}):
        assert host.joined(host.join(**options)).error == NOT_COORDINATOR
        assert not host.group.exists
        assert not host.timers


@pytest.mark.parametrize(
    ("group_id", "options", "error"),
    [
        ("", {}, INVALID_GROUP_ID),
        ("", {"session_ms": 5_999}, INVALID_GROUP_ID),
        ("g", {"session_ms": 5_999}, INVALID_SESSION_TIMEOUT),
        ("g", {"session_ms": 1_800_001}, INVALID_SESSION_TIMEOUT),
        ("g", {}, UNKNOWN_MEMBER_ID),
        ("g", {"protocols": [(str(number), b"") for number in range(MAX_PROTOCOLS + 1)]}, UNKNOWN_MEMBER_ID),
    ],
)
def test_errors_without_a_group(group_id: str, options: dict[str, object], error: int) -> None:
    host = Host(group_id)
    assert host.joined(host.join("m", **options)) == JoinReply(error, "m")
    assert not host.group.exists
    assert not host.records


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_the_bounds_of_session_timeouts_are_valid(session_ms: int) -> None:
    host = Host()
    assert host.joined(host.join(session_ms=session_ms)).error == MEMBER_ID_REQUIRED


@pytest.mark.parametrize("options", [{"protocol_type": ""}, {"protocols": ()}])
def test_a_first_member_without_protocols_is_refused(options: dict[str, object]) -> None:
    host = Host()
    assert host.joined(host.join(**options)) == JoinReply(INCONSISTENT_GROUP_PROTOCOL, "")
    assert len(host.records) == 1, "as in a broker, the group exists now"


@pytest.mark.parametrize("options", [{"protocol_type": "connect"}, {"protocols": ROUND_ROBIN}])
def test_a_member_that_shares_no_protocol_is_refused(options: dict[str, object]) -> None:
    host = Host()
    member_id, join = host.join_dynamic(protocols=RANGE)
    assert host.joined(host.join(**options)).error == INCONSISTENT_GROUP_PROTOCOL
    reply = host.joined(host.join(member_id, **options))
    assert reply == JoinReply(INCONSISTENT_GROUP_PROTOCOL, member_id)
    assert host.is_waiting(join)


def test_the_number_of_protocols_is_limited() -> None:
    host = Host()
    protocols = [(str(number), b"") for number in range(MAX_PROTOCOLS + 1)]
    assert host.joined(host.join(protocols=protocols)).error == INCONSISTENT_GROUP_PROTOCOL
    assert host.joined(host.join(protocols=protocols[:-1])).error == MEMBER_ID_REQUIRED


def test_the_number_of_pending_members_is_limited() -> None:
    host = Host()
    for _ in range(MAX_PENDING_JOINS):
        host.join()
    assert host.joined(host.join()) == JoinReply(GROUP_MAX_SIZE_REACHED, "")
    host.advance(SESSION_MS)
    assert host.group.size_bytes == 0
    assert host.joined(host.join()).error == MEMBER_ID_REQUIRED


def test_one_megabyte_of_metadata_is_accepted_and_counted() -> None:
    host = Host()
    before = host.group.size_bytes
    host.join(version=3, protocols=[("range", bytes(1_000_000))])
    assert 1_000_000 < host.group.size_bytes - before < 1_002_000
    host.advance(DELAY_MS)
    (member_id,) = host.group.members
    host.sync(member_id, 1, {member_id: bytes(500_000)})
    assert 1_500_000 < host.group.size_bytes < 1_502_000
    host.leave(member_id)
    assert host.group.size_bytes == 0


def test_the_size_is_close_to_the_memory_of_the_members() -> None:
    host = Host(initial_rebalance_delay_ms=0)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(60):
        protocols = [("p", str(number).encode()), *((f"{number}-{index}", b"") for index in range(number))]
        host.join(version=3, protocols=protocols)
    host.timers.clear()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.7 < host.group.size_bytes / (after - before) < 2


def test_a_pending_member_joins_with_its_id_but_not_as_a_static_member() -> None:
    host = Host()
    member_id = host.joined(host.join()).member_id
    assert host.joined(host.join(member_id, "instance")) == JoinReply(UNKNOWN_SERVER_ERROR, "")
    host.join(member_id)
    assert list(host.group.members) == [member_id]
    assert not host.group.pending_joins


def test_a_pending_member_expires_with_its_session() -> None:
    host = Host()
    member_id = host.joined(host.join()).member_id
    host.advance(SESSION_MS - 1)
    assert host.group.pending_joins == {member_id}
    host.advance(1)
    assert not host.group.pending_joins
    assert host.joined(host.join(member_id)) == JoinReply(UNKNOWN_MEMBER_ID, member_id, protocol=None)


def test_an_unknown_member_is_refused() -> None:
    host = Host()
    host.stable()
    assert host.joined(host.join("unknown")) == JoinReply(UNKNOWN_MEMBER_ID, "unknown", protocol=None)


def test_a_member_of_an_empty_group_is_unknown() -> None:
    host = Host()
    (member_id,) = host.stable()
    host.leave(member_id)
    assert host.group.is_empty()
    assert host.joined(host.join(member_id)) == JoinReply(UNKNOWN_MEMBER_ID, member_id, protocol=None)


def test_the_reply_has_the_generation_the_protocol_and_for_the_leader_the_members() -> None:
    host = Host()
    leader_id, leader = host.join_dynamic(protocols=BOTH)
    follower_id, follower = host.join_dynamic(protocols=ROUND_ROBIN)
    host.advance(2 * DELAY_MS)
    reply = host.joined(leader)
    assert reply == JoinReply(NONE, leader_id, 1, "consumer", "roundrobin", leader_id, members=reply.members)
    assert [(member.member_id, member.metadata) for member in reply.members] == [
        (leader_id, b"rr"),
        (follower_id, b"rr"),
    ]
    assert host.joined(follower) == JoinReply(NONE, follower_id, 1, "consumer", "roundrobin", leader_id)


class TestMaxSize:
    """The setting group.max.size."""

    def test_new_members_are_refused_while_the_group_is_full(self) -> None:
        host = Host(max_size=2)
        tokens = [host.join(version=3) for _ in range(2)]
        assert host.joined(host.join(version=3)) == JoinReply(GROUP_MAX_SIZE_REACHED, "")
        host.advance(2 * DELAY_MS)
        assert host.joined(host.join(version=3)).error == GROUP_MAX_SIZE_REACHED
        host.assign(tokens)
        assert host.joined(host.join(version=3)).error == GROUP_MAX_SIZE_REACHED
        assert host.joined(host.join(instance_id="i")).error == GROUP_MAX_SIZE_REACHED

    def test_all_can_receive_an_id_while_the_group_is_empty_but_not_all_can_join(self) -> None:
        host = Host(max_size=2)
        ids = [host.joined(host.join()).member_id for _ in range(4)]
        tokens = [host.join(member_id) for member_id in ids]
        host.advance(SESSION_MS)
        errors = [host.joined(token).error for token in tokens]
        assert errors == [NONE, NONE, GROUP_MAX_SIZE_REACHED, GROUP_MAX_SIZE_REACHED]
        assert list(host.group.members) == ids[:2]
        assert not host.group.pending_joins

    def test_static_members_count(self) -> None:
        host = Host(max_size=2)
        tokens = [host.join(instance_id=name) for name in "abc"]
        assert host.joined(tokens[2]).error == GROUP_MAX_SIZE_REACHED
        host.advance(2 * DELAY_MS)
        host.assign(tokens[:2])
        assert host.joined(host.join(instance_id="c")).error == GROUP_MAX_SIZE_REACHED
        for token in [host.join(host.group.static_ids[name], name) for name in "ab"]:
            assert host.joined(token).error == NONE

    def test_members_can_join_again(self) -> None:
        host = Host(max_size=3)
        ids = host.stable(3)
        tokens = [host.join(member_id) for member_id in ids]
        assert [host.joined(token).error for token in tokens] == [NONE] * 3
        assert host.group.generation == 2

    def test_the_last_members_of_a_group_above_the_limit_are_refused(self) -> None:
        host = Host()
        ids = host.stable(5)
        host.settings = Host(max_size=3).settings
        host.restart()
        assert host.group.state is ClassicState.PREPARING_REBALANCE
        tokens = [host.join(member_id) for member_id in ids]
        refused = [host.joined(token).error for token in tokens[3:]]
        assert refused == [GROUP_MAX_SIZE_REACHED] * 2
        assert list(host.group.members) == ids[:3]
        assert all(map(host.is_waiting, tokens[:3])), "as in a broker, a refused member does not end the join phase"
        host.advance(REBALANCE_MS)
        assert [host.joined(token).generation for token in tokens[:3]] == [2] * 3


class TestPresentMembers:
    """Members that join again, in each state."""

    def test_a_leader_of_a_stable_group_starts_a_rebalance(self) -> None:
        host = Host()
        (leader,) = host.stable()
        assert host.joined(host.join(leader)).generation == 2

    def test_an_unchanged_follower_of_a_stable_group_receives_the_generation(self) -> None:
        host = Host()
        leader, follower = host.stable(2)
        reply = host.joined(host.join(follower))
        assert reply == JoinReply(NONE, follower, 1, "consumer", "range", leader)
        assert host.group.state is ClassicState.STABLE

    @pytest.mark.parametrize("protocols", [(("range", b"new"),), (("range", b"m"), ("sticky", b"m"))])
    def test_a_changed_follower_of_a_stable_group_starts_a_rebalance(self, protocols: list[tuple[str, bytes]]) -> None:
        host = Host()
        leader, follower = host.stable(2)
        token = host.join(follower, protocols=protocols)
        assert host.is_waiting(token)
        assert host.group.state is ClassicState.PREPARING_REBALANCE
        assert host.heartbeat(leader, 1) == REBALANCE_IN_PROGRESS
        other = host.join(leader)
        assert host.joined(token).generation == host.joined(other).generation == 2
        assert host.joined(other).members[1].metadata == protocols[0][1]

    def test_an_unchanged_member_receives_the_generation_again_before_the_assignment(self) -> None:
        host = Host()
        leader, first = host.join_dynamic()
        follower, second = host.join_dynamic()
        host.advance(2 * DELAY_MS)
        assert host.joined(host.join(leader)) == host.joined(first)
        assert host.joined(host.join(follower)) == host.joined(second)
        assert host.group.state is ClassicState.COMPLETING_REBALANCE

    def test_a_changed_member_starts_a_rebalance_before_the_assignment(self) -> None:
        host = Host()
        leader, _ = host.join_dynamic()
        follower, _ = host.join_dynamic()
        host.advance(2 * DELAY_MS)
        waiting = host.sync(follower, 1)
        token = host.join(leader, protocols=[("range", b"new")])
        assert host.synced(waiting).error == REBALANCE_IN_PROGRESS
        assert host.is_waiting(token)
        host.join(follower)
        assert host.joined(token).generation == 2

    def test_a_second_join_replaces_the_first(self) -> None:
        host = Host()
        member_id, first = host.join_dynamic()
        second = host.join(member_id, protocols=[("range", b"new")])
        assert host.joined(first) == JoinReply(REBALANCE_IN_PROGRESS, member_id)
        host.advance(2 * DELAY_MS)
        assert host.joined(second).members[0].metadata == b"new"


def test_a_member_that_joins_and_leaves_often_leaves_nothing_behind() -> None:
    host = Host()
    for _ in range(1_000):
        member_id, join = host.join_dynamic(protocols=[(f"p{host.now_ms}", b"")])
        host.leave(member_id)
        assert host.joined(join).error == UNKNOWN_MEMBER_ID
        host.advance(1)
        if host.group.state is ClassicState.PREPARING_REBALANCE:
            host.advance(DELAY_MS)
    assert host.group.is_empty()
    assert host.group.size_bytes == 0
    assert not host.timers
    assert len(host.replies) == 3_000
