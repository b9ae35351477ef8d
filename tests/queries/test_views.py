"""Each view on rows written by hand, and the description in its file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from offsetlake.lake.definitions import TABLES
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.views import needed, views
from offsetlake.rules.retention import CLOCKS, RULES, GroupFacts, evaluate
from support.queries.lakes import small_lake
from support.queries.view_rows import DAY, HISTORY, NOW, ODD, PRESENT, RECENT


def asked(lake: Lake, view: str, columns: Sequence[str], where: str = "true") -> list[tuple[object, ...]]:
    """Some columns of a view, in its order."""
    sql = f"SELECT * FROM {view} WHERE {where} ORDER BY {views()[view].order}"
    return [tuple(row[name] for name in columns) for row in lake.query(sql, view).to_pylist()]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return small_lake(tmp_path_factory.mktemp("views") / "lake", **HISTORY)


@pytest.fixture(scope="module")
def present(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return small_lake(tmp_path_factory.mktemp("views") / "lake", **PRESENT)


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
        ("reset by a tool", 234, 236, 234),
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
        ("two after a reset", 1, 30, 30, 223, 223),
    ]


def test_double_writers(history: Lake) -> None:
    columns = ("group_id", "turns", "producers", "last_timestamp", "last_log_offset")
    assert asked(history, "double_writers", columns) == [
        ("two members", 2, 0, 174, 174),
        ("two after a reset", 1, 0, 224, 224),
        ("two producers", 1, 2, 155, 154),
    ]


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


def test_retention_clocks_match_those_of_expire(present: Lake) -> None:
    offsets, pending = (present.query(f"SELECT * FROM {table}", table) for table in ("offsets", "pending_offsets"))
    groups = GroupFacts(present.query("SELECT * FROM groups", "groups"))
    evaluated = evaluate(offsets, groups, pending, NOW, np.zeros(offsets.num_rows, np.int64))
    expected = {
        (row["group_id"], row["topic"]): (None if expires else RULES[rule], CLOCKS[clock])
        for row, expires, rule, clock in zip(
            offsets.to_pylist(), evaluated.expires, evaluated.rule, evaluated.clock, strict=True
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


def test_retention_of_commits_with_extreme_timestamps(tmp_path: Path) -> None:
    lake = small_lake(tmp_path / "lake", **ODD, offset_commits=PRESENT["offset_commits"])
    found = asked(lake, "expiring_soon", ("topic", "expires_timestamp"))
    assert found == [("past", -(2**63) + 7 * DAY), ("future", 2**63 - 1)]
    assert asked(lake, "retention_what_if", ("offsets", "gone_with_30d")) == [(2, 1)]


def test_hanging_transactions(present: Lake) -> None:
    columns = ("producer_id", "group_id", "first_log_offset", "age_ms", "topics", "offsets")
    assert asked(present, "hanging_transactions", columns) == [
        (7, "held", 91, 3 * DAY, 2, 2),
        (7, "other", 93, DAY, 1, 1),
    ]


def test_views_of_share_partitions(present: Lake) -> None:
    cold = asked(present, "cold_share_partitions", ("partition", "start_offset", "in_flight_records", "idle_ms"))
    assert cold == [(1, None, None, 7000), (0, 10, 20, 1000)]
    poison = asked(present, "poison_records", ("partition", "redelivered_records", "max_delivery_count"))
    assert poison == [(0, 4, 5)]
    columns = ("partitions", "known_records", "deliveries", "archived_records", "redelivery_rate")
    assert asked(present, "redelivery_rates", columns) == [(2, 16, 26, 1, 0.25)]
    columns = ("partition", "start_offset", "completed_records", "since_timestamp", "stalled_ms")
    assert asked(present, "stalled_share_partitions", columns) == [(0, 10, 11, NOW - 8000, 8000)]


def test_idle_groups(present: Lake) -> None:
    columns = ("group_id", "state", "member_count", "offsets", "idle_ms")
    found = asked(present, "idle_groups", columns)
    assert found[:2] == [("explicit", "Empty", 0, 1, 30 * DAY), ("empty", "Empty", 0, 1, 20 * DAY)]
    assert ("member", "Stable", 1, 2, 9 * DAY) in found
    assert ("ghost", None, None, 1, 9 * DAY) in found
    assert len(found) == 13


def test_orphan_groups(tmp_path: Path) -> None:
    """Those of RECENT are not orphans, but for an offset of a topic that was removed eight days ago."""
    both = {table: [*rows, *RECENT.get(table, [])] for table, rows in PRESENT.items()}
    columns = ("group_id", "why", "topics", "deleted_topics", "unsubscribed_topics", "offsets")
    found = asked(small_lake(tmp_path / "lake", **both), "orphan_groups", (*columns, "since_timestamp", "idle_ms"))
    assert {NOW - int(str(row[-2])) - int(str(row[-1])) for row in found} == {0}
    assert [(*row[:6], int(str(row[-1])) / DAY) for row in found] == [
        ("consumer", "not_subscribed", 2, 0, 1, 2, 2),
        ("member", "not_subscribed", 2, 0, 1, 2, 10),
        ("of a removed topic", "topics_deleted", 2, 1, 1, 2, 8),
        ("connect", "not_subscribed", 1, 0, 1, 1, 9),
        ("empty", "no_members", 1, 0, 1, 1, 20),
        ("explicit", "no_members", 1, 0, 1, 1, 30),
        ("ghost", "group_gone", 1, 0, 0, 1, 9),
        ("held", "no_members", 1, 0, 1, 1, 9),
        ("rebalancing", "not_subscribed", 1, 0, 1, 1, 9),
        ("share", "no_members", 1, 0, 1, 1, 9),
    ]


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
def test_view_has_the_columns_of_its_file(present: Lake, view: str) -> None:
    of_view = views()[view]
    found = present.query(f"SELECT * FROM {view} WHERE {of_view.since} >= 0 ORDER BY {of_view.order}", view)
    assert found.column_names == [*of_view.columns]
    assert of_view.answers
    assert ";" not in of_view.select


def test_views_need_the_tables_they_are_built_on() -> None:
    tables, made = needed(["regressions"])
    assert tables == {"offset_commits", "transaction_markers", "group_records", "alterations"}
    assert [view.name for view in made][-2:] == ["turning_points", "regressions"]
    assert needed(["offsets"]) == ({"offsets"}, [])
    assert not views().keys() & {*TABLES}


def test_every_select_can_name_views(present: Lake, tmp_path: Path) -> None:
    found = present.query("SELECT count(*) AS n FROM offsets CROSS JOIN log_clock")
    assert found.to_pylist() == [{"n": 15}]
    assert small_lake(tmp_path / "empty").query("SELECT * FROM changes").num_rows == 0
