"""The views of history, on any log, compared with a replay in plain Python and with `offsets_as_of`."""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import SPILLING
from offsetlake.lake.sql.portions import portions
from offsetlake.lake.sql.views import needed, views
from offsetlake.queries import audits
from offsetlake.queries.history.as_of import offsets_as_of
from support.oracle.log_reader import LogRecord
from support.oracle.random_logs import RandomLog, random_log
from support.oracle.replay import OffsetKey, replay
from support.queries.lakes import Row, commit, history_of, marker, small_lake, tombstone

Made = tuple[Lake, list[LogRecord]]


def rows(lake: Lake, sql: str, *names: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in lake.query(sql, *names).to_pylist()]


Step = tuple[OffsetKey, int, int, int | None, int | None]


def _steps_by_replay(records: list[LogRecord]) -> list[Step]:
    """(key, log partition, log offset, old, new) of each change: the log is replayed up to every record of it."""
    found: list[Step] = []
    for partition in {record.log_partition for record in records}:
        of_partition = [record for record in records if record.log_partition == partition]
        before = replay([]).committed
        for end, record in enumerate(of_partition, start=1):
            now = replay(of_partition[:end]).committed
            for key in before.keys() | now.keys():
                old, new = before.get(key), now.get(key)
                if old != new:
                    values = (each.committed_offset if each else None for each in (old, new))
                    found.append((key, partition, record.log_offset, *values))
            before = now
    return sorted(found, key=str)


def _by_the_clock(log: RandomLog, *, exactly: bool) -> RandomLog:
    """The same log with its markers, or all its records, in the order of their timestamps."""
    plans = [replace(plan, tick=abs(plan.tick)) for plan in log.plans]
    if exactly:
        plans = [replace(plan, records=tuple(each._replace(delay=0) for each in plan.records)) for plan in plans]
    return replace(log, plans=tuple(plans))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Made]:
    """A lake and the records of its log, each made once: of transactions, or also of commits in parts."""

    @cache
    def making(in_parts: bool) -> Made:
        log = random_log(random.Random(5), 350, groups=4, topics=2, log_partitions=2, commit_ids=(7,) * in_parts)
        records = _by_the_clock(log, exactly=in_parts).records()
        return small_lake(tmp_path_factory.mktemp("views") / "lake", **history_of(records)), records

    return making


@pytest.mark.parametrize("in_parts", [False, True])
def test_outcomes_match_a_replay(made: Callable[[bool], Made], in_parts: bool) -> None:
    lake, records = made(in_parts)
    found = rows(lake, "SELECT log_partition, log_offset, outcome FROM commit_outcomes", "commit_outcomes")
    expected = [(e.record.log_partition, e.record.log_offset, e.outcome) for e in replay(records).history]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert {outcome for *_, outcome in found} > {None, *(("partial",) if in_parts else ("aborted", "committed"))}


@pytest.mark.parametrize("in_parts", [False, True])
def test_steps_match_replays_up_to_each_record(made: Callable[[bool], Made], in_parts: bool) -> None:
    lake, records = made(in_parts)
    sql = """SELECT group_id, topic, partition, log_partition, effective_log_offset, old_offset, new_offset
        FROM commit_steps WHERE old_offset IS NOT NULL OR new_offset IS NOT NULL"""  # a tombstone can take nothing
    found = [((*row[:3],), *row[3:]) for row in rows(lake, sql, "commit_steps")]
    assert sorted(found, key=str) == _steps_by_replay(records)


VERSIONS_AT = """
    SELECT group_id, topic, partition, committed_offset, log_offset, metadata, leader_epoch FROM offset_versions
    WHERE from_timestamp <= {0} AND (to_timestamp > {0} OR to_timestamp IS NULL) ORDER BY group_id, topic, partition"""


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=30)
@given(st.booleans(), st.data())
def test_versions_at_any_instant_match_offsets_as_of(
    made: Callable[[bool], Made], in_parts: bool, data: st.DataObject
) -> None:
    lake, records = made(in_parts)
    known = [*(entry.record for entry in replay(records).history), *replay(records).markers]
    times = sorted({each.log_timestamp for each in known if each.log_timestamp != -1})
    instant = data.draw(st.sampled_from(times)) + data.draw(st.sampled_from((0, 1)))
    columns = ["group_id", "topic", "partition", "committed_offset", "log_offset", "metadata", "leader_epoch"]
    expected = [tuple(row.values()) for row in offsets_as_of(lake, instant).select(columns).to_pylist()]
    assert rows(lake, VERSIONS_AT.format(instant), "offset_versions") == expected


VERSIONS: dict[str, tuple[list[Row], list[tuple[int, int, int | None]]]] = {
    "each until the next, or a tombstone": (
        [commit(1, 5), commit(2, 9), tombstone(4), commit(6, 7)],
        [(5, 1, 2), (9, 2, 4), (7, 6, None)],
    ),
    "a transaction's from its marker on": (
        [commit(11, 5), commit(12, 9, 7), commit(15, 6)],
        [(5, 11, 14), (9, 14, 15), (6, 15, None)],
    ),
    "one that was overtaken never": ([commit(21, 5), commit(22, 9, 7), commit(23, 6)], [(5, 21, 23), (6, 23, None)]),
    "aborted and open ones never": ([commit(31, 5), commit(32, 9, 7), commit(33, 8, 8)], [(5, 31, None)]),
    "parts from the last one on": (
        [commit(41, 5), commit(42, 6, commit_id=1, commit_size=2), commit(43, 9, commit_id=1, commit_size=2)],
        [(5, 41, 43), (6, 43, 43), (9, 43, None)],
    ),
    "missing parts never": ([commit(51, 5), commit(52, 6, commit_id=1, commit_size=2)], [(5, 51, None)]),
    "without a timestamp from ever": ([commit(61, 5, log_timestamp=None), commit(62, 6)], [(5, 0, 62), (6, 62, None)]),
}
MARKERS = [marker(14, "COMMIT", 7), marker(24, "COMMIT", 7), marker(34, "ABORT", 7)]


def test_versions(tmp_path: Path) -> None:
    commits = [{**row, "group_id": group_id} for group_id, (history, _) in VERSIONS.items() for row in history]
    lake = small_lake(tmp_path / "lake", offset_commits=commits, transaction_markers=MARKERS)
    for group_id, (_, expected) in VERSIONS.items():
        sql = f"""SELECT committed_offset, from_timestamp, to_timestamp FROM offset_versions
            WHERE group_id = '{group_id.replace("'", "''")}' ORDER BY from_timestamp, log_offset"""
        assert rows(lake, sql, "offset_versions") == expected, group_id


HISTORY = {"offset_commits", "transaction_markers", "group_records"}
IN_PARTS = [name for name, view in views().items() if view.by_log_partition and "offset_commits" in needed([name])[0]]


@pytest.mark.parametrize(
    ("name", "divided_by"),
    [
        *((name, "log partition") for name in IN_PARTS),
        *(pytest.param(name, "group", marks=() if name == "regressions" else pytest.mark.long) for name in IN_PARTS),
    ],
)
def test_view_computed_in_parts_has_the_same_rows(
    made: Callable[[bool], Made], name: str, divided_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, _ = made(True)
    order = views()[name].order
    whole = lake.query(f"SELECT * FROM {name} ORDER BY {order}", name).to_pylist()
    parts = portions({table: lake.delta_table(table) for table in needed([name])[0] & HISTORY}, 0, 1)
    rows_of_largest = max(part.rows for part in parts)
    for name_of_limit in ("ROWS_AT_ONCE", "AGGREGATED_AT_ONCE", "TURNING_AT_ONCE"):
        limit = rows_of_largest if divided_by == "log partition" else rows_of_largest // 3
        monkeypatch.setattr(audits, name_of_limit, limit)
    looked_at: list[tuple[int, int]] = []
    found = audits.audit(lake, name, advance=lambda done, total: looked_at.append((done, total)))
    assert len(parts) == 2
    assert (len(looked_at) == 2) if divided_by == "log partition" else (len(looked_at) >= 4)
    assert looked_at[-1][0] == looked_at[-1][1] > looked_at[0][0]

    def key(row: Row) -> Row:
        return {column: row[column] for column in re.findall(r"\w+", order) if column in row}

    def read(answer: Any) -> list[Row]:
        return pa.Table.from_batches(answer.to_batches(7), found.schema).to_pylist()

    rows_found = read(found)
    assert found.num_rows == len(whole)
    assert [key(row) for row in rows_found] == [key(row) for row in whole]
    assert sorted(map(str, rows_found)) == sorted(map(str, whole))
    assert [key(row) for row in read(found.slice(0, 3))] == [key(row) for row in whole[:3]]
    few = audits.audit(lake, name, limit=3)
    assert [key(row) for row in read(few)] == [key(row) for row in whole[:3]]


def test_only_the_part_with_a_large_group_is_sorted_in_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [*(["large"] * 30), *(f"small-{number}" for number in range(10))]
    commits = [commit(number, number + 1, group_id=group) for number, group in enumerate(groups)]
    lake = small_lake(tmp_path / "lake", offset_commits=commits)
    monkeypatch.setattr(audits, "TURNING_AT_ONCE", 10)
    large: list[int] = []

    def settings_of_large_part() -> Mapping[str, str]:
        large.append(len(parts))
        return SPILLING

    monkeypatch.setattr(audits, "spilling", settings_of_large_part)
    parts: list[int] = []
    audits.audit(lake, "regressions", advance=lambda done, _: parts.append(done))
    assert len(parts) > 1
    assert large == [0]  # the first part, by the names of the groups


@pytest.mark.parametrize("name", [name for name, view in views().items() if view.outcomes_order])
@pytest.mark.parametrize("in_parts", [False, True])
def test_first_rows_are_computed_from_the_history_of_their_keys(
    made: Callable[[bool], Made], in_parts: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, _ = made(in_parts)
    whole = lake.query(f"SELECT * FROM {name} ORDER BY {views()[name].order}", name).to_pylist()
    monkeypatch.setattr(audits, "_parts", lambda *_arguments: pytest.fail("the whole view was computed"))
    for limit in (1, 4, 20):
        assert audits.audit(lake, name, limit=limit).to_pylist() == whole[:limit]
    topic = whole[-1]["topic"]
    found = audits.audit(lake, name, topic=topic, limit=4)
    assert found.to_pylist() == [row for row in whole if row["topic"] == topic][:4]


def test_first_rows_are_computed_from_all_history_if_too_many_commits_never_took_effect(tmp_path: Path) -> None:
    overtaken = [commit(offset, 1, 7, topic=f"t{offset}") for offset in range(10, 40)]
    newer = [commit(offset + 100, 2, topic=f"t{offset}") for offset in range(10, 40)]
    lake = small_lake(
        tmp_path / "lake",
        offset_commits=[*overtaken, *newer, commit(1, 5)],
        transaction_markers=[marker(200, "COMMIT", 7)],
    )
    order = views()["commit_steps"].order
    whole = lake.query(f"SELECT * FROM commit_steps ORDER BY {order}", "commit_steps").to_pylist()
    assert audits.audit(lake, "commit_steps", limit=2).to_pylist() == whole[:2]


@pytest.mark.parametrize("name", IN_PARTS)
def test_view_of_named_groups_reads_only_their_history(made: Callable[[bool], Made], name: str) -> None:
    lake, _ = made(True)
    order = views()[name].order
    whole = lake.query(f"SELECT * FROM {name} ORDER BY {order}", name).to_pylist()
    ((group_id,), *_) = rows(lake, "SELECT max(group_id) FROM offset_commits", "offset_commits")
    assert isinstance(group_id, str)
    found = audits.audit(lake, name, group_id.replace("[", "[[]"))
    assert sorted(map(str, found.to_pylist())) == sorted(str(row) for row in whole if row["group_id"] == group_id)
