"""The last member with the consumer protocol leaves or is replaced, and the group becomes a classic group."""

from typing import Any

import pytest

from offsetlake.coordinator.classic.group import ClassicGroup, ClassicState
from offsetlake.coordinator.classic.requests import JoinRequest, LeaveRequest, LeavingMember
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.migration import requests
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.steps import Record, TimerKind
from offsetlake.kafka import error_codes
from support.coordinator.consumer_groups import types
from support.coordinator.mixed_groups import REBALANCE_MS, SESSION_MS, MixedHost, assignment, subscription

CONSUMER = {"subscribed_topics": ("t",), "owned": {}, "rebalance_timeout_ms": 25_000}


def mixed_group(instance_id: str | None = None) -> tuple[MixedHost, list[str]]:
    """Return a consumer group with two members with the classic protocol, and one with the consumer protocol."""
    host = MixedHost()
    host.topics.create("t", 3)
    old = host.classic_group(2)
    host.send("c", 0, instance_id=instance_id, **CONSUMER)
    for member_id in old:
        generation = host.join(member_id, owned={"t": [old.index(member_id)]}).generation
        assert host.sync(member_id, generation).error == error_codes.NONE
    return host, old


def leave(host: MixedHost) -> list[Record]:
    return host.send("c", -1)[1]


def expire(host: MixedHost) -> list[Record]:
    host.advance(20_000)
    for member_id in list(host.group.state.members):
        if member_id != "c":
            host.beat(member_id, host.group.state.epoch)
    return host.advance(25_000)


def removed_by_an_administrator(host: MixedHost) -> list[Record]:
    before = len(host.log)
    host.leave("c")
    return host.log[before:]


@pytest.mark.parametrize("end", [leave, expire, removed_by_an_administrator])
def test_the_last_member_with_the_consumer_protocol_is_gone(end: Any) -> None:
    host, old = mixed_group()
    epoch = host.group.state.epoch
    records = end(host)
    assert types(records) == [-8] * 3 + [-7] * 3 + [-6] + [-5] * 3 + [-4, -3, 2]
    group = host.group
    assert isinstance(group, ClassicGroup)
    assert (group.state, group.generation, group.protocol) == (ClassicState.PREPARING_REBALANCE, epoch, "range")
    assert {*group.members} == {*old}
    for number, member_id in enumerate(old):
        assert group.members[member_id].assignment == assignment({"t": [number]})
        assert group.members[member_id].session_timeout_ms == SESSION_MS
        assert host.due_in(TimerKind.SESSION, member_id) == SESSION_MS
        assert host.beat(member_id, epoch) == error_codes.REBALANCE_IN_PROGRESS
    assert host.due_in(TimerKind.JOIN) == REBALANCE_MS
    tokens = []
    for member_id in old:
        host.join(member_id)
        tokens.append(host.tokens)
    assert {host.replies[token].generation for token in tokens} == {epoch + 1}


def test_a_member_that_does_not_revoke_ends_the_consumer_protocol() -> None:
    host = MixedHost()
    host.topics.create("t", 4)
    host.send("c", 0, **CONSUMER)
    new = host.join(version=3)
    assert new.generation == 2
    host.sync(new.member_id, 2)
    host.send("c", 1)
    for _ in range(5):
        host.advance(5_000)
        assert isinstance(host.group, ConsumerGroup) or host.group.members.keys() == {new.member_id}
        if isinstance(host.group, ConsumerGroup):
            host.beat(new.member_id, 2)
            host.send("c", 1)
    assert isinstance(host.group, ClassicGroup)


def test_the_group_stays_a_consumer_group() -> None:
    host, old = mixed_group()
    host.settings = CoordinatorSettings(max_size=1)
    assert types(leave(host)) == [-8, -7, -5, 3]
    host, old = mixed_group()
    host.send("d", 0, **CONSUMER)
    assert types(leave(host)) == [-8, -7, -5, 3]
    for member_id in old:
        host.leave(member_id)
    assert types(host.send("d", -1)[1]) == [-8, -7, -5, 3]
    assert isinstance(host.group, ConsumerGroup)
    assert host.group.state.state_name() == "Empty"


@pytest.mark.parametrize("topics", [("t",), ("t", "u")])
def test_a_static_member_changes_to_the_classic_protocol(topics: tuple[str, ...]) -> None:
    host, old = mixed_group("i")
    epoch = host.group.state.epoch
    before = len(host.log)
    reply = host.join(instance_id="i", topics=topics)
    records = host.log[before:]
    same = topics == ("t",)
    replaced = [-8, -7, -5, 5, 7, 8, 5, *([8] if same else [3])]
    assert types(records) == replaced + [-8] * 3 + [-7] * 3 + [-6] + [-5] * 3 + [-4, -3, 2]
    assert (reply.error, reply.generation, reply.protocol) == (error_codes.NONE, epoch if same else 0, "range")
    group = host.group
    assert isinstance(group, ClassicGroup)
    assert group.state is (ClassicState.STABLE if same else ClassicState.PREPARING_REBALANCE)
    assert group.members.keys() == {*old, reply.member_id}
    assert group.members[reply.member_id].assignment == assignment({"t": [2]})
    assert host.due_in(TimerKind.JOIN) == (None if same else REBALANCE_MS)
    if same:
        assert host.sync(reply.member_id, epoch, instance_id="i").assignment == assignment({"t": [2]})
        assert [host.beat(member_id, epoch) for member_id in old] == [error_codes.NONE] * 2


def test_a_rebalance_in_progress_continues() -> None:
    host, old = mixed_group("i")
    host.leave(old[0])
    host.join(instance_id="i")
    assert host.group.state is ClassicState.PREPARING_REBALANCE


def test_nobody_leaves() -> None:
    host, _ = mixed_group("i")
    before = len(host.log)
    assert host.leave("nobody").members[0].error == error_codes.UNKNOWN_MEMBER_ID
    assert len(host.log) == before


def test_a_static_member_with_the_classic_protocol_is_replaced_without_a_downgrade() -> None:
    host = MixedHost()
    host.topics.create("t", 2)
    (old,) = host.classic_group(instances=["i"])
    host.send("c", 0, **CONSUMER)
    reply = host.join(instance_id="i")
    assert reply.member_id != old
    assert host.beat(old, 1, "i") == error_codes.FENCED_INSTANCE_ID
    assert isinstance(host.group, ConsumerGroup)


def test_the_regular_expression_of_a_replaced_member_is_deleted() -> None:
    host = MixedHost()
    host.topics.create("t", 3)
    host.classic_group()
    host.send("c", 0, instance_id="i", subscribed_regex="t.*")
    host.advance(1)
    assert host.group.state.regexes == {"t.*": ["t"]}
    before = len(host.log)
    host.join(instance_id="i")
    assert types(host.log[before:]).count(-16) == 2
    assert isinstance(host.group, ClassicGroup)


def test_a_member_without_a_common_protocol_stays_in_a_consumer_group() -> None:
    """A log of another coordinator may contain such members."""
    host = MixedHost()
    host.topics.create("t", 2)
    host.classic_group()
    host.send("c", 0, **CONSUMER)
    (member_id,) = host.group.state.members.keys() - {"c"}
    host.group.state.members[member_id].metadata["classicMemberMetadata"]["supportedProtocols"].clear()
    assert types(leave(host)) == [-8, -7, -5, 3]


@pytest.mark.parametrize("how", ["leave", "join"])
def test_a_failed_append_is_undone(how: str) -> None:
    host, old = mixed_group("i")
    before, timers = host.group.state.to_dict(), dict(host.timers)
    if how == "leave":
        host.fail(requests.leave, LeaveRequest((LeavingMember("", "i"),)))
    else:
        protocols = (("range", subscription("t", "u")),)
        host.fail(requests.join, JoinRequest(9, "c", "/h", "", "i", SESSION_MS, REBALANCE_MS, "consumer", protocols))
    assert isinstance(host.group, ConsumerGroup)
    assert host.group.state.to_dict() == before
    sessions = {timer: at for timer, at in timers.items() if timer.kind is TimerKind.SESSION}
    assert sessions.items() <= host.timers.items()
    assert [host.beat(member_id, host.group.state.epoch) for member_id in old] == [error_codes.NONE] * 2
    assert host.send("c", 2, instance_id="i", owned={host.topics.ids["t"]: {2}})[0].error_code == error_codes.NONE
    host.advance(REBALANCE_MS)
    assert isinstance(host.group, ConsumerGroup)
