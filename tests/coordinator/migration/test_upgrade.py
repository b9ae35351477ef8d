"""A member with the consumer protocol joins a classic group, which becomes a consumer group."""

from typing import Any

import pytest

from offsetlake.coordinator.classic.group import ClassicGroup, ClassicState
from offsetlake.coordinator.classic.requests import JoinReply, SyncReply
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.requests import ConsumerHeartbeatRequest
from offsetlake.coordinator.migration import requests
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.steps import TimerKind
from offsetlake.kafka import error_codes
from support.coordinator.consumer_groups import GROUP, types
from support.coordinator.mixed_groups import REBALANCE_MS, SESSION_MS, MixedHost, assignment, subscription

CONSUMER = {"subscribed_topics": ("t",), "owned": {}, "rebalance_timeout_ms": 5_000}


def new_host(partitions: int = 3, **settings: Any) -> MixedHost:
    host = MixedHost(settings=CoordinatorSettings(**settings))
    host.topics.create("t", partitions)
    return host


def test_members_continue_with_the_classic_protocol_and_their_assignments() -> None:
    host = new_host()
    old = host.classic_group(2)
    response, records = host.send("c", 0, **CONSUMER)
    assert (response.error_code, response.member_epoch, response.assignment) == (0, 2, {host.topics.ids["t"]: {2}})
    assert types(records) == [-2, 5, 5, 3, 7, 7, 6, 8, 8, 5, 3, 7, 6, 8]
    assert isinstance(host.group, ConsumerGroup)
    for number, member_id in enumerate(old):
        member = host.group.member(member_id)
        assert member is not None
        assert (member.epoch, member.previous_epoch, member.assigned) == (1, 1, {host.topics.ids["t"]: {number}})
        assert (member.topics, member.rebalance_timeout_ms) == (["t"], REBALANCE_MS)
        assert member.classic_protocols == {"range": subscription("t")}
        assert host.due_in(TimerKind.SESSION, member_id) == SESSION_MS
        assert host.beat(member_id, 1) == error_codes.REBALANCE_IN_PROGRESS
    assert host.group.classic_members == 2
    assert [record.value["epoch"] for record in records if record.type == 3 and record.value] == [1, 2]


def test_members_that_join_or_sync_are_told_to_join_again() -> None:
    host = new_host()
    first, token = host.enter()
    host.advance(3_000)
    assert host.replies[token].generation == 1
    second, waiting = host.enter()
    host.send("c", 0, **CONSUMER)
    assert host.replies[waiting] == JoinReply(error_codes.REBALANCE_IN_PROGRESS, second)
    assert host.beat(first, 1) == error_codes.REBALANCE_IN_PROGRESS
    assert host.join(second).generation == 2

    host = new_host()
    tokens = dict(host.enter() for _ in range(2))
    host.advance(6_000)
    follower = next(name for name in tokens if name != host.group.leader_id)
    host.sync(follower, 1)
    waiting = host.tokens
    host.send("c", 0, **CONSUMER)
    assert host.replies[waiting] == SyncReply(error_codes.REBALANCE_IN_PROGRESS)
    assert host.group.member(follower).assigned == {}


def test_a_group_before_its_first_generation_is_converted() -> None:
    host = new_host()
    member_id, waiting = host.enter()
    assert host.send("c", 0, **CONSUMER)[0].member_epoch == 1
    assert host.replies[waiting].error == error_codes.REBALANCE_IN_PROGRESS
    assert host.beat(member_id, 0) == error_codes.REBALANCE_IN_PROGRESS
    assert host.join(member_id).generation == 1
    host.advance(3_000)  # the initial delay has no meaning any more
    assert isinstance(host.group, ConsumerGroup)


def test_an_empty_group_is_replaced() -> None:
    host = new_host()
    (member_id,) = host.classic_group()
    host.leave(member_id)
    response, records = host.send("c", 0, **CONSUMER)
    assert (response.member_epoch, types(records)) == (1, [-2, 5, 3, 7, 6, 8])
    host.send("c", -1)
    assert types(host.log[-4:]) == [-8, -7, -5, 3]
    assert host.join().error == error_codes.MEMBER_ID_REQUIRED
    assert types(host.log[-4:]) == [-6, -4, -3, 2]
    assert isinstance(host.group, ClassicGroup)


@pytest.mark.parametrize(
    ("protocols", "assigned", "settings", "reason"),
    [
        ((("range", b"\0"),), b"", {}, "the embedded consumer protocol is malformed"),
        ((("range", subscription("t")),), b"\0\1\0", {}, "the embedded consumer protocol is malformed"),
        ((("range", subscription("t")),), assignment({"t": [0]}, b"\0\0\0\1x"), {}, "an unsupported custom assignor"),
        ((), assignment({"t": [0]}), {"consumer_max_size": 0}, "the group size exceeds the consumer group maximum"),
    ],
)
def test_groups_that_cannot_be_converted(
    protocols: tuple[tuple[str, bytes], ...], assigned: bytes, settings: dict[str, Any], reason: str
) -> None:
    host = new_host(**settings)
    member_id, _ = host.enter(protocols=protocols)
    host.advance(3_000)
    host.sync(member_id, 1, {member_id: assigned})
    response, records = host.send("c", 0, **CONSUMER)
    assert (response.error_code, records) == (error_codes.GROUP_ID_NOT_FOUND, [])
    assert response.error_message is not None
    assert response.error_message.startswith(f"Cannot upgrade classic group {GROUP} to consumer group because {reason}")
    assert host.group.state is ClassicState.STABLE
    assert host.beat(member_id, 1) == error_codes.NONE


def test_other_protocol_types_and_heartbeats_of_unknown_members_are_refused() -> None:
    host = new_host()
    member_id, _ = host.enter(protocol_type="connect", protocols=[("a", b"b")])
    host.advance(3_000)
    response, _ = host.send("c", 0, **CONSUMER)
    assert "does not use the consumer embedded protocol" in str(response.error_message)
    for epoch in (1, -1):
        response, records = host.send("c", epoch)
        assert (response.error_code, response.error_message) == (69, f"Group {GROUP} is not a consumer group.")
        assert records == []
    response, _ = host.send("c", 0, server_assignor="sticky")
    assert response.error_code == error_codes.UNSUPPORTED_ASSIGNOR
    assert host.beat(member_id, 1) == error_codes.NONE


def test_a_group_stays_a_classic_one_if_the_member_is_refused() -> None:
    host = new_host()
    (member_id,) = host.classic_group()
    response, records = host.send("c", 0, subscribed_topics=None, subscribed_regex="(")
    assert (response.error_code, records) == (error_codes.INVALID_REGULAR_EXPRESSION, [])
    assert host.beat(member_id, 1) == error_codes.NONE
    assert isinstance(host.group, ClassicGroup)


def test_a_static_member_changes_its_protocol() -> None:
    host = new_host()
    old, other = host.classic_group(instances=["i", None])
    response, records = host.send("c", 0, instance_id="i", **CONSUMER)
    assert (response.error_code, response.member_epoch) == (error_codes.NONE, 1)
    assert response.assignment == {host.topics.ids["t"]: {0}}
    assert types(records) == [-2, 5, 5, 3, 7, 7, 6, 8, 8, -8, -7, -5, 5, 7, 8, 5, 8]
    assert host.beat(old, 1, "i") == error_codes.FENCED_INSTANCE_ID
    assert host.beat(other, 1) == error_codes.NONE


def test_a_rebalance_in_progress_continues() -> None:
    host = new_host()
    _, other = host.classic_group(instances=["i", None])
    host.leave(other)
    response, _ = host.send("c", 0, instance_id="i", **CONSUMER)
    assert response.assignment == {host.topics.ids["t"]: {0}}
    response, _ = host.send("c", response.member_epoch)
    assert response.assignment == {host.topics.ids["t"]: {0, 1, 2}}


def test_the_record_of_a_group_that_nobody_joined_is_deleted() -> None:
    host = new_host()
    assert host.join().error == error_codes.MEMBER_ID_REQUIRED
    host.advance(SESSION_MS)
    assert types(host.log) == [2]
    assert types(host.send("c", 0, **CONSUMER)[1])[0] == -2


def test_partitions_of_topics_that_do_not_exist_are_dropped() -> None:
    host = new_host()
    member_id, _ = host.enter(topics=("t", "gone"))
    host.advance(3_000)
    host.sync(member_id, 1, {member_id: assignment({"gone": [0], "t": [1]})})
    host.send("c", 0, **CONSUMER)
    assert host.group.member(member_id).assigned == {host.topics.ids["t"]: {1}}


@pytest.mark.parametrize("phase", ["Stable", "PreparingRebalance", "CompletingRebalance"])
def test_a_failed_append_is_undone(phase: str) -> None:
    host = new_host()
    member_id = host.classic_group()[0]
    if phase != "Stable":
        host.join(member_id, topics=("t", "u"))
    if phase == "PreparingRebalance":
        other, waiting = host.enter()
    host.fail(requests.consumer_heartbeat, ConsumerHeartbeatRequest(GROUP, "c", 0, **CONSUMER))
    assert isinstance(host.group, ClassicGroup)
    assert host.group.state.value == phase
    if phase == "PreparingRebalance":  # the host answers the waiting requests with the error
        assert host.replies.get(waiting) is None
        host.join(other)
        host.advance(REBALANCE_MS)
        assert [*host.group.members] == [other]
        assert host.group.generation == 3
    else:
        assert host.beat(member_id, host.group.generation) == error_codes.NONE
        host.advance(SESSION_MS)
        assert host.group.is_empty()
