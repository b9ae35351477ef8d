"""The clock of a log in which some records have timestamps that no clock can have shown."""

from pathlib import Path

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.queries.audits import audit
from offsetlake.queries.log_clock import first_instant, newest_instant, wrong_clocks
from offsetlake.queries.questions import transactions
from offsetlake.util.times import to_iso, to_ms
from offsetlake.web.report.words import day, instant
from support.command_line import Run
from support.queries.lakes import Row, commit, small_lake

NOW = to_ms("2026-11-21T06:00")
HOUR, DAY = 3_600_000, 86_400_000
WRONG = {
    "of 2099": to_ms("2099-01-01"),
    "in microseconds": 1000 * NOW,
    "in nanoseconds": 1_000_000 * NOW,
    "the largest": 2**63 - 1,
    "of the year 10000": 253_402_300_800_000,
}
RUNS = [{"run_id": 1, "job": "ingest", "started_at": NOW + 1000, "finished_at": NOW + 2000}]


def at(log_offset: int, group_id: str, timestamp: int) -> Row:
    return commit(log_offset, 1, group_id=group_id, log_timestamp=timestamp, commit_timestamp=timestamp)


def lake_of(folder: Path, wrong: int, runs: list[Row]) -> Lake:
    commits = [at(1, "old", NOW - 3 * DAY), at(2, "living", NOW - HOUR), at(3, "wrong", wrong), at(4, "living", NOW)]
    stored = [{**row, "kind": None} for row in (commits[0], commits[2], commits[3])]
    offsets = [{name: value for name, value in row.items() if name in _STORED} for row in stored]
    groups = [{"group_id": name} for name in ("old", "living", "wrong")]
    return small_lake(folder / "lake", offset_commits=commits, offsets=offsets, groups=groups, runs=runs)


_STORED = ("group_id", "topic", "partition", "committed_offset", "commit_timestamp", "log_offset", "log_timestamp")


@pytest.mark.parametrize("wrong", WRONG.values(), ids=[*WRONG])
def test_timestamp_after_its_record_was_read_is_not_the_clock(tmp_path: Path, wrong: int) -> None:
    lake = lake_of(tmp_path, wrong, RUNS)
    assert newest_instant(lake) == NOW
    idle = {row["group_id"]: row["idle_ms"] for row in audit(lake, "idle_groups").to_pylist()}
    assert idle == {"old": 3 * DAY, "living": 0, "wrong": 0}
    assert [row["group_id"] for row in audit(lake, "orphan_groups").to_pylist()] == ["old"]
    (named,) = wrong_clocks(lake).to_pylist()
    assert (named["group_id"], named["records"], named["greatest_timestamp"]) == ("wrong", 1, wrong)


def test_timestamp_before_the_epoch_is_named_and_no_evidence_of_disuse(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, -5000, RUNS)
    assert newest_instant(lake) == NOW
    assert [row["group_id"] for row in audit(lake, "orphan_groups").to_pylist()] == ["old"]
    assert [row["group_id"] for row in wrong_clocks(lake).to_pylist()] == ["wrong"]


@pytest.mark.parametrize(
    ("finished_at", "clock"),
    [
        (NOW + 365 * DAY, NOW + 2 * HOUR),  # read long after: a record of two hours later is possible
        (NOW + 2 * HOUR, NOW + 2 * HOUR),
        (NOW, NOW),
        (NOW - 30 * DAY, NOW + 2 * HOUR),  # the clock of the ingest was wrong: no record is plausible
        (5000, NOW + 2 * HOUR),
    ],
)
def test_clock_depends_on_when_records_were_read(tmp_path: Path, finished_at: int, clock: int) -> None:
    runs = [{"run_id": 1, "job": "ingest", "started_at": 0, "finished_at": finished_at}]
    assert newest_instant(lake_of(tmp_path, NOW + 2 * HOUR, runs)) == clock


@pytest.mark.parametrize("wrong", [*WRONG.values(), -5000, -(2**63)], ids=[*WRONG, "negative", "the smallest"])
def test_report_names_wrong_timestamps(tmp_path: Path, run: Run, wrong: int) -> None:
    lake = lake_of(tmp_path, wrong, RUNS)
    code, _, err = run("report", "--lake", str(lake.location.path), "--to", "report.html")
    assert code == 0, err
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"wrong: {to_iso(wrong)}" in page
    assert "groups with wrong timestamps" in page


@pytest.mark.parametrize("ms", [2**63 - 1, -(2**63), 10**16])
def test_instant_outside_of_all_years_is_a_number_in_the_report(ms: int) -> None:
    assert (day(ms), instant(ms)) == (str(ms), str(ms))


@pytest.mark.parametrize("wrong", [*WRONG.values(), -5000, -(2**63)], ids=[*WRONG, "negative", "the smallest"])
def test_open_transaction_has_no_age_of_a_wrong_clock_and_is_listed(tmp_path: Path, run: Run, wrong: int) -> None:
    lake = lake_of(tmp_path, wrong, RUNS)
    value = {"topic": "t", "partition": 0, "committed_offset": 1, "group_id": "living"}
    pending = [
        {**value, "log_offset": 5, "log_timestamp": wrong, "producer_id": 7},
        {**value, "log_offset": 6, "log_timestamp": NOW - HOUR, "producer_id": 8},
        {**value, "log_offset": 7, "log_timestamp": wrong, "producer_id": 8, "topic": "u"},
    ]
    small_lake(lake.location.path, pending_offsets=pending)
    expected = {7: (wrong, None), 8: (NOW - HOUR, HOUR)}
    for rows in (transactions(lake, NOW), transactions(lake, NOW, HOUR), audit(lake, "hanging_transactions")):
        assert {row["producer_id"]: (row["first_timestamp"], row["age_ms"]) for row in rows.to_pylist()} == expected
    assert [row["producer_id"] for row in transactions(lake, NOW, HOUR + 1).to_pylist()] == [7]
    code, out, err = run("transactions", "--lake", str(lake.location.path), "--open-longer-than", "15m")
    assert (code, out.count("living")) == (0, 2), err


@pytest.mark.parametrize("wrong", [-5000, -(2**63)])
def test_history_does_not_begin_before_the_epoch(tmp_path: Path, wrong: int) -> None:
    assert first_instant(lake_of(tmp_path / "some", wrong, RUNS)) == NOW - 3 * DAY
    lake = small_lake(tmp_path / "all" / "lake", offset_commits=[at(1, "wrong", wrong)], runs=RUNS)
    assert first_instant(lake) == wrong
