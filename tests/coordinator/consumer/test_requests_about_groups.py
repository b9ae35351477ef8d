"""Commits, fetches, descriptions and the deletion of consumer groups."""

import uuid
from collections.abc import Callable

import pytest

from offsetlake.coordinator.consumer import validation
from offsetlake.coordinator.consumer.describe import describe
from offsetlake.coordinator.epoch_groups.requests import RequestError
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.kafka import error_codes
from offsetlake.kafka.uuid import uuid_bytes
from support.coordinator.consumer_groups import Host, topic_id


@pytest.fixture
def host() -> Host:
    """A stable member m1 at epoch 1, and m2, which waits, at epoch 2."""
    host = Host()
    host.topics.create("foo", 2)
    host.send("m1", 0, subscribed_topics=("foo",), server_assignor="range", client_id="app", client_host="/10.0.0.1")
    host.send("m2", 0, subscribed_topics=("foo",), instance_id="i2", rack_id="r1")
    return host


def _error(check: Callable[[], None]) -> int:
    try:
        check()
    except RequestError as error:
        return error.error_code
    return error_codes.NONE


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "error_code"),
    [
        ("m1", 1, 9, error_codes.NONE),
        ("m1", 1, 8, error_codes.UNSUPPORTED_VERSION),
        ("m1", 0, 9, error_codes.STALE_MEMBER_EPOCH),
        ("m1", 2, 9, error_codes.STALE_MEMBER_EPOCH),
        ("m3", 1, 9, error_codes.UNKNOWN_MEMBER_ID),
        ("", -1, 9, error_codes.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits(host: Host, member_id: str, epoch: int, version: int, error_code: int) -> None:
    assert _error(lambda: validation.check_commit(host.group, member_id, epoch, version)) == error_code


def test_commits_without_a_member_are_accepted_while_there_are_no_members() -> None:
    group = Host().group
    assert _error(lambda: validation.check_commit(group, "", -1, 1)) == error_codes.NONE
    assert _error(lambda: validation.check_commit(group, "m1", 0, 9)) == error_codes.UNKNOWN_MEMBER_ID
    assert _error(lambda: validation.check_transactional_commit(group, "", None, -1)) == error_codes.NONE


@pytest.mark.parametrize(
    ("member_id", "instance_id", "epoch", "error_code"),
    [
        ("m1", None, 1, error_codes.NONE),
        ("", None, -1, error_codes.NONE),
        ("", "i2", -1, error_codes.UNKNOWN_MEMBER_ID),
        ("m1", None, -1, error_codes.ILLEGAL_GENERATION),
        ("m1", None, 2, error_codes.ILLEGAL_GENERATION),
        ("m3", None, 2, error_codes.UNKNOWN_MEMBER_ID),
    ],
)
def test_transactional_commits(
    host: Host, member_id: str, instance_id: str | None, epoch: int, error_code: int
) -> None:
    check = validation.check_transactional_commit
    assert _error(lambda: check(host.group, member_id, instance_id, epoch)) == error_code


@pytest.mark.parametrize(
    ("member_id", "epoch", "error_code"),
    [
        (None, -1, error_codes.NONE),
        ("m1", 1, error_codes.NONE),
        ("m1", 2, error_codes.STALE_MEMBER_EPOCH),
        ("m3", 1, error_codes.UNKNOWN_MEMBER_ID),
        ("", -1, error_codes.UNKNOWN_MEMBER_ID),
        (None, 1, error_codes.UNKNOWN_MEMBER_ID),
    ],
)
def test_fetches(host: Host, member_id: str | None, epoch: int, error_code: int) -> None:
    assert _error(lambda: validation.check_fetch(host.group, member_id, epoch)) == error_code


def test_the_generation_of_a_member_of_the_classic_protocol(host: Host) -> None:
    member = host.group.state.members["m1"]
    member.metadata = {
        **(member.metadata or {}),
        "classicMemberMetadata": {"sessionTimeoutMs": 1, "supportedProtocols": []},
    }
    assert _error(lambda: validation.check_commit(host.group, "m1", 1, 1)) == error_codes.NONE
    assert _error(lambda: validation.check_commit(host.group, "m1", 2, 1)) == error_codes.ILLEGAL_GENERATION


TOPIC_ID = uuid.UUID(bytes=uuid_bytes(topic_id(1)))


def test_description(host: Host) -> None:
    described = describe(host.group, host.topics.name_of, CoordinatorSettings())
    members = {member.pop("member_id"): member for member in described.pop("members")}
    assert described == {
        "group_id": "orders", "group_state": "Reconciling", "group_epoch": 2, "assignment_epoch": 2,
        "assignor_name": "range",
    }  # fmt: skip
    both = {"topic_partitions": [{"topic_id": TOPIC_ID, "topic_name": "foo", "partitions": [0, 1]}]}
    second = {"topic_partitions": [{"topic_id": TOPIC_ID, "topic_name": "foo", "partitions": [0]}]}
    assert members["m1"] == {
        "instance_id": None, "rack_id": None, "member_epoch": 1, "client_id": "app", "client_host": "/10.0.0.1",
        "subscribed_topic_names": ["foo"], "subscribed_topic_regex": "", "assignment": both,
        "target_assignment": {"topic_partitions": [{**both["topic_partitions"][0], "partitions": [1]}]},
        "member_type": 1,
    }  # fmt: skip
    assert (members["m2"]["instance_id"], members["m2"]["rack_id"]) == ("i2", "r1")
    assert (members["m2"]["assignment"], members["m2"]["target_assignment"]) == ({"topic_partitions": []}, second)
    host.topics.delete("foo")
    assert describe(host.group, host.topics.name_of, CoordinatorSettings())["members"][0]["assignment"] == {
        "topic_partitions": []
    }


def test_the_preferred_assignor(host: Host) -> None:
    def preferred() -> str:
        name: str = describe(host.group, host.topics.name_of, CoordinatorSettings())["assignor_name"]
        return name

    assert preferred() == "range"
    host.send("m3", 0, server_assignor="uniform")
    assert preferred() == "uniform"  # as many members as prefer range: the first one supported
    host.send("m1", -1)
    host.send("m3", -1)
    assert preferred() == "uniform"
