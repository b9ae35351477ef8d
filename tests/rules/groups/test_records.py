"""The lifecycle of each type of group, record by record, and the replay of records that are out of order."""

from typing import Any

import pytest

from offsetlake.rules.groups.records import GroupRecord, replay
from support.rules.group_records import (
    classic,
    classic_member,
    consumer_member,
    current,
    numbered,
    record,
    replayed,
    share_member,
    streams_current,
    streams_member,
    target,
    tasks,
    topology,
)

COMMIT: dict[str, Any] = {}
BLOB = "AAEAAAA"

# A step is a record, and the values of these columns in the group's row after it; None if there is no group.
COLUMNS = ("group_type", "state", "protocol_type", "member_count", "subscription", "subscribed_topics")
Step = tuple[GroupRecord, tuple[Any, ...] | None]

LIFECYCLES: dict[str, list[Step]] = {
    "simple": [
        (record(1, COMMIT), ("classic", "Empty", None, 0, "none", [])),
        (record(1, COMMIT), ("classic", "Empty", None, 0, "none", [])),
        (record(2, None), None),
        (record(1, None), None),
        (record(1, COMMIT), ("classic", "Empty", None, 0, "none", [])),
    ],
    "classic: join, sync, second member, leave, expire": [
        (record(2, classic("", 0)), ("classic", "Empty", None, 0, "none", [])),
        (
            record(2, classic("consumer", 1, members=[classic_member("m1", ["b", "a"])])),
            ("classic", "Stable", "consumer", 1, "known", ["a", "b"]),
        ),
        (record(1, COMMIT), ("classic", "Stable", "consumer", 1, "known", ["a", "b"])),
        (
            record(2, classic("consumer", 2, members=[classic_member("m1", ["a"]), classic_member("m2", ["a", "c"])])),
            ("classic", "Stable", "consumer", 2, "known", ["a", "c"]),
        ),
        (record(2, classic("consumer", 3)), ("classic", "Empty", "consumer", 0, "known", [])),
        (record(2, None), None),
    ],
    "classic: subscription of one member unreadable": [
        (
            record(2, classic(members=[classic_member("m1", ["a"]), classic_member("m2", None)])),
            ("classic", "Stable", "consumer", 2, "everything", ["a"]),
        ),
        (
            record(2, classic(members=[classic_member("m1", ["a"])], protocol=None)),
            ("classic", "Stable", "consumer", 1, "everything", ["a"]),
        ),
        (
            record(2, classic("", members=[classic_member("m1", None)])),
            ("classic", "Stable", None, 1, "unknown", []),
        ),
    ],
    "connect": [
        (
            record(2, classic("connect", members=[classic_member("m1", BLOB, BLOB)])),
            ("classic", "Stable", "connect", 1, "unknown", []),
        ),
        (record(2, classic("connect", 2)), ("classic", "Empty", "connect", 0, "unknown", [])),
    ],
    "consumer: join, second joins and reconciles, both leave, expire": [
        (record(5, consumer_member("a"), "m1"), ("consumer", "Stable", "consumer", 1, "known", ["a"])),
        (record(3, {"epoch": 1}), ("consumer", "Assigning", "consumer", 1, "known", ["a"])),
        (record(7, target(0, 1), "m1"), ("consumer", "Assigning", "consumer", 1, "known", ["a"])),
        (record(6, {"assignmentEpoch": 1}), ("consumer", "Reconciling", "consumer", 1, "known", ["a"])),
        (record(8, current(1, 0, 1), "m1"), ("consumer", "Stable", "consumer", 1, "known", ["a"])),
        (record(5, consumer_member("a", "b"), "m2"), ("consumer", "Reconciling", "consumer", 2, "known", ["a", "b"])),
        (record(3, {"epoch": 2}), ("consumer", "Assigning", "consumer", 2, "known", ["a", "b"])),
        (record(7, target(0), "m1"), ("consumer", "Assigning", "consumer", 2, "known", ["a", "b"])),
        (record(7, target(1), "m2"), ("consumer", "Assigning", "consumer", 2, "known", ["a", "b"])),
        (record(6, {"assignmentEpoch": 2}), ("consumer", "Reconciling", "consumer", 2, "known", ["a", "b"])),
        (record(8, current(2, state=2), "m2"), ("consumer", "Reconciling", "consumer", 2, "known", ["a", "b"])),
        (record(8, current(1, 0, state=1), "m1"), ("consumer", "Reconciling", "consumer", 2, "known", ["a", "b"])),
        (record(8, current(2, 0), "m1"), ("consumer", "Reconciling", "consumer", 2, "known", ["a", "b"])),
        (record(8, current(2, 1), "m2"), ("consumer", "Stable", "consumer", 2, "known", ["a", "b"])),
        (record(8, None, "m2"), ("consumer", "Reconciling", "consumer", 2, "known", ["a", "b"])),
        (record(7, None, "m2"), ("consumer", "Reconciling", "consumer", 2, "known", ["a", "b"])),
        (record(5, None, "m2"), ("consumer", "Stable", "consumer", 1, "known", ["a"])),
        (record(8, None, "m1"), ("consumer", "Reconciling", "consumer", 1, "known", ["a"])),
        (record(7, None, "m1"), ("consumer", "Reconciling", "consumer", 1, "known", ["a"])),
        (record(5, None, "m1"), ("consumer", "Empty", "consumer", 0, "known", [])),
        (record(3, {"epoch": 3}), ("consumer", "Empty", "consumer", 0, "known", [])),
        (record(6, None), ("consumer", "Empty", "consumer", 0, "known", [])),
        (record(4, None), ("consumer", "Empty", "consumer", 0, "known", [])),
        (record(3, None), None),
    ],
    "consumer: regular expression": [
        (
            record(5, consumer_member("a", subscribedTopicRegex="x.*"), "m1"),
            ("consumer", "Stable", "consumer", 1, "known", ["a"]),
        ),
        (
            record(16, {"topics": ["x1", "a", "x2"], "version": 4, "timestamp": 9}, "x.*"),
            ("consumer", "Stable", "consumer", 1, "known", ["a", "x1", "x2"]),
        ),
        (
            record(16, {"topics": ["x2"], "version": 5, "timestamp": 10}, "x.*"),
            ("consumer", "Stable", "consumer", 1, "known", ["a", "x2"]),
        ),
        (record(16, None, "y.*"), ("consumer", "Stable", "consumer", 1, "known", ["a", "x2"])),
        (record(16, None, "x.*"), ("consumer", "Stable", "consumer", 1, "known", ["a"])),
    ],
    "upgrade to the consumer protocol and downgrade": [
        (record(1, COMMIT), ("classic", "Empty", None, 0, "none", [])),
        (
            record(2, classic(members=[classic_member("m1", ["a"])])),
            ("classic", "Stable", "consumer", 1, "known", ["a"]),
        ),
        (record(2, None), None),
        (record(5, consumer_member("a"), "m1"), ("consumer", "Stable", "consumer", 1, "known", ["a"])),
        (record(3, {"epoch": 1}), ("consumer", "Assigning", "consumer", 1, "known", ["a"])),
        (record(6, {"assignmentEpoch": 1}), ("consumer", "Reconciling", "consumer", 1, "known", ["a"])),
        (record(8, current(1, 0), "m1"), ("consumer", "Stable", "consumer", 1, "known", ["a"])),
        (record(8, None, "m1"), ("consumer", "Reconciling", "consumer", 1, "known", ["a"])),
        (record(5, None, "m1"), ("consumer", "Empty", "consumer", 0, "known", [])),
        (record(6, None), ("consumer", "Empty", "consumer", 0, "known", [])),
        (record(3, None), None),
        (
            record(2, classic("consumer", 1, members=[classic_member("m1", ["a"])])),
            ("classic", "Stable", "consumer", 1, "known", ["a"]),
        ),
    ],
    "share": [
        (record(10, share_member("a"), "m1"), ("share", "Stable", "share", 1, "known", ["a"])),
        (record(11, {"epoch": 1, "metadataHash": 5}), ("share", "Stable", "share", 1, "known", ["a"])),
        (record(13, target(), "m1"), ("share", "Stable", "share", 1, "known", ["a"])),
        (record(12, {"assignmentEpoch": 1}), ("share", "Stable", "share", 1, "known", ["a"])),
        (record(14, current(1), "m1"), ("share", "Stable", "share", 1, "known", ["a"])),
        (
            record(15, {"initializingTopics": [], "initializedTopics": [], "deletingTopics": []}),
            ("share", "Stable", "share", 1, "known", ["a"]),
        ),
        (record(14, None, "m1"), ("share", "Stable", "share", 1, "known", ["a"])),
        (record(13, None, "m1"), ("share", "Stable", "share", 1, "known", ["a"])),
        (record(10, None, "m1"), ("share", "Empty", "share", 0, "known", [])),
        (record(12, None), ("share", "Empty", "share", 0, "known", [])),
        (record(15, None), ("share", "Empty", "share", 0, "known", [])),
        (record(11, None), None),
    ],
    "streams": [
        (record(23, topology(["b", "a"], ["app-by-key"])), ("streams", "Empty", "streams", 0, "none", [])),
        (
            record(19, streams_member(), "m1"),
            ("streams", "Stable", "streams", 1, "known", ["a", "app-by-key", "b"]),
        ),
        (record(17, {"epoch": 1}), ("streams", "Assigning", "streams", 1, "known", ["a", "app-by-key", "b"])),
        (record(21, tasks(0, 1), "m1"), ("streams", "Assigning", "streams", 1, "known", ["a", "app-by-key", "b"])),
        (
            record(20, {"assignmentEpoch": 1}),
            ("streams", "Reconciling", "streams", 1, "known", ["a", "app-by-key", "b"]),
        ),
        (
            record(22, streams_current(1, 0, state=2), "m1"),
            ("streams", "Reconciling", "streams", 1, "known", ["a", "app-by-key", "b"]),
        ),
        (
            record(22, streams_current(1, 0, 1), "m1"),
            ("streams", "Stable", "streams", 1, "known", ["a", "app-by-key", "b"]),
        ),
        (record(23, topology(["a"], patterns=["t.*"])), ("streams", "Stable", "streams", 1, "everything", ["a"])),
        (record(23, None), ("streams", "NotReady", "streams", 1, "none", [])),
        (record(22, None, "m1"), ("streams", "NotReady", "streams", 1, "none", [])),
        (record(21, None, "m1"), ("streams", "NotReady", "streams", 1, "none", [])),
        (record(20, None), ("streams", "NotReady", "streams", 1, "none", [])),
        (record(19, None, "m1"), ("streams", "Empty", "streams", 0, "none", [])),
        (record(17, None), None),
        (record(23, None), None),
    ],
}


@pytest.mark.parametrize("lifecycle", LIFECYCLES.values(), ids=LIFECYCLES)
def test_state_after_each_record_of_a_lifecycle(lifecycle: list[Step]) -> None:
    state = None
    steps = zip(numbered(step for step, _ in lifecycle), (expected for _, expected in lifecycle), strict=True)
    for next_record, expected in steps:
        state = replay(state, next_record)
        actual = None if state is None else tuple(state.row()[column] for column in COLUMNS)
        assert actual == expected, next_record
        assert expected is None or len(state.member_rows()) == expected[3]


CONSUMER = (record(3, {"epoch": 1}), record(5, consumer_member("a"), "m1"), record(8, current(1, 0), "m1"))
CLASSIC = (record(2, classic(members=[classic_member("m1", ["a"])])),)


# The records, and the group type and member IDs after them; None if there is no group.
@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([record(5, None, "m1"), record(16, None, "x"), record(3, None), record(23, None), record(15, None)], None),
        ([record(9, {"topics": []}), record(18, {}), record(24, {}, "m1")], None),
        ([*CONSUMER, record(9, {}), record(99, {})], ("consumer", ["m1"])),
        ([record(4, {"topics": []})], ("consumer", [])),
        ([record(15, {"initializingTopics": []})], ("share", [])),
        ([record(2, classic("", 0)), record(8, None, "m1")], ("consumer", [])),
        ([record(1, COMMIT), record(11, {"epoch": 1})], ("share", [])),
        ([record(1, COMMIT), record(17, {"epoch": 1})], ("streams", [])),
        ([record(2, classic("", 0)), record(3, {"epoch": 1})], ("consumer", [])),
        ([record(1, COMMIT), record(8, None, "m1")], ("consumer", [])),
        ([record(1, COMMIT), record(6, None), record(3, None)], None),
        ([record(8, current(1, 0), "m1")], ("consumer", ["m1"])),
        ([record(7, target(0), "m1")], ("consumer", [])),
        ([*CONSUMER, record(5, None, "m2"), record(8, None, "m2"), record(7, None, "m2")], ("consumer", ["m1"])),
        ([*CONSUMER, record(2, None)], None),
        # A broker fails on the following logs; here the newest record applies.
        ([*CONSUMER, record(5, None, "m1")], ("consumer", [])),
        ([*CONSUMER, record(3, None)], None),
        ([*CLASSIC, record(5, consumer_member("a"), "m2")], ("consumer", ["m2"])),
        ([*CLASSIC, record(3, None), record(5, None, "m1")], ("classic", ["m1"])),
        ([*CONSUMER, *CLASSIC], ("classic", ["m1"])),
        ([*CONSUMER, record(10, share_member("a"), "m3")], ("share", ["m3"])),
        ([*CONSUMER, record(11, None), record(22, None, "m1")], ("consumer", ["m1"])),
        ([record(2, classic("", members=[classic_member("m1", ["a"])])), record(5, None, "m1")], ("classic", ["m1"])),
    ],
)
def test_newest_record_applies_if_records_are_out_of_order(
    records: list[GroupRecord], expected: tuple[str, list[str]] | None
) -> None:
    state = replayed(numbered(records))
    actual = None if state is None else (state.row()["group_type"], [row["member_id"] for row in state.member_rows()])
    assert actual == expected


def test_current_assignment_before_its_member_creates_the_member() -> None:
    early = [record(8, current(1, 0), "m1"), record(6, {"assignmentEpoch": 1}), record(3, {"epoch": 1})]
    (alone,) = replayed(numbered(early)).member_rows()
    assert (alone["client_id"], alone["subscribed_topics"], alone["member_epoch"]) == (None, None, 1)
    state = replayed(numbered([*early, record(5, consumer_member("a"), "m1")]))
    (member,) = state.member_rows()
    assert (member["client_id"], member["subscribed_topics"], member["member_epoch"]) == ("app", ["a"], 1)
    assert state.row()["state"] == "Stable"
