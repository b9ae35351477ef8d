"""Rows of tables, written by hand, with which the views are tested."""

import json

from support.queries.lakes import Row, commit, marker, tombstone

DAY, HOUR = 86_400_000, 3_600_000
NOW = 40 * DAY


def _of(group_id: str, *rows: Row) -> list[Row]:
    return [{**row, "group_id": group_id} for row in rows]


def _group_record(log_offset: int, group_id: str, members: int, generation: int = 2) -> Row:
    value = {"protocolType": "consumer", "generation": generation, "members": [{"memberId": "m"}] * members}
    return _record(log_offset, group_id, "GroupMetadata", json.dumps(value, separators=(",", ":")))


def _member_record(log_offset: int, group_id: str, member_id: str, *, goes: bool = False) -> Row:
    of_member = _record(log_offset, group_id, "ConsumerGroupMemberMetadata", None if goes else "{}")
    return {**of_member, "member_id": member_id}


def _record(log_offset: int, group_id: str, name: str, value: str | None) -> Row:
    kind = "tombstone" if value is None else "value"
    times = {"log_offset": log_offset, "log_timestamp": log_offset}
    return {**times, "group_id": group_id, "record_name": name, "kind": kind, "value": value}


def _alteration(log_offset: int, strategy: str, run_id: int) -> Row:
    where = {"group_id": "-", "topic": "t", "partition": 0, "log_offset": log_offset}  # it is told by the log offset
    return {**where, "outcome": "done", "strategy": strategy, "run_id": run_id, "evidence": "why"}


def _decision(judged_offset: int, rule: str, run_id: int, log_offset: int | None) -> Row:
    where = {"group_id": "-", "topic": "t", "partition": 0, "log_offset": log_offset, "judged_offset": judged_offset}
    return {**where, "outcome": "gone" if log_offset is None else "emitted", "rule": rule, "run_id": run_id}


def _timed(log_offset: int, value: int, at: int) -> Row:
    return commit(log_offset, value, log_timestamp=at)


def _stored(group_id: str, topic: str, days: float, **others: object) -> Row:
    at = NOW - int(days * DAY)
    where = {"group_id": group_id, "topic": topic, "partition": 0, "log_offset": 1, "log_timestamp": at}
    return {**where, "committed_offset": 5, "commit_timestamp": at, **others}


def _share_record(log_offset: int, partition: int, kind: str, start: int, age: int) -> Row:
    value = {} if kind == "tombstone" else {"snapshot_epoch": 0, "leader_epoch": 0, "start_offset": start}
    key = {"group_id": "share", "topic_id": "AAAAAAAAAAAAAAAAAAAAAA", "partition": partition}
    return {**key, **value, "log_offset": log_offset, "log_timestamp": NOW - age, "kind": kind}


_CONSUMER = {"protocol_type": "consumer", "subscription": "known"}
_MEMBER = {"state": "Stable", "member_count": 1, "subscribed_topics": ["orders"], "subscription": "known"}


HISTORY: dict[str, list[Row]] = {
    "offset_commits": [
        *_of("ahead", commit(10, 5), commit(11, 8), commit(12, 8)),
        *_of("back", commit(20, 100), commit(21, 90), commit(22, 95), commit(23, 60)),
        *_of("set", commit(30, 100), commit(31, 50)),
        *_of("repaired", commit(40, 100), commit(41, 100)),
        *_of("classic", commit(50, 100), commit(53, 90), commit(55, 95)),
        *_of("consumer", commit(62, 1), commit(64, 2), commit(66, 0), commit(68, 3)),
        *_of("transactional", commit(72, 5, 7)),
        *_of("expired", commit(80, 100), tombstone(81)),
        *_of("expired by a broker", commit(90, 100), tombstone(91)),
        *_of("cleaned up", commit(100, 100), tombstone(101)),
        *_of("deleted", commit(110, 100), tombstone(111)),
        *_of("undeleted", commit(120, 5), tombstone(121), commit(122, 5)),
        *_of("skips", commit(130, 10), commit(131, 20), commit(132, 30), commit(133, 500), commit(134, 510)),
        *_of("too few to skip", commit(140, 10), commit(141, 20), commit(142, 500)),
        *_of("two producers", commit(150, 1, 8), commit(152, 2, 9), commit(154, 3, 8), commit(156, 4, 8)),
        *_of("one then another", commit(160, 1), commit(161, 2, 8), commit(163, 3, 9)),
        *_of("two members", *(commit(170 + at, value) for at, value in enumerate((100, 70, 110, 80, 120)))),
        *_of("catches up", commit(180, 100), commit(181, 70), commit(182, 80), commit(183, 110)),
        *_of("reset between", commit(200, 90), commit(201, 100), commit(202, 50), commit(203, 110), commit(204, 120)),
        *_of("reset and restored", commit(210, 100), commit(211, 50), commit(212, 100), commit(213, 105)),
        *_of("two after a reset", *(commit(220 + at, value) for at, value in enumerate((9, 5, 100, 70, 110)))),
        *_of("reset by a tool", commit(232, 90), commit(233, 100), commit(235, 50), commit(237, 110)),
        *_of("producer, reset, producer", commit(240, 1, 8), commit(242, 5), commit(243, 6, 8)),
        *_of("aborted", commit(190, 1), commit(191, 9, 8), commit(193, 2), commit(194, 7, 6)),
    ],
    "transaction_markers": [
        *(marker(at, "COMMIT", 8) for at in (151, 155, 157, 162)), marker(153, "COMMIT", 9),
        marker(73, "COMMIT", 7), marker(164, "COMMIT", 9), marker(192, "ABORT", 8),
        marker(241, "COMMIT", 8), marker(244, "COMMIT", 8),
    ],
    "group_records": [
        _group_record(48, "classic", 0, generation=0), _group_record(49, "classic", 1),
        _group_record(52, "classic", 0), _group_record(54, "classic", 2),
        _member_record(60, "consumer", "a"), _member_record(61, "consumer", "b"),
        _member_record(63, "consumer", "a", goes=True), _member_record(65, "consumer", "b", goes=True),
        _member_record(67, "consumer", "a"),
        _group_record(70, "transactional", 1), _group_record(71, "transactional", 0),
        _group_record(231, "reset by a tool", 1), _group_record(234, "reset by a tool", 0),
        _group_record(236, "reset by a tool", 1),
    ],
    "alterations": [
        _alteration(31, "to_offset", 4), _alteration(41, "repair", 5), _alteration(122, "undelete", 6),
        _alteration(202, "to_offset", 10), _alteration(211, "to_offset", 11), _alteration(212, "undo", 12),
        _alteration(221, "to_offset", 13), _alteration(242, "to_offset", 14),
    ],
    "tombstones": [
        _decision(80, "commit_age", 7, 81), _decision(90, "group_empty", 8, None), _decision(100, "cleanup", 9, 101),
    ],
}  # fmt: skip
"""A group for each thing that can happen to an offset; the clock stands at the log offset."""

PRESENT: dict[str, list[Row]] = {
    "offset_commits": [
        *_of("rate", *(_timed(10 + at, 5, 3 * DAY + minutes * 60_000) for at, minutes in enumerate((0, 1, 59)))),
        *_of("rate", _timed(13, 6, 3 * DAY + 5 * HOUR), _timed(14, 6, 4 * DAY - 1), _timed(15, 6, 4 * DAY)),
        *_of("stalled", _timed(20, 4, NOW - 9000), _timed(21, 5, NOW - 8000), _timed(22, 5, NOW - 7000)),
        *_of("stalled", _timed(23, 5, NOW - 3000)),
        *_of("slow", _timed(30, 4, NOW - 9000), _timed(31, 4, NOW - 5000), _timed(32, 5, NOW)),
        *_of("rate", tombstone(40, log_timestamp=4 * DAY + 1, topic="gone")),
    ],
    "group_records": [_record(4 * DAY, "rate", "GroupMetadata", "{}")],
    "offsets": [
        _stored("simple", "orders", 8),
        _stored("empty", "old", 20),
        _stored("member", "orders", 9),
        _stored("member", "old", 10),
        _stored("rebalancing", "old", 9),
        _stored("connect", "old", 9),
        _stored("consumer", "orders", 9),
        _stored("consumer", "old", 2),
        _stored("share", "old", 9),
        _stored("ghost", "old", 9),
        _stored("explicit", "old", 30, expire_timestamp=NOW - 5),
        _stored("held", "old", 9),
        _stored("stalled", "t", 0, committed_offset=5),
        _stored("slow", "t", 0, committed_offset=5),
        _stored("fast", "t", 0, committed_offset=50),
    ],
    "pending_offsets": [
        {**_stored("held", "old", 3), "producer_id": 7, "log_offset": 91},
        {**_stored("held", "other", 2), "producer_id": 7, "log_offset": 92},
        {**_stored("other", "old", 1), "producer_id": 7, "log_offset": 93},
        {**_stored("held", "parts", 1), "producer_epoch": None, "commit_id": 1, "commit_size": 2},
    ],
    "groups": [
        *({"group_id": name} for name in ("simple", "explicit", "held", "stalled", "slow", "fast")),
        {"group_id": "empty", **_CONSUMER, "state_timestamp": NOW - 2 * DAY},
        {"group_id": "member", **_CONSUMER, **_MEMBER},
        {"group_id": "rebalancing", **_CONSUMER, "state": "PreparingRebalance", "member_count": 1},
        {"group_id": "connect", "protocol_type": "connect", "state": "Stable", "member_count": 1},
        {"group_id": "consumer", "group_type": "consumer", **_CONSUMER, **_MEMBER},
        {"group_id": "share", "group_type": "share", "protocol_type": "share"},
    ],
    "tombstones": [{**_decision(1, "topic_deleted", 1, None), "topic": "removed", "outcome": "planned"}],
    "share_state_records": [
        _share_record(1, 0, "snapshot", 5, 9000),
        _share_record(2, 0, "update", 10, 8000),
        _share_record(3, 0, "update", -1, 1000),
        _share_record(4, 0, "snapshot", 10, 500),  # repeats the state
        _share_record(5, 1, "update", 0, 9900),
        _share_record(6, 1, "tombstone", 0, 9500),
        _share_record(7, 1, "snapshot", -1, 7000),
        _share_record(8, 1, "snapshot", -1, 600),
    ],
    "share_partitions": [
        {
            "partition": 0,
            "log_offset": 4,
            "log_timestamp": NOW - 500,
            "updated_timestamp": NOW - 1000,
            "start_offset": 10,
            "end_offset": 30,
            "in_flight_records": 20,
            "available_records": 5,
            "acknowledged_records": 10,
            "archived_records": 1,
            "deliveries": 26,
            "redelivered_records": 4,
            "max_delivery_count": 5,
        },
        {"partition": 1, "log_offset": 8, "log_timestamp": NOW - 600, "updated_timestamp": NOW - 7000},
    ],
}
"""Groups in every state retention knows, and some history, of which the newest record is of NOW."""

RECENT: dict[str, list[Row]] = {
    "offsets": [
        _stored("assigned", "assigned", 2 - 1e-6),
        _stored("half idle", "old", 9),
        _stored("half idle", "kept", 1),
        _stored("of a removed topic", "removed", 8),
        _stored("of a removed topic", "orders", 1),
        _stored("of a topic made anew", "removed", 1),
        _stored("just removed", "old", 1),
    ],
    "groups": [
        {"group_id": name} for name in ("assigned", "half idle", "of a removed topic", "of a topic made anew")
    ],
}  # fmt: skip
"""Groups that committed lately, or of whose topics some were; beside PRESENT."""

ODD: dict[str, list[Row]] = {
    "offsets": [
        _stored("odd", "future", 0, commit_timestamp=2**63 - 1),
        _stored("odd", "past", 0, commit_timestamp=-(2**63)),
    ],
    "groups": [{"group_id": "odd"}],
}
"""What a client can say of the time of its commit."""
