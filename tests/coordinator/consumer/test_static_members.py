"""Static members: members with an instance ID, which may leave for a while."""

from typing import Any

import pytest

from offsetlake.coordinator.epoch_groups.assignment import to_assignment
from offsetlake.coordinator.steps import TimerKind
from offsetlake.kafka import error_codes
from support.coordinator.consumer_groups import Host, topic_id, types

FOO, BAR = topic_id(1), topic_id(2)
SUBSCRIBED: dict[str, Any] = {"subscribed_topics": ("foo",), "instance_id": "i2"}


@pytest.fixture
def host() -> Host:
    """A dynamic member m1 and a static member m2 share the 6 partitions of foo."""
    host = Host()
    host.topics.create("foo", 6)
    host.topics.create("bar", 3)
    host.send("m1", 0, subscribed_topics=("foo",))
    response, records = host.send("m2", 0, **SUBSCRIBED)
    assert (response.member_epoch, types(records)) == (2, [5, 3, 7, 7, 6, 8])
    kept = host.send("m1", 1, owned={FOO: frozenset(range(6))})[0].assignment
    host.send("m1", 1, owned=kept)
    host.send("m2", 2, owned={}, instance_id="i2")
    assert host.group.state.state_name() == "Stable"
    return host


def test_a_static_member_gets_its_assignment_back(host: Host) -> None:
    before = host.group.targets["m2"]
    response, records = host.send("m2", -2, instance_id="i2")
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "m2", -2)
    assert types(records) == [8]
    assert records[0].value is not None
    assert (records[0].value["memberEpoch"], records[0].value["partitionsPendingRevocation"]) == (-2, [])
    assert host.send("m1", 2)[1] == []

    response, records = host.send("m3", 0, **SUBSCRIBED)
    assert (response.member_id, response.member_epoch, response.assignment) == ("m3", 2, to_assignment(before))
    assert types(records) == [-8, -7, -5, 5, 7, 8, 8]
    assert [record.key["memberId"] for record in records] == ["m2"] * 3 + ["m3"] * 4
    assert host.group.targets["m3"] == before
    assert (host.group.state.epoch, [*host.group.state.members]) == (2, ["m1", "m3"])


def test_the_timer_of_a_replaced_member_does_nothing(host: Host) -> None:
    host.send("m2", -2, instance_id="i2")
    host.advance(10_000)
    host.send("m3", 0, **SUBSCRIBED)
    host.advance(20_000)
    host.send("m1", 2)
    assert host.due_in(TimerKind.SESSION, "m2") == 15_000
    assert host.advance(15_000) == []


def test_a_static_member_that_stays_away_is_removed(host: Host) -> None:
    host.send("m2", -2, instance_id="i2")
    host.advance(20_000)
    host.send("m1", 2)
    assert types(host.advance(25_000)) == [-8, -7, -5, 3]
    assert host.send("m1", 2)[0].assignment == {FOO: frozenset(range(6))}


def test_a_static_member_that_returns_with_other_topics_starts_a_rebalance(host: Host) -> None:
    host.send("m2", -2, instance_id="i2")
    response, records = host.send("m3", 0, instance_id="i2", subscribed_topics=("foo", "bar"))
    assert types(records)[:7] == [-8, -7, -5, 5, 7, 8, 5]
    assert (response.member_epoch, host.group.state.epoch) == (3, 3)
    assert response.assignment is not None
    assert response.assignment[BAR] == frozenset(range(3))


def test_a_static_member_leaves_for_good(host: Host) -> None:
    response, records = host.send("m2", -1, instance_id="i2")
    assert (response.member_id, response.member_epoch, types(records)) == ("m2", -1, [-8, -7, -5, 3])
    assert "i2" not in host.group.static_members


def test_a_static_member_returns_to_a_group_that_has_no_other_members(host: Host) -> None:
    host.send("m2", -2, instance_id="i2")
    host.send("m1", -1)
    response, _ = host.send("m3", 0, **SUBSCRIBED)
    assert (response.member_epoch, response.assignment) == (3, {FOO: frozenset(range(6))})


@pytest.mark.parametrize(
    ("member_id", "epoch", "instance_id", "error_code", "message"),
    [
        (
            "m3", 0, "i2", error_codes.UNRELEASED_INSTANCE_ID,
            "Static member m3 with instance id i2 cannot join the group because the instance id is owned by m2 member.",
        ),
        ("m3", 2, "i3", error_codes.UNKNOWN_MEMBER_ID, "Instance id i3 is unknown."),
        (
            "m3", 2, "i2", error_codes.FENCED_INSTANCE_ID,
            "Static member m3 with instance id i2 was fenced by member m2.",
        ),
        ("m2", 3, "i2", error_codes.FENCED_MEMBER_EPOCH, None),
        ("m2", 1, "i2", error_codes.FENCED_MEMBER_EPOCH, None),
        ("m3", -2, "i3", error_codes.UNKNOWN_MEMBER_ID, "Instance id i3 is unknown."),
        ("m3", -1, "i3", error_codes.UNKNOWN_MEMBER_ID, "Instance id i3 is unknown."),
        ("m3", -2, "i2", error_codes.FENCED_INSTANCE_ID, None),
        ("m3", -1, "i2", error_codes.FENCED_INSTANCE_ID, None),
    ],
)  # fmt: skip
def test_errors(host: Host, member_id: str, epoch: int, instance_id: str, error_code: int, message: str | None) -> None:
    response, records = host.send(member_id, epoch, instance_id=instance_id)
    assert (response.error_code, records) == (error_code, [])
    assert message in (None, response.error_message)


def test_a_member_id_of_another_member_does_not_keep_that_members_target(host: Host) -> None:
    """A client that uses its ID for two members: one partition must not be in two target assignments."""
    host.send("m2", -2, instance_id="i2")
    host.send("m1", 0, instance_id="i2", subscribed_topics=())
    targets = [
        (topic, partition) for target in host.group.targets.values() for topic in target for partition in target[topic]
    ]
    assert len(targets) == len(set(targets))
