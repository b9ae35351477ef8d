"""The rows of the tables `groups` and `group_members` of a replayed state."""

import json

import pytest

from support.rules.group_records import (
    GROUP,
    TOPIC_ID,
    classic,
    classic_member,
    consumer_member,
    current,
    numbered,
    record,
    replayed,
    streams_current,
    streams_member,
    target,
)

ASSIGNED = {"assignedPartitions": [{"topic": "b", "partitions": [1, 0]}, {"topic": "a", "partitions": [2]}]}
BLOB = "AAEAAAA"


def test_row_of_a_classic_group_has_the_position_and_timestamp_of_its_newest_record() -> None:
    members = [classic_member("m2", ["a"]), classic_member("m1", ["a"])]
    log = numbered([record(1, {}), record(2, classic("consumer", 4, members=members)), record(1, {})])
    assert replayed(log).row() == {
        "group_id": GROUP,
        "group_type": "classic",
        "state": "Stable",
        "protocol_type": "consumer",
        "protocol": "range",
        "leader": "m2",
        "generation": 4,
        "epoch": None,
        "assignment_epoch": None,
        "state_timestamp": 500,
        "subscription": "known",
        "subscribed_topics": ["a"],
        "member_count": 2,
        "log_partition": 7,
        "log_offset": 1,
        "log_timestamp": 1_001,
    }


@pytest.mark.parametrize("timestamp", [{"currentStateTimestamp": -1}, {}])
def test_missing_state_timestamp_is_null(timestamp: dict[str, int]) -> None:
    value = classic()
    del value["currentStateTimestamp"]
    assert replayed([record(2, value | timestamp)]).row()["state_timestamp"] is None


def test_row_of_a_consumer_group_has_epochs_instead_of_a_generation() -> None:
    consumer = [record(3, {"epoch": 1}), record(5, consumer_member("a"), "m1"), record(8, current(1, 0), "m1")]
    log = numbered([*consumer, record(6, {"assignmentEpoch": 1}), record(3, {"epoch": 2}), record(1, {})])
    row = replayed(log).row()
    names = ("protocol", "leader", "generation", "state_timestamp", "epoch", "assignment_epoch", "log_offset")
    assert [row[name] for name in names] == [None, None, None, None, 2, 1, 4]
    assert replayed([*log, record(6, None)]).row()["assignment_epoch"] == -1


NO_TASK = {"topic": None, "topic_id": None, "subtopology": None, "task_type": None}
CLASSIC_ROW = {
    "group_id": GROUP,
    "member_id": "m1",
    "group_instance_id": "i1",
    "client_id": "app",
    "client_host": "/127.0.0.1",
    "rack_id": None,
    "rebalance_timeout_ms": 300_000,
    "session_timeout_ms": 45_000,
    "subscribed_topics": ["a", "b"],
    "subscribed_regex": None,
    "server_assignor": None,
    "member_epoch": None,
    "previous_member_epoch": None,
    "member_state": None,
    "assignment": [NO_TASK | {"topic": "a", "partitions": [2]}, NO_TASK | {"topic": "b", "partitions": [0, 1]}],
    "target_assignment": None,
    "details": None,
}


def test_row_of_a_classic_member_has_null_topics_if_they_cannot_be_parsed() -> None:
    member = classic_member("m1", ["b", "a"], ASSIGNED, groupInstanceId="i1")
    assert replayed([record(2, classic(members=[member]))]).member_rows() == [CLASSIC_ROW]
    unparsed = {"subscribed_topics": None, "assignment": None}
    blobs = classic_member("m1", BLOB, BLOB, groupInstanceId="i1")
    assert replayed([record(2, classic("connect", members=[blobs]))]).member_rows() == [CLASSIC_ROW | unparsed]


def test_classic_member_of_an_old_record_has_its_session_timeout_as_rebalance_timeout() -> None:
    old = classic_member("m1", ["b", "a"], ASSIGNED)
    del old["groupInstanceId"], old["rebalanceTimeout"]
    (row,) = replayed([record(2, classic(members=[old]))]).member_rows()
    assert row == CLASSIC_ROW | {"group_instance_id": None, "rebalance_timeout_ms": 45_000}


def test_empty_rack_and_regular_expression_are_null() -> None:
    subscription = {"version": 3, "topics": ["a"], "rackId": ""}
    speaks_classic = record(2, classic(members=[classic_member("m1", subscription)]))
    (classic_row,) = replayed([speaks_classic]).member_rows()
    (consumer_row,) = replayed([record(5, consumer_member("a", subscribedTopicRegex=""), "m1")]).member_rows()
    assert (classic_row["rack_id"], consumer_row["subscribed_regex"]) == (None, None)


def test_target_assignment_is_kept_until_its_own_tombstone() -> None:
    joined = record(5, consumer_member(), "m1")
    rejoined = [joined, record(7, target(3), "m1"), record(5, None, "m1"), joined]
    targets = [
        replayed(records).member_rows()[0]["target_assignment"]
        for records in (rejoined, [*rejoined, record(7, None, "m1")])
    ]
    assert targets == [[NO_TASK | {"topic_id": TOPIC_ID, "partitions": [3]}], None]


def test_row_of_a_consumer_member_has_other_fields_as_json() -> None:
    speaks_classic = {"sessionTimeoutMs": 30_000, "supportedProtocols": [{"name": "range", "metadata": BLOB}]}
    settings = {"instanceId": "i1", "rackId": "r1", "subscribedTopicRegex": "x.*", "serverAssignor": "uniform"}
    member = consumer_member("b", "a", classicMemberMetadata=speaks_classic, **settings)
    revoking = current(3, 2, 1, state=1) | {"partitionsPendingRevocation": [{"topicId": TOPIC_ID, "partitions": [0]}]}
    state = replayed([record(5, member, "m1"), record(8, revoking, "m1"), record(7, target(5), "m1")])
    (row,) = state.member_rows()
    details = row.pop("details")
    assert json.loads(details) == {
        "classicMemberMetadata": speaks_classic,
        "partitionsPendingRevocation": [{"topicId": TOPIC_ID, "partitions": [0]}],
    }
    assert row == {
        **{name: value for name, value in CLASSIC_ROW.items() if name != "details"},
        "rack_id": "r1",
        "session_timeout_ms": 30_000,
        "subscribed_regex": "x.*",
        "server_assignor": "uniform",
        "member_epoch": 3,
        "previous_member_epoch": 2,
        "member_state": "UNREVOKED_PARTITIONS",
        "assignment": [NO_TASK | {"topic_id": TOPIC_ID, "partitions": [1, 2]}],
        "target_assignment": [NO_TASK | {"topic_id": TOPIC_ID, "partitions": [5]}],
    }


def test_row_of_a_streams_member_has_tasks_instead_of_topics() -> None:
    endpoint = {"host": "h", "port": 1}
    owned = streams_current(1, 1, 0) | {"standbyTasks": [{"subtopologyId": "1", "partitions": [4]}]}
    state = replayed([record(19, streams_member(userEndpoint=endpoint), "m1"), record(22, owned, "m1")])
    (row,) = state.member_rows()
    assert row["assignment"] == [
        NO_TASK | {"subtopology": "0", "task_type": "active", "partitions": [0, 1]},
        NO_TASK | {"subtopology": "1", "task_type": "standby", "partitions": [4]},
    ]
    assert (row["target_assignment"], row["member_state"], row["subscribed_topics"]) == (None, "STABLE", None)
    assert json.loads(row["details"]) == {"processId": "process-1", "userEndpoint": endpoint, "topologyEpoch": 0}


@pytest.mark.parametrize(
    ("record_type", "names"),
    [
        (8, ["STABLE", "UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS", "UNKNOWN"]),
        (14, ["STABLE", "UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS", "UNKNOWN"]),
        (22, ["UNKNOWN", "STABLE", "UNREVOKED_TASKS", "UNRELEASED_TASKS"]),
    ],
)
def test_member_state_is_named_by_its_number(record_type: int, names: list[str]) -> None:
    value = streams_current if record_type == 22 else current
    states = [replayed([record(record_type, value(1, state=number), "m1")]) for number in range(4)]
    assert [state.member_rows()[0]["member_state"] for state in states] == names


def test_member_is_stable_without_a_current_assignment_and_after_its_tombstone() -> None:
    joined = [record(5, consumer_member(), "m1")]
    left = [*joined, record(8, current(4, 0, state=1), "m1"), record(8, None, "m1")]
    columns = ("member_epoch", "previous_member_epoch", "member_state", "assignment", "target_assignment")
    rows = [replayed(records).member_rows()[0] for records in (joined, left)]
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (0, -1, "STABLE", [], None),
        (-1, -1, "STABLE", [], None),
    ]
