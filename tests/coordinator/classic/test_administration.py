"""Descriptions, and who can commit offsets."""

import pytest

from offsetlake.coordinator.classic.administration import commit_error, describe
from offsetlake.coordinator.classic.group import ClassicGroup, ClassicState
from offsetlake.kafka.error_codes import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from support.coordinator.classic_host import DELAY_MS, Host

SUBSCRIPTION = bytes.fromhex("0000 00000002 0001 61 0001 62 ffffffff")  # topics a and b
OTHER_SUBSCRIPTION = bytes.fromhex("0001 00000001 0001 63 ffffffff 00000000")  # topic c


def in_state(state: ClassicState, protocol_type: str = "consumer", metadata: bytes = b"m") -> Host:
    """Return a group in a state, with the static member i if it is not Empty."""
    host = Host()
    protocols = [("range", metadata)]
    token = host.join(instance_id="i", protocol_type=protocol_type, protocols=protocols)
    host.advance(DELAY_MS)
    if state in {ClassicState.STABLE, ClassicState.PREPARING_REBALANCE, ClassicState.EMPTY}:
        (member_id,) = host.assign([token])
        if state is ClassicState.PREPARING_REBALANCE:
            host.join(version=3, protocol_type=protocol_type, protocols=protocols)
        elif state is ClassicState.EMPTY:
            host.leave(member_id)
    assert host.group.state is state
    return host


def test_a_stable_group_is_described_with_metadata() -> None:
    host = in_state(ClassicState.STABLE)
    described = describe(host.group)
    (member,) = described.members
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
    assert (member.member_id, member.instance_id) == (host.group.static_ids["i"], "i")
    assert (member.client_id, member.client_host) == ("client", "/192.0.2.1")
    assert (member.metadata, member.assignment) == (b"m", member.member_id.encode())


def test_a_rebalancing_group_is_described_without_metadata() -> None:
    described = describe(in_state(ClassicState.PREPARING_REBALANCE).group)
    assert (described.state, described.protocol_type, described.protocol) == ("PreparingRebalance", "consumer", "")
    assert [member.metadata for member in described.members] == [b"", b""]
    assert [bool(member.assignment) for member in described.members] == [True, False], "as a broker describes it"
    assert describe(in_state(ClassicState.COMPLETING_REBALANCE).group).state == "CompletingRebalance"


def test_groups_without_members_are_described() -> None:
    empty = describe(in_state(ClassicState.EMPTY).group)
    assert (empty.state, empty.protocol_type, empty.protocol, empty.members) == ("Empty", "consumer", "", ())
    assert describe(ClassicGroup("simple", exists=True)).protocol_type == ""


MEMBER = "member"


@pytest.mark.parametrize(
    ("state", "member_id", "instance_id", "generation", "error", "transactional_error"),
    [
        (ClassicState.EMPTY, "", None, -1, NONE, NONE),
        (ClassicState.EMPTY, "unknown", None, -1, NONE, NONE),
        (ClassicState.EMPTY, "unknown", None, 0, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID),
        (ClassicState.STABLE, "", None, -1, UNKNOWN_MEMBER_ID, NONE),
        (ClassicState.STABLE, MEMBER, None, 1, NONE, NONE),
        (ClassicState.STABLE, MEMBER, "i", 1, NONE, NONE),
        (ClassicState.STABLE, MEMBER, None, 0, ILLEGAL_GENERATION, ILLEGAL_GENERATION),
        (ClassicState.STABLE, MEMBER, None, -1, ILLEGAL_GENERATION, ILLEGAL_GENERATION),
        (ClassicState.STABLE, "", None, 1, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID),
        (ClassicState.STABLE, "unknown", None, 1, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID),
        (ClassicState.STABLE, "unknown", "i", 1, FENCED_INSTANCE_ID, FENCED_INSTANCE_ID),
        (ClassicState.STABLE, "", "i", -1, FENCED_INSTANCE_ID, FENCED_INSTANCE_ID),
        (ClassicState.STABLE, MEMBER, "unknown", 1, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID),
        (ClassicState.PREPARING_REBALANCE, MEMBER, None, 1, NONE, NONE),
        (ClassicState.PREPARING_REBALANCE, "", None, -1, UNKNOWN_MEMBER_ID, NONE),
        (ClassicState.COMPLETING_REBALANCE, MEMBER, None, 1, REBALANCE_IN_PROGRESS, NONE),
        (ClassicState.COMPLETING_REBALANCE, MEMBER, None, 0, ILLEGAL_GENERATION, ILLEGAL_GENERATION),
        (ClassicState.COMPLETING_REBALANCE, "", None, -1, UNKNOWN_MEMBER_ID, NONE),
    ],
)
def test_who_can_commit_offsets(
    state: ClassicState, member_id: str, instance_id: str | None, generation: int, error: int, transactional_error: int
) -> None:
    group = in_state(state).group
    name = group.static_ids["i"] if member_id == MEMBER else member_id
    assert commit_error(group, name, instance_id, generation, transactional=False) == error
    assert commit_error(group, name, instance_id, generation, transactional=True) == transactional_error


def test_the_topics_of_the_members_are_subscribed_to() -> None:
    host = in_state(ClassicState.STABLE, metadata=SUBSCRIPTION)
    assert host.group.subscribed_topics == {"a", "b"}
    host.join(version=3, protocols=[("range", OTHER_SUBSCRIPTION)])
    assert host.group.subscribed_topics == {"a", "b"}, "until the next generation"
    host.join(host.group.static_ids["i"], "i", protocols=[("range", SUBSCRIPTION)])
    assert host.group.subscribed_topics == {"a", "b", "c"}
    assert host.group.is_subscribed_to("c")
    assert not host.group.is_subscribed_to("d")


@pytest.mark.parametrize(
    ("state", "protocol_type", "topics", "subscribed"),
    [
        (ClassicState.EMPTY, "consumer", frozenset(), False),
        (ClassicState.STABLE, "consumer", None, True),
        (ClassicState.STABLE, "connect", None, False),
    ],
)
def test_unknown_subscriptions(
    state: ClassicState, protocol_type: str, topics: frozenset[str] | None, subscribed: bool
) -> None:
    group = in_state(state, protocol_type, metadata=b"\0\0malformed").group
    assert group.subscribed_topics == topics
    assert group.is_subscribed_to("t") == subscribed
    assert not ClassicGroup("simple").is_subscribed_to("t")
