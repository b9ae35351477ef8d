"""Members that use the classic protocol in a consumer group."""

from typing import Any

import pytest

from offsetlake.coordinator import groups
from offsetlake.coordinator.classic.rebalance.join import MAX_PROTOCOLS
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.member import MemberState
from offsetlake.coordinator.groups import Committer
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.steps import TimerKind
from offsetlake.kafka import error_codes
from offsetlake.rules.groups.records import GroupRecord, replay
from offsetlake.rules.groups.state import GroupState
from support.coordinator.consumer_groups import GROUP, types
from support.coordinator.mixed_groups import REBALANCE_MS, SESSION_MS, MixedHost, assignment, subscription

CONSUMER = {"subscribed_topics": ("t",), "owned": {}, "rebalance_timeout_ms": 25_000}
RANGE = (("range", subscription("t")),)


def new_host(partitions: int = 4, **settings: Any) -> MixedHost:
    """Return a host of a consumer group whose member has all partitions."""
    host = MixedHost(settings=CoordinatorSettings(**settings))
    host.topics.create("t", partitions)
    host.send("c", 0, **CONSUMER)
    return host


def revoke(host: MixedHost) -> None:
    """Send the heartbeats with which the member with the consumer protocol revokes its partitions."""
    first, _ = host.send("c", host.group.member("c").epoch)
    host.send("c", first.member_epoch, owned=dict(host.group.member("c").assigned))


def test_a_dynamic_member_joins_and_receives_its_partitions_when_they_are_free() -> None:
    host = new_host()
    required = host.join()
    assert required.error == error_codes.MEMBER_ID_REQUIRED
    assert host.group.state.members.keys() == {"c"}
    before = len(host.log)
    joined = host.join(required.member_id)
    assert types(host.log[before:]) == [5, 3, 7, 7, 6, 8]
    assert (joined.error, joined.generation, joined.protocol_type, joined.protocol) == (0, 2, "consumer", "range")
    assert (joined.leader_id, joined.members, joined.skip_assignment) == ("", (), False)
    member_id = joined.member_id
    assert host.sync(member_id, 2).assignment == assignment({})
    assert host.group.member(member_id).state is MemberState.UNRELEASED_PARTITIONS
    assert host.beat(member_id, 2) == error_codes.NONE
    revoke(host)
    assert host.beat(member_id, 2) == error_codes.REBALANCE_IN_PROGRESS
    assert host.join(member_id).generation == 2
    assert host.sync(member_id, 2).assignment == assignment({"t": [2, 3]})
    assert host.beat(member_id, 2) == error_codes.NONE


def test_a_member_revokes_when_it_joins_again() -> None:
    host = new_host()
    member_id = host.join(version=3).member_id
    revoke(host)
    host.join(member_id)
    host.send("d", 0, **CONSUMER)
    assert host.beat(member_id, 2) == error_codes.REBALANCE_IN_PROGRESS
    owned = {"t": [2, 3]}
    assert host.join(member_id, owned=owned).generation == 2
    member = host.group.member(member_id)
    assert member.state is MemberState.UNREVOKED_PARTITIONS
    kept = sorted(*member.assigned.values())
    assert host.sync(member_id, 2).assignment == assignment({"t": kept})
    assert host.beat(member_id, 2) == error_codes.REBALANCE_IN_PROGRESS
    assert host.join(member_id, owned={"t": kept}).generation == 3
    assert host.group.member(member_id).state is MemberState.STABLE
    assert host.sync(member_id, 2).error == error_codes.ILLEGAL_GENERATION
    assert host.due_in(TimerKind.REVOCATION, member_id) is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"protocol_type": "connect"}, error_codes.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [("roundrobin", subscription("t"))]}, error_codes.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [*RANGE, *((f"p{n}", b"") for n in range(MAX_PROTOCOLS))]}, 23),
        ({"protocols": [("range", b"\0")], "version": 3}, error_codes.UNKNOWN_SERVER_ERROR),
        ({"protocols": [("range", b"\0\1\0")], "version": 3}, error_codes.UNKNOWN_SERVER_ERROR),
        ({"protocols": [("range", b"\xff\xff\0\0\0\0")], "version": 3}, error_codes.UNKNOWN_SERVER_ERROR),
        ({"session_ms": 1}, error_codes.INVALID_SESSION_TIMEOUT),
        ({"member_id": "m", "instance_id": "i"}, error_codes.UNKNOWN_MEMBER_ID),
        ({"member_id": "m", "instance_id": "s"}, error_codes.FENCED_INSTANCE_ID),
    ],
)
def test_joins_that_are_refused(options: dict[str, Any], error: int) -> None:
    host = new_host()
    host.join(instance_id="s")
    before = host.group.state.to_dict()
    reply = host.join(**options)
    assert (reply.error, reply.generation) == (error, -1)
    assert host.group.state.to_dict() == before


def test_a_full_group_refuses_new_members() -> None:
    host = new_host(consumer_max_size=2)
    member_id = host.join(version=3).member_id
    assert host.join().error == error_codes.GROUP_MAX_SIZE_REACHED
    assert host.join(member_id).error == error_codes.NONE


def test_a_member_with_the_consumer_protocol_changes_to_the_classic_one() -> None:
    host = new_host()
    host.send("d", 0, **CONSUMER)
    reply = host.join("c", owned={"t": [0, 1]})
    assert reply.error == error_codes.NONE
    assert host.group.classic_members == 1
    host.join("d")
    assert isinstance(host.group, ConsumerGroup)  # as in a broker: nobody has left
    assert host.group.classic_members == 2
    assert host.send("c", 0, **CONSUMER)[0].error_code == error_codes.NONE
    assert host.group.classic_members == 1


@pytest.mark.parametrize(
    ("member", "generation", "instance", "error"),
    [
        ("nobody", 0, None, error_codes.UNKNOWN_MEMBER_ID),
        ("c", 0, None, error_codes.UNKNOWN_MEMBER_ID),
        ("", 1, None, error_codes.ILLEGAL_GENERATION),
        ("", 0, "i", error_codes.UNKNOWN_MEMBER_ID),
        ("", 0, "s", error_codes.FENCED_INSTANCE_ID),
        ("", 0, None, error_codes.NONE),
    ],
)
def test_errors_of_sync_and_heartbeat(member: str, generation: int, instance: str | None, error: int) -> None:
    host = new_host()
    host.join(instance_id="s")
    joined = host.join(version=3)
    request = member or joined.member_id, joined.generation + generation
    assert host.sync(*request, instance_id=instance).error == error
    assert host.beat(*request, instance) == error


@pytest.mark.parametrize(("name", "type_", "error"), [("x", "consumer", 23), ("range", "y", 23), (None, None, 0)])
def test_sync_with_another_protocol(name: str | None, type_: str | None, error: int) -> None:
    host = new_host()
    joined = host.join(version=3)
    reply = host.sync(joined.member_id, joined.generation, protocol=name, protocol_type=type_)
    assert (reply.error, reply.protocol, reply.protocol_type) == (error, None, None)


def test_members_that_do_not_join_again_or_sync_are_fenced() -> None:
    host = new_host()
    late, silent = (host.join(version=3) for _ in range(2))
    host.sync(late.member_id, late.generation)
    assert host.due_in(TimerKind.MEMBER_SYNC, late.member_id) == REBALANCE_MS  # a rebalance refused the sync
    assert host.due_in(TimerKind.MEMBER_JOIN, late.member_id) == REBALANCE_MS
    host.join(late.member_id)
    host.sync(late.member_id, 3)
    assert host.due_in(TimerKind.MEMBER_SYNC, late.member_id) is None
    host.send("d", 0, **CONSUMER)
    for seconds in range(10):
        assert host.beat(late.member_id, 3) == error_codes.REBALANCE_IN_PROGRESS
        assert host.due_in(TimerKind.MEMBER_JOIN, late.member_id) == REBALANCE_MS - 1_000 * seconds
        host.advance(1_000)
        host.beat(silent.member_id, silent.generation)
        host.send("c", host.group.member("c").epoch)
    host.advance(10_000)
    assert host.group.state.members.keys() == {"c", "d"}
    assert not host.group.awaited_joins


def test_sessions_end_with_the_timeout_of_the_member() -> None:
    host = new_host()
    joined = host.join(version=3, session_ms=12_000)
    host.sync(joined.member_id, joined.generation)
    host.advance(11_999)
    host.beat(joined.member_id, joined.generation)
    host.advance(11_999)
    assert host.group.member(joined.member_id) is not None
    assert types(host.advance(1)) == [-8, -7, -5, 3]
    assert host.beat(joined.member_id, joined.generation) == error_codes.UNKNOWN_MEMBER_ID


def test_a_static_member_returns() -> None:
    host = new_host()
    first = host.join(instance_id="i")
    revoke(host)
    host.join(first.member_id, instance_id="i")
    again = host.join(instance_id="i")
    assert again.member_id != first.member_id
    assert again.generation == 2
    assert host.sync(again.member_id, 2, instance_id="i").assignment == assignment({"t": [2, 3]})
    assert host.sync(first.member_id, 2, instance_id="i").error == error_codes.FENCED_INSTANCE_ID
    left = host.leave("", "i")
    assert left.members[0].error == error_codes.NONE
    assert host.group.state.members.keys() == {"c"}


def test_commits_of_members() -> None:
    host = new_host()
    joined = host.join(version=3)

    def error(member_id: str, epoch: int, version: int) -> int:
        return groups.commit_error(host.group, Committer(member_id, None, epoch), version, transactional=False)

    assert error(joined.member_id, 2, 2) == error_codes.NONE
    assert error(joined.member_id, 1, 9) == error_codes.ILLEGAL_GENERATION
    assert error("c", 1, 8) == error_codes.UNSUPPORTED_VERSION
    assert error("c", 7, 9) == error_codes.STALE_MEMBER_EPOCH
    assert groups.fetch_error(host.group, joined.member_id, 1) == error_codes.ILLEGAL_GENERATION


def test_a_restart_continues_with_the_members() -> None:
    host = new_host()
    joined = host.join(version=3)
    state = None
    for record in host.log:
        state = replay(state, GroupRecord(-1, -1, None, record.type, record.key, record.value))
    assert state is not None
    assert state.to_dict() == host.group.state.to_dict()
    host.timers.clear()
    step = host.step()
    host.group = groups.loaded(step, GROUP, GroupState.from_dict(state.to_dict()).to_dict())
    host.run(step)
    assert (host.group.classic_members, host.group.classic_protocols) == (1, {"range": 1})
    assert host.due_in(TimerKind.SESSION, joined.member_id) == 45_000  # as in a broker, that of the consumer protocol
    assert host.beat(joined.member_id, 2) == error_codes.NONE
    assert host.due_in(TimerKind.SESSION, joined.member_id) == SESSION_MS
    revoke(host)
    assert host.beat(joined.member_id, 2) == error_codes.REBALANCE_IN_PROGRESS
    host.join(joined.member_id)
    assert host.sync(joined.member_id, 2).assignment == assignment({"t": [2, 3]})
