"""Groups from their newest record, and a host that stops."""

import base64
import json
import struct
from typing import Any

import pytest

from offsetlake.coordinator.classic.answers import answer_all
from offsetlake.coordinator.classic.group import ClassicGroup, ClassicState
from offsetlake.coordinator.classic.loading import from_value
from offsetlake.coordinator.classic.requests import JoinReply, SyncReply
from offsetlake.coordinator.steps import Timer, TimerKind
from offsetlake.kafka.error_codes import MEMBER_ID_REQUIRED, NONE, NOT_COORDINATOR, REBALANCE_IN_PROGRESS
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC, OffsetsRecordType, decode_record, encode_key
from support.coordinator.classic_host import DELAY_MS, SESSION_MS, START_MS, Host

SUBSCRIPTION = bytes.fromhex("0003 00000001 0001 74 00000001 75 00000000 ffffffff ffff")  # topic t, user data u
ASSIGNMENT = bytes.fromhex("0003 00000001 0001 74 00000001 00000007 ffffffff")  # t-7
MALFORMED = b"\0\3\0"
UNKNOWN_VERSION = b"\0\7" + SUBSCRIPTION[2:] + b"more"


def member(name: str, **values: Any) -> dict[str, Any]:
    return {
        "memberId": name,
        "groupInstanceId": None,
        "clientId": "client",
        "clientHost": "/192.0.2.1",
        "rebalanceTimeout": 20_000,
        "sessionTimeout": 15_000,
        "subscription": SUBSCRIPTION,
        "assignment": ASSIGNMENT,
        **values,
    }


def value(*members: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {
        "protocolType": "consumer",
        "generation": 9,
        "protocol": "range",
        "leader": "a",
        "currentStateTimestamp": 77,
        "members": list(members),
        **values,
    }


def load(content: dict[str, Any], **settings: Any) -> Host:
    host = Host(**settings)

    def start(step: Any) -> None:
        host.group = from_value(step, "g", content)

    host.run(start)
    return host


def test_a_group_with_members_is_stable() -> None:
    host = load(value(member("a"), member("b", groupInstanceId="i")))
    group = host.group
    assert group.state is ClassicState.STABLE
    assert (group.generation, group.protocol_type, group.protocol, group.leader_id) == (9, "consumer", "range", "a")
    assert group.state_timestamp_ms == 77
    assert group.static_ids == {"i": "b"}
    assert group.subscribed_topics == {"t"}
    assert group.members["a"].assignment == ASSIGNMENT
    assert host.timers == {Timer(TimerKind.SESSION, "g", name): START_MS + 15_000 for name in "ab"}
    assert host.heartbeat("b", 9, "i") == NONE
    assert host.synced(host.sync("a", 9)).assignment == ASSIGNMENT
    host.advance(15_000)
    assert host.group.is_empty()
    assert host.records[-1].value is not None
    assert host.records[-1].value["generation"] == 10


def test_members_continue_without_a_rebalance_after_a_restart() -> None:
    host = Host()
    leader, follower = host.stable(2)
    host.restart()
    assert host.heartbeat(leader, 1) == host.heartbeat(follower, 1) == NONE
    assert host.synced(host.sync(follower, 1)).assignment == follower.encode()
    assert host.joined(host.join(follower)).generation == 1
    token = host.join(leader)
    host.join(follower)
    assert host.joined(token).generation == 2


def test_a_group_without_members_is_empty() -> None:
    host = load(value(protocol=None, leader=None, currentStateTimestamp=-1))
    assert host.group.is_empty()
    assert host.group.state_timestamp_ms is None
    assert host.group.subscribed_topics == set()
    assert not host.group.is_simple()
    assert not host.timers
    assert host.joined(host.join(protocol_type="connect")).error == MEMBER_ID_REQUIRED


def test_the_record_of_a_new_group_is_a_simple_group() -> None:
    group = load(value(protocolType="", generation=0, protocol=None, leader=None)).group
    assert group.is_simple()
    assert group.protocol_type is None
    assert group.subscribed_topics is None


def test_the_first_versions_of_the_value_have_fewer_fields() -> None:
    old = {name: part for name, part in member("a").items() if name not in {"rebalanceTimeout", "groupInstanceId"}}
    content = value(old)
    del content["currentStateTimestamp"]
    loaded = load(content).group.members["a"]
    assert (loaded.session_timeout_ms, loaded.rebalance_timeout_ms) == (15_000, 15_000)
    assert load(value(member("a", rebalanceTimeout=-1))).group.members["a"].rebalance_timeout_ms == 15_000


def test_a_group_above_the_maximum_size_rebalances() -> None:
    host = load(value(member("a"), member("b"), member("c")), max_size=2)
    assert host.group.state is ClassicState.PREPARING_REBALANCE
    assert host.heartbeat("a", 9) == REBALANCE_IN_PROGRESS
    assert load(value(member("a"), member("b")), max_size=2).group.state is ClassicState.STABLE


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
@pytest.mark.parametrize("subscription", [SUBSCRIPTION, MALFORMED, UNKNOWN_VERSION, b""])
@pytest.mark.parametrize("assignment", [ASSIGNMENT, MALFORMED, b"", b"\0\5" + ASSIGNMENT[2:]])
@pytest.mark.parametrize("stored", [False, True])
def test_decoded_records_have_the_bytes_of_the_members(
    protocol_type: str, subscription: bytes, assignment: bytes, stored: bool
) -> None:
    """The tables contain decoded records, stored as JSON with bytes in base64."""
    key = encode_key(OFFSETS_TOPIC, OffsetsRecordType.GROUP_METADATA, {"group": "g"})
    content = decode_record(OFFSETS_TOPIC, key, group_metadata(protocol_type, subscription, assignment)).value
    assert content is not None
    if stored:
        content = json.loads(json.dumps(content, default=lambda data: base64.b64encode(data).decode()))
    loaded = load(content).group.members["m"]
    assert loaded.protocols == {"range": subscription}
    # The version of a decoded assignment is that of the subscription, if there is one.
    assert loaded.assignment[2:] == assignment[2:]
    assert loaded.assignment == assignment or not subscription


def group_metadata(protocol_type: str, subscription: bytes, assignment: bytes) -> bytes:
    """Return a GroupMetadataValue of version 3 with one member."""

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    return (
        struct.pack(">h", 3)
        + text(protocol_type)
        + struct.pack(">i", 1)
        + text("range")
        + text("m")
        + struct.pack(">qi", START_MS, 1)
        + text("m")
        + struct.pack(">h", -1)
        + text("client")
        + text("/192.0.2.1")
        + struct.pack(">iii", 20_000, SESSION_MS, len(subscription))
        + subscription
        + struct.pack(">i", len(assignment))
        + assignment
    )


def test_a_leader_that_is_not_a_member_is_replaced_in_the_next_rebalance() -> None:
    host = load(value(member("a"), member("b"), leader="gone"))
    tokens = [host.join("a", protocols=[("range", b"new")]), host.join("b", protocols=[("range", b"new")])]
    assert host.joined(tokens[0]).leader_id == "a"


def test_a_host_that_stops_answers_waiting_joins_and_syncs() -> None:
    host = Host()
    joining, token = host.join_dynamic()
    host.run(answer_all, host.group, NOT_COORDINATOR)
    assert host.joined(token) == JoinReply(NOT_COORDINATOR, joining)

    host = Host()
    host.join_dynamic()
    follower, _ = host.join_dynamic()
    host.advance(2 * DELAY_MS)
    token = host.sync(follower, 1)
    host.run(answer_all, host.group, NOT_COORDINATOR)
    assert host.synced(token) == SyncReply(NOT_COORDINATOR)
    host.run(answer_all, ClassicGroup("other"), NOT_COORDINATOR)
