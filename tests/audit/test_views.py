"""Each view on rows written out by hand, and what its file says of it."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from audit.lakes import Row, commit, marker, small_lake, tombstone
from offsetlake.lake.definitions import TABLES
from offsetlake.lake.lake import Lake
from offsetlake.lake.views import needed, views
from offsetlake.lifecycle.retention import CLOCKS, RULES, Groups, verdicts

DAY, HOUR = 86_400_000, 3_600_000
NOW = 40 * DAY


def asked(lake: Lake, view: str, columns: Sequence[str], where: str = "true") -> list[tuple[object, ...]]:
    """Some columns of a view, in its order."""
    sql = f"SELECT * FROM {view} WHERE {where} ORDER BY {views()[view].order}"
    return [tuple(row[name] for name in columns) for row in lake.query(sql, view).to_pylist()]


def of(group_id: str, *rows: Row) -> list[Row]:
    return [{**row, "group_id": group_id} for row in rows]


def group_record(log_offset: int, group_id: str, members: int, generation: int = 2) -> Row:
    value = {"protocolType": "consumer", "generation": generation, "members": [{"memberId": "m"}] * members}
    return _record(log_offset, group_id, "GroupMetadata", json.dumps(value, separators=(",", ":")))


def member_record(log_offset: int, group_id: str, member_id: str, *, goes: bool = False) -> Row:
    of_member = _record(log_offset, group_id, "ConsumerGroupMemberMetadata", None if goes else "{}")
    return {**of_member, "member_id": member_id}


def _record(log_offset: int, group_id: str, name: str, value: str | None) -> Row:
    kind = "tombstone" if value is None else "value"
    times = {"log_offset": log_offset, "log_timestamp": log_offset}
    return {**times, "group_id": group_id, "record_name": name, "kind": kind, "value": value}


def alteration(log_offset: int, strategy: str, run_id: int) -> Row:
    where = {"group_id": "-", "topic": "t", "partition": 0, "log_offset": log_offset}  # it is told by the log offset
    return {**where, "outcome": "done", "strategy": strategy, "run_id": run_id, "evidence": "why"}


def decision(judged_offset: int, rule: str, run_id: int, log_offset: int | None) -> Row:
    where = {"group_id": "-", "topic": "t", "partition": 0, "log_offset": log_offset, "judged_offset": judged_offset}
    return {**where, "outcome": "gone" if log_offset is None else "emitted", "rule": rule, "run_id": run_id}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A group for each thing that can happen to an offset; the clock stands at the log offset."""
    return small_lake(
        tmp_path_factory.mktemp("views") / "lake",
        offset_commits=[
            *of("ahead", commit(10, 5), commit(11, 8), commit(12, 8)),
            *of("back", commit(20, 100), commit(21, 90), commit(22, 95), commit(23, 60)),
            *of("set", commit(30, 100), commit(31, 50)),
            *of("repaired", commit(40, 100), commit(41, 100)),
            *of("classic", commit(50, 100), commit(53, 90), commit(55, 95)),
            *of("consumer", commit(62, 1), commit(64, 2), commit(66, 0), commit(68, 3)),
            *of("transactional", commit(72, 5, 7)),
            *of("expired", commit(80, 100), tombstone(81)),
            *of("expired by a broker", commit(90, 100), tombstone(91)),
            *of("cleaned up", commit(100, 100), tombstone(101)),
            *of("deleted", commit(110, 100), tombstone(111)),
            *of("undeleted", commit(120, 5), tombstone(121), commit(122, 5)),
            *of("skips", commit(130, 10), commit(131, 20), commit(132, 30), commit(133, 500), commit(134, 510)),
            *of("too few to skip", commit(140, 10), commit(141, 20), commit(142, 500)),
            *of("two producers", commit(150, 1, 8), commit(152, 2, 9), commit(154, 3, 8), commit(156, 4, 8)),
            *of("one then another", commit(160, 1), commit(161, 2, 8), commit(163, 3, 9)),
            *of("two members", *(commit(170 + at, value) for at, value in enumerate((100, 70, 110, 80, 120)))),
            *of("catches up", commit(180, 100), commit(181, 70), commit(182, 80), commit(183, 110)),
            *of("aborted", commit(190, 1), commit(191, 9, 8), commit(193, 2), commit(194, 7, 6)),
        ],
        transaction_markers=[
            *(marker(at, "COMMIT", 8) for at in (151, 155, 157, 162)), marker(153, "COMMIT", 9),
            marker(73, "COMMIT", 7), marker(164, "COMMIT", 9), marker(192, "ABORT", 8),
        ],
        group_records=[
            group_record(48, "classic", 0, generation=0), group_record(49, "classic", 1),
            group_record(52, "classic", 0), group_record(54, "classic", 2),
            member_record(60, "consumer", "a"), member_record(61, "consumer", "b"),
            member_record(63, "consumer", "a", goes=True), member_record(65, "consumer", "b", goes=True),
            member_record(67, "consumer", "a"),
            group_record(70, "transactional", 1), group_record(71, "transactional", 0),
        ],
        alterations=[alteration(31, "to_offset", 4), alteration(41, "repair", 5), alteration(122, "undelete", 6)],
        tombstones=[
            decision(80, "commit_age", 7, 81), decision(90, "group_empty", 8, None), decision(100, "cleanup", 9, 101),
        ],
    )  # fmt: skip


CHANGES: dict[str, list[tuple[object, ...]]] = {  # change, old, new, difference, run, decision; the newest first
    "ahead": [
        ("commit", 8, 8, 0, None, None), ("commit", 5, 8, 3, None, None), ("commit", None, 5, None, None, None),
    ],
    "set": [("reset", 100, 50, -50, 4, "to_offset"), ("commit", None, 100, None, None, None)],
    "repaired": [("commit", 100, 100, 0, 5, "repair"), ("commit", None, 100, None, None, None)],
    "transactional": [("commit", None, 5, None, None, None)],
    "expired": [("expiry", 100, None, None, 7, "commit_age"), ("commit", None, 100, None, None, None)],
    "expired by a broker": [("expiry", 100, None, None, 8, "group_empty"), ("commit", None, 100, None, None, None)],
    "cleaned up": [("delete", 100, None, None, 9, "cleanup"), ("commit", None, 100, None, None, None)],
    "deleted": [("delete", 100, None, None, None, None), ("commit", None, 100, None, None, None)],
    "undeleted": [
        ("undelete", None, 5, None, 6, "undelete"), ("delete", 5, None, None, None, None),
        ("commit", None, 5, None, None, None),
    ],
}  # fmt: skip
KINDS = {  # the oldest first
    "back": ["commit", "rewind", "commit", "rewind"],
    "classic": ["commit", "reset", "commit"],
    "consumer": ["commit", "commit", "reset", "commit"],
    "skips": ["commit", "commit", "commit", "skip ahead", "commit"],
    "too few to skip": ["commit", "commit", "commit"],
    "aborted": ["commit", "commit"],
}


@pytest.mark.parametrize("group_id", CHANGES)
def test_changes(history: Lake, group_id: str) -> None:
    columns = ("change", "old_offset", "new_offset", "difference", "run_id", "decision")
    assert asked(history, "changes", columns, f"group_id = '{group_id}'") == CHANGES[group_id]


def test_kinds_of_changes(history: Lake) -> None:
    found = asked(history, "changes", ("group_id", "change"))[::-1]
    assert {name: [change for group_id, change in found if group_id == name] for name in KINDS} == KINDS


def test_empty_periods(history: Lake) -> None:
    columns = ("group_id", "from_log_offset", "to_log_offset", "from_timestamp")
    assert asked(history, "empty_periods", columns) == [
        ("transactional", 71, None, 71),
        ("consumer", 65, 67, 65),
        ("classic", 52, 54, 52),
    ]


def test_regressions(history: Lake) -> None:
    columns = ("group_id", "regressions", "records_again", "farthest", "last_timestamp", "last_log_offset")
    assert asked(history, "regressions", columns) == [
        ("two members", 2, 60, 30, 173, 173),
        ("back", 2, 45, 35, 23, 23),
        ("catches up", 1, 30, 30, 181, 181),
    ]


def test_double_writers(history: Lake) -> None:
    columns = ("group_id", "turns", "producers", "last_timestamp", "last_log_offset")
    assert asked(history, "double_writers", columns) == [
        ("two members", 2, 0, 174, 174),
        ("consumer", 1, 0, 68, 68),  # it had caught up after a reset within one commit
        ("two producers", 1, 2, 155, 154),
    ]


@pytest.fixture(scope="module")
def present(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Groups in every state retention knows, and some history, of which the newest record is of NOW."""

    def timed(log_offset: int, value: int, at: int) -> Row:
        return commit(log_offset, value, log_timestamp=at)

    def stored(group_id: str, topic: str, days: float, **others: object) -> Row:
        at = NOW - int(days * DAY)
        where = {"group_id": group_id, "topic": topic, "partition": 0, "log_offset": 1, "log_timestamp": at}
        return {**where, "committed_offset": 5, "commit_timestamp": at, **others}

    consumer = {"protocol_type": "consumer", "subscription": "known"}
    member = {"state": "Stable", "member_count": 1, "subscribed_topics": ["orders"], "subscription": "known"}
    return small_lake(
        tmp_path_factory.mktemp("views") / "lake",
        offset_commits=[
            *of("rate", *(timed(10 + at, 5, 3 * DAY + minutes * 60_000) for at, minutes in enumerate((0, 1, 59)))),
            *of("rate", timed(13, 6, 3 * DAY + 5 * HOUR), timed(14, 6, 4 * DAY - 1), timed(15, 6, 4 * DAY)),
            *of("stalled", timed(20, 4, NOW - 9000), timed(21, 5, NOW - 8000), timed(22, 5, NOW - 7000)),
            *of("stalled", timed(23, 5, NOW - 3000)),
            *of("slow", timed(30, 4, NOW - 9000), timed(31, 4, NOW - 5000), timed(32, 5, NOW)),
            *of("rate", tombstone(40, log_timestamp=4 * DAY + 1, topic="gone")),
        ],
        group_records=[_record(4 * DAY, "rate", "GroupMetadata", "{}")],
        offsets=[
            stored("simple", "orders", 8),
            stored("empty", "old", 20),
            stored("member", "orders", 9),
            stored("member", "old", 10),
            stored("rebalancing", "old", 9),
            stored("connect", "old", 9),
            stored("consumer", "orders", 9),
            stored("consumer", "old", 2),
            stored("share", "old", 9),
            stored("ghost", "old", 9),
            stored("explicit", "old", 30, expire_timestamp=NOW - 5),
            stored("held", "old", 9),
            stored("stalled", "t", 0, committed_offset=5),
            stored("slow", "t", 0, committed_offset=5),
            stored("fast", "t", 0, committed_offset=50),
        ],
        pending_offsets=[
            {**stored("held", "old", 3), "producer_id": 7, "log_offset": 91},
            {**stored("held", "other", 2), "producer_id": 7, "log_offset": 92},
            {**stored("other", "old", 1), "producer_id": 7, "log_offset": 93},
            {**stored("held", "parts", 1), "producer_epoch": None, "commit_id": 1, "commit_size": 2},
        ],
        groups=[
            *({"group_id": name} for name in ("simple", "explicit", "held", "stalled", "slow", "fast")),
            {"group_id": "empty", **consumer, "state_timestamp": NOW - 2 * DAY},
            {"group_id": "member", **consumer, **member},
            {"group_id": "rebalancing", **consumer, "state": "PreparingRebalance", "member_count": 1},
            {"group_id": "connect", "protocol_type": "connect", "state": "Stable", "member_count": 1},
            {"group_id": "consumer", "group_type": "consumer", **consumer, **member},
            {"group_id": "share", "group_type": "share", "protocol_type": "share"},
        ],
        tombstones=[{**decision(1, "topic_deleted", 1, None), "topic": "removed", "outcome": "planned"}],
    )


CLOCK = {  # of each group and topic: kept by, clock, days before NOW
    ("connect", "old"): ("active_group", "commit_timestamp", 9),
    ("consumer", "old"): (None, "commit_timestamp", 2),
    ("consumer", "orders"): ("subscribed", "commit_timestamp", 9),
    ("empty", "old"): (None, "state_timestamp", 2),
    ("explicit", "old"): (None, "expire_timestamp", 0),
    ("fast", "t"): (None, "commit_timestamp", 0),
    ("ghost", "old"): ("no_group", "commit_timestamp", 9),
    ("held", "old"): ("pending_transaction", "commit_timestamp", 9),
    ("member", "old"): (None, "commit_timestamp", 10),
    ("member", "orders"): ("subscribed", "commit_timestamp", 9),
    ("rebalancing", "old"): ("active_group", "commit_timestamp", 9),
    ("share", "old"): ("share_group", "commit_timestamp", 9),
    ("simple", "orders"): (None, "commit_timestamp", 8),
    ("slow", "t"): (None, "commit_timestamp", 0),
    ("stalled", "t"): (None, "commit_timestamp", 0),
}


def test_retention_clocks(present: Lake) -> None:
    rows = asked(present, "retention_clocks", ("group_id", "topic", "kept_by", "clock", "clock_timestamp"))
    found = {(row[0], row[1]): (row[2], row[3], round((NOW - int(str(row[4]))) / DAY)) for row in rows}
    assert found == CLOCK


def test_retention_clocks_are_those_that_expire_judges_by(present: Lake) -> None:
    offsets, pending = (present.query(f"SELECT * FROM {table}", table) for table in ("offsets", "pending_offsets"))
    groups = Groups(present.query("SELECT * FROM groups", "groups"))
    judged = verdicts(offsets, groups, pending, NOW, np.zeros(offsets.num_rows, np.int64))
    expected = {
        (row["group_id"], row["topic"]): (None if expires else RULES[rule], CLOCKS[clock])
        for row, expires, rule, clock in zip(
            offsets.to_pylist(), judged.expires, judged.rule, judged.clock, strict=True
        )
    }
    assert expected == {key: (kept_by, clock) for key, (kept_by, clock, _) in CLOCK.items()}


def test_expiring_soon(present: Lake) -> None:
    columns = ("group_id", "topic", "expires_timestamp", "remaining_ms", "clock")
    assert asked(present, "expiring_soon", columns, "expires_timestamp < 46 * 86400000") == [
        ("member", "old", NOW - 3 * DAY, -3 * DAY, "commit_timestamp"),
        ("simple", "orders", NOW - DAY, -DAY, "commit_timestamp"),
        ("explicit", "old", NOW - 5, -5, "expire_timestamp"),
        ("consumer", "old", NOW + 5 * DAY, 5 * DAY, "commit_timestamp"),
        ("empty", "old", NOW + 5 * DAY, 5 * DAY, "state_timestamp"),
    ]


def test_retention_what_if(present: Lake) -> None:
    columns = ("group_id", "offsets", "kept", *(f"gone_with_{days}d" for days in (1, 3, 7, 14, 30)))
    found = asked(present, "retention_what_if", columns, "gone_with_1d > 0 OR kept > 0")
    assert found == [
        ("explicit", 1, 0, 1, 1, 1, 1, 1),
        ("member", 2, 1, 1, 1, 1, 0, 0),
        ("simple", 1, 0, 1, 1, 1, 0, 0),
        ("consumer", 2, 1, 1, 0, 0, 0, 0),
        ("empty", 1, 0, 1, 0, 0, 0, 0),
        *((name, 1, 1, 0, 0, 0, 0, 0) for name in ("connect", "ghost", "held", "rebalancing", "share")),
    ]


def test_hanging_transactions(present: Lake) -> None:
    columns = ("producer_id", "group_id", "first_log_offset", "age_ms", "topics", "offsets")
    assert asked(present, "hanging_transactions", columns) == [
        (7, "held", 91, 3 * DAY, 2, 2),
        (7, "other", 93, DAY, 1, 1),
    ]


def test_idle_groups(present: Lake) -> None:
    columns = ("group_id", "state", "member_count", "offsets", "idle_ms")
    found = asked(present, "idle_groups", columns)
    assert found[:2] == [("explicit", "Empty", 0, 1, 30 * DAY), ("empty", "Empty", 0, 1, 20 * DAY)]
    assert ("member", "Stable", 1, 2, 9 * DAY) in found
    assert ("ghost", None, None, 1, 9 * DAY) in found
    assert len(found) == 13


def test_orphan_groups(present: Lake) -> None:
    columns = ("group_id", "why", "topics", "deleted_topics", "unsubscribed_topics", "offsets")
    nobody = ("empty", "explicit", "fast", "held", "share", "slow", "stalled")
    assert sorted(asked(present, "orphan_groups", columns), key=str) == sorted(
        [
            ("ghost", "group_gone", 1, 0, 0, 1),
            ("member", "not_subscribed", 2, 0, 1, 2),
            ("consumer", "not_subscribed", 2, 0, 1, 2),
            ("rebalancing", "not_subscribed", 1, 0, 1, 1),
            ("connect", "not_subscribed", 1, 0, 1, 1),
            *((name, "nobody_reads", 1, 0, 1, 1) for name in nobody),
        ],
        key=str,
    )


def test_stalled_partitions(present: Lake) -> None:
    columns = ("group_id", "committed_offset", "known_behind", "commits", "since_timestamp", "stalled_ms")
    assert asked(present, "stalled_partitions", columns) == [("stalled", 5, 45, 3, NOW - 8000, 5000)]


def test_commit_rate(present: Lake) -> None:
    columns = ("day_timestamp", "commits", "redundant", "busiest_hour_timestamp", "busiest_hour_commits")
    assert asked(present, "commit_rate", columns, "group_id = 'rate'") == [
        (3 * DAY, 5, 3, 3 * DAY, 3),
        (4 * DAY, 1, 1, 4 * DAY, 1),
    ]


def test_log_growth(present: Lake) -> None:
    columns = ("day_timestamp", "records", "commits", "tombstones", "group_records")
    assert asked(present, "log_growth", columns, "group_id = 'rate'") == [
        (3 * DAY, 5, 5, 0, 0),
        (4 * DAY, 3, 1, 1, 1),
    ]


def test_log_clock(present: Lake) -> None:
    assert asked(present, "log_clock", ["clock_timestamp"]) == [(NOW,)]


@pytest.mark.parametrize("view", views())
def test_a_view_has_the_columns_its_file_tells_of(present: Lake, view: str) -> None:
    of_view = views()[view]
    found = present.query(f"SELECT * FROM {view} WHERE {of_view.since} >= 0 ORDER BY {of_view.order}", view)
    assert found.column_names == [*of_view.columns]
    assert of_view.answers
    assert ";" not in of_view.select


def test_views_take_what_they_build_on() -> None:
    tables, made = needed(["regressions"])
    assert tables == {"offset_commits", "transaction_markers", "group_records", "tombstones", "alterations"}
    assert [view.name for view in made][-2:] == ["changes", "regressions"]
    assert needed(["offsets"]) == ({"offsets"}, [])
    assert not views().keys() & {*TABLES}


def test_views_are_in_every_select(present: Lake, tmp_path: Path) -> None:
    found = present.query("SELECT count(*) AS n FROM offsets CROSS JOIN log_clock")
    assert found.to_pylist() == [{"n": 15}]
    assert small_lake(tmp_path / "empty").query("SELECT * FROM changes").num_rows == 0
