"""Members that join, heartbeat and change their subscription."""

from typing import Any

import pytest

from offsetlake.coordinator.consumer.heartbeat import heartbeat
from offsetlake.coordinator.consumer.requests import ConsumerHeartbeatRequest
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.steps import TimerKind
from offsetlake.kafka import error_codes
from support.coordinator.consumer_groups import GROUP, Host, topic_id, types

FOO, BAR = topic_id(1), topic_id(2)


@pytest.fixture
def host() -> Host:
    """A cluster with the topics foo, of 6 partitions, and bar, of 3."""
    host = Host()
    host.topics.create("foo", 6)
    host.topics.create("bar", 3)
    return host


def _partitions(count: int) -> frozenset[int]:
    return frozenset(range(count))


def test_the_first_member_has_all_partitions(host: Host) -> None:
    response, records = host.send("m1", 0, subscribed_topics=("foo", "bar"), client_id="app", client_host="/10.0.0.1")
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "m1", 1)
    assert response.heartbeat_interval_ms == 5_000
    assert response.assignment == {FOO: _partitions(6), BAR: _partitions(3)}
    assert types(records) == [5, 3, 7, 6, 8]
    topics = [{"topicId": FOO, "partitions": [*range(6)]}, {"topicId": BAR, "partitions": [*range(3)]}]
    metadata, group, target, target_epoch, current = (record.value for record in records)
    assert metadata == {
        "instanceId": None, "rackId": None, "clientId": "app", "clientHost": "/10.0.0.1",
        "subscribedTopicNames": ["bar", "foo"], "subscribedTopicRegex": "", "rebalanceTimeoutMs": 5_000,
        "serverAssignor": None, "classicMemberMetadata": None,
    }  # fmt: skip
    assert group is not None
    assert group["epoch"] == 1
    assert target == {"topicPartitions": topics}
    assert target_epoch == {"assignmentEpoch": 1}
    assert current == {
        "memberEpoch": 1, "previousMemberEpoch": 0, "state": 0, "assignedPartitions": topics,
        "partitionsPendingRevocation": [],
    }  # fmt: skip
    assert {record.key["groupId"] for record in records} == {GROUP}
    assert host.due_in(TimerKind.SESSION, "m1") == 45_000


def test_a_heartbeat_that_changes_nothing_writes_nothing(host: Host) -> None:
    host.send("m1", 0, subscribed_topics=("foo",))
    host.now_ms += 5_000
    response, records = host.send("m1", 1)
    assert (response.member_epoch, response.assignment, records) == (1, None, [])
    assert host.due_in(TimerKind.SESSION, "m1") == 45_000


def test_a_full_request_is_answered_with_the_assignment(host: Host) -> None:
    host.send("m1", 0, subscribed_topics=("foo",))
    full: dict[str, Any] = {"rebalance_timeout_ms": 5_000, "subscribed_topics": ("foo",), "owned": {}}
    assert host.send("m1", 1, **full)[0].assignment == {FOO: _partitions(6)}
    for missing in full:
        partial = {name: value for name, value in full.items() if name != missing}
        response, records = host.send("m1", 1, **partial)
        assert (response.assignment, records) == (None, [])
    regex = {"rebalance_timeout_ms": 5_000, "subscribed_regex": "", "owned": {}}
    assert host.send("m1", 1, **regex)[0].assignment == {FOO: _partitions(6)}


def test_the_server_generates_a_member_id_in_version_0(host: Host) -> None:
    response, _ = host.send("", 0, subscribed_topics=("foo",), api_version=0)
    assert response.member_id == topic_id(1_001)
    response, _ = host.send(topic_id(1_001), 1, api_version=0)
    assert response.error_code == error_codes.NONE


def test_partitions_are_revoked_before_they_are_assigned_again(host: Host) -> None:
    host.send("m1", 0, subscribed_topics=("foo",))
    response, records = host.send("m2", 0, subscribed_topics=("foo",))
    assert (response.member_epoch, response.assignment) == (2, {})
    assert types(records) == [5, 3, 7, 7, 6, 8]
    assert host.group.member("m2").state.name == "UNRELEASED_PARTITIONS"  # type: ignore[union-attr]

    response, records = host.send("m1", 1)
    kept = response.assignment
    assert kept is not None
    assert (response.member_epoch, len(kept[FOO]), types(records)) == (1, 3, [8])
    assert host.due_in(TimerKind.REVOCATION, "m1") == 5_000

    response, records = host.send("m2", 2, owned={})
    assert (response.member_epoch, response.assignment, types(records)) == (2, None, [8])  # its previous epoch is now 2
    response, records = host.send("m2", 2, owned={})
    assert (response.member_epoch, response.assignment, records) == (2, None, [])
    response, records = host.send("m1", 1, owned={FOO: _partitions(6)})
    assert (response.member_epoch, response.assignment, records) == (1, None, [])

    response, records = host.send("m1", 1, owned=kept)
    assert (response.member_epoch, response.assignment, types(records)) == (2, None, [8])
    assert host.due_in(TimerKind.REVOCATION, "m1") is None
    response, records = host.send("m2", 2, owned={})
    assert response.assignment == {FOO: _partitions(6) - kept[FOO]}
    assert host.group.state.state_name() == "Stable"


def test_topic_names_change_the_group_epoch_and_take_effect_at_once(host: Host) -> None:
    host.send("m1", 0, subscribed_topics=("foo",))
    response, records = host.send("m1", 1, subscribed_topics=("bar",))
    assert (response.member_epoch, response.assignment, types(records)) == (1, {}, [5, 3, 7, 6, 8])
    response, records = host.send("m1", 1, owned={})
    assert (response.member_epoch, response.assignment, types(records)) == (2, {BAR: _partitions(3)}, [8])


def test_other_metadata_does_not_change_the_group_epoch(host: Host) -> None:
    host.send("m1", 0, subscribed_topics=("foo",))
    changes: list[dict[str, Any]] = [
        {"rack_id": "rack-1"}, {"client_id": "other"}, {"rebalance_timeout_ms": 7}, {"server_assignor": "range"},
    ]  # fmt: skip
    sent: dict[str, Any] = {}
    for change in changes:
        sent |= change
        response, records = host.send("m1", 1, **sent)
        assert (response.member_epoch, types(records)) == (1, [5]), change


def test_a_topic_that_is_created_or_extended_is_assigned_after_the_group_was_notified(host: Host) -> None:
    host.send("m1", 0, subscribed_topics=("foo", "new"))
    new = host.topics.create("new", 1)
    host.topics.extend("foo", 8)
    assert host.send("m1", 1)[1] == []
    host.change_topics()
    response, records = host.send("m1", 1)
    assert (response.member_epoch, response.assignment) == (2, {FOO: _partitions(8), new: _partitions(1)})
    assert types(records) == [3, 7, 6, 8]
    host.change_topics()
    assert host.send("m1", 2)[1] == []


def test_a_topic_that_is_created_again_is_another_topic(host: Host) -> None:
    host.send("m1", 0, subscribed_topics=("foo",))
    host.topics.delete("foo")
    new = host.topics.create("foo", 6)
    host.change_topics()
    response, _ = host.send("m1", 1)
    assert (response.member_epoch, response.assignment) == (1, {})
    response, _ = host.send("m1", 1, owned={})
    assert (response.member_epoch, response.assignment) == (2, {new: _partitions(6)})


def test_a_member_may_rejoin_with_its_id(host: Host) -> None:
    host.send("m1", 0, subscribed_topics=("foo",))
    response, records = host.send("m1", 0, subscribed_topics=("foo",))
    assert (response.member_epoch, response.assignment, records) == (1, {FOO: _partitions(6)}, [])


def test_epochs(host: Host) -> None:
    """The previous epoch is accepted only if the member owns a part of its assignment: the response was lost."""
    host.send("m1", 0, subscribed_topics=("foo",))
    host.send("m2", 0, subscribed_topics=("foo",))
    kept = host.send("m1", 1, owned={FOO: _partitions(6)})[0].assignment
    assert kept is not None
    host.send("m1", 1, owned=kept)
    fenced = error_codes.FENCED_MEMBER_EPOCH
    cases: list[tuple[int, Any, int]] = [
        (1, kept, 0), (1, {}, 0), (1, None, fenced), (1, {FOO: _partitions(6)}, fenced),
        (1, {BAR: frozenset()}, fenced), (2, kept, 0), (3, kept, fenced),
    ]  # fmt: skip
    for epoch, owned, error_code in cases:
        response, records = host.send("m1", epoch, owned=owned)
        assert (response.error_code, records) == (error_code, []), (epoch, owned)
        assert response.member_epoch == (0 if error_code else 2)
    assert host.send("m1", 3)[0].error_message == (
        "The consumer group member has a greater member epoch (3) than the one known by the group coordinator (2). "
        "The member must abandon all its partitions and rejoin."
    )


def test_unknown_groups_and_members(host: Host) -> None:
    response, _ = host.send("m1", 1)
    assert (response.error_code, response.error_message) == (
        error_codes.GROUP_ID_NOT_FOUND, "Consumer group orders not found.",
    )  # fmt: skip
    assert not host.group.exists
    host.send("m1", 0, subscribed_topics=("foo",))
    response, _ = host.send("m2", 1)
    assert (response.error_code, response.error_message) == (
        error_codes.UNKNOWN_MEMBER_ID, "Member m2 is not a member of group orders.",
    )  # fmt: skip


def test_a_full_group_refuses_new_members_only() -> None:
    host = Host(settings=CoordinatorSettings(consumer_max_size=1))
    host.send("m1", 0)
    response, records = host.send("m2", 0)
    assert (response.error_code, records) == (error_codes.GROUP_MAX_SIZE_REACHED, [])
    assert response.error_message == "The consumer group has reached its maximum capacity of 1 members."
    assert host.send("m1", 0)[0].error_code == error_codes.NONE
    assert host.send("", 0, api_version=0)[0].error_code == error_codes.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "message"),
    [
        ("", 0, {}, "MemberId can't be empty."),
        (" ", 1, {"api_version": 0}, "MemberId can't be empty."),
        ("", -1, {"api_version": 0}, "MemberId can't be empty."),
        ("m1", 1, {"instance_id": ""}, "InstanceId can't be empty."),
        ("m1", 1, {"rack_id": " "}, "RackId can't be empty."),
        ("m1", 0, {"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ("m1", 0, {"owned": None}, "TopicPartitions must be empty when (re-)joining."),
        ("m1", 0, {"owned": {FOO: frozenset({1})}}, "TopicPartitions must be empty when (re-)joining."),
        (
            "m1", 0, {"subscribed_topics": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ("m1", -2, {}, "InstanceId can't be null."),
        ("m1", -3, {}, "MemberEpoch is invalid."),
    ],
)  # fmt: skip
def test_invalid_requests(host: Host, member_id: str, epoch: int, fields: dict[str, Any], message: str) -> None:
    response, records = host.send(member_id, epoch, **fields)
    assert (response.error_code, response.error_message, records) == (error_codes.INVALID_REQUEST, message, [])


def test_unsupported_assignor(host: Host) -> None:
    response, _ = host.send("m1", 0, server_assignor="sticky")
    assert (response.error_code, response.error_message) == (
        error_codes.UNSUPPORTED_ASSIGNOR,
        "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
    )


def test_a_member_without_topics_is_stable(host: Host) -> None:
    response, records = host.send("m1", 0)
    assert (response.member_epoch, response.assignment, types(records)) == (1, {}, [5, 3, 7, 6, 8])


def test_the_metadata_of_partitions_of_old_brokers_is_deleted(host: Host) -> None:
    host.send("m1", 0, subscribed_topics=("foo",))
    host.group.state.has_partition_metadata = True
    host.change_topics()
    assert types(host.send("m1", 1)[1]) == [-4]
    host.change_topics()
    assert types(host.send("m1", 1)[1]) == []


def test_a_failed_append_is_undone(host: Host) -> None:
    host.send("m1", 0, subscribed_topics=("foo",))
    before, log = host.group.state.to_dict(), len(host.log)
    step = host.step()
    request = ConsumerHeartbeatRequest(
        GROUP, "m2", 0, rebalance_timeout_ms=1, subscribed_topics=("foo", "bar"), owned={}
    )
    heartbeat(step, host.group, request, token=1)
    assert host.group.state.to_dict() != before
    for undo in reversed(step.undo):
        undo(step, 16)
    assert (host.group.state.to_dict(), len(host.log)) == (before, log)
    response, records = host.send("m2", 0, subscribed_topics=("foo", "bar"))
    assert (response.member_epoch, types(records)) == (2, [5, 3, 7, 7, 6, 8])


def test_a_long_subscription_follows_the_topics() -> None:
    host = Host()
    names = tuple(f"t{number}" for number in range(150))
    ids = [host.topics.create(name, 2) for name in names]
    response, _ = host.send("m1", 0, subscribed_topics=names)
    assert response.assignment == {topic: frozenset({0, 1}) for topic in ids}
    host.topics.extend("t7", 3)
    host.topics.delete("t8")
    host.change_topics()
    response, _ = host.send("m1", 1, owned=response.assignment)
    kept = {topic: frozenset({0, 1, 2} if topic == ids[7] else {0, 1}) for topic in ids if topic != ids[8]}
    assert response.assignment is not None
    assert {**response.assignment, ids[7]: kept[ids[7]]} == kept
    response, _ = host.send("m1", response.member_epoch, owned=response.assignment)
    response, _ = host.send("m1", 0, subscribed_topics=names[:120])
    assert response.assignment == {topic: kept[topic] for topic in ids[:120] if topic in kept}
