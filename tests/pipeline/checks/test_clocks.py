"""`check` names the records whose timestamps no clock can have shown when they were read."""

from pathlib import Path

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.pipeline.checks.clocks import wrong_timestamps
from offsetlake.util.times import to_iso, to_ms
from support.command_line import Run
from support.queries.lakes import Row, commit, marker, small_lake

NOW = to_ms("2026-11-21T06:00")
HOUR = 3_600_000
WRONG = {
    "of 2099": to_ms("2099-01-01"),
    "in microseconds": 1000 * NOW,
    "in nanoseconds": 1_000_000 * NOW,
    "before the epoch": -5000,
    "two hours after": NOW + 2 * HOUR,
}


def at(log_offset: int, timestamp: int | None, run: int = 1, **others: object) -> Row:
    commit_timestamp = others.pop("commit_timestamp", NOW)
    times = {"log_timestamp": timestamp, "commit_timestamp": commit_timestamp}
    return commit(log_offset, 1, group_id="payments", log_partition=7, ingest_run=run, **times, **others)


def ingest(run_id: int, finished_at: int = NOW) -> Row:
    return {"run_id": run_id, "job": "ingest", "started_at": finished_at, "finished_at": finished_at}


def compaction(through_run: int) -> Row:
    times = {"started_at": NOW, "finished_at": NOW}
    return {**times, "run_id": through_run + 1, "job": "compact", "through_run": through_run}


def named(lake: Lake, since: int = 0) -> str:
    return wrong_timestamps(lake, lake.versions(*lake.tables()), since)


@pytest.mark.parametrize("wrong", WRONG.values(), ids=[*WRONG])
def test_record_is_named_with_its_position(tmp_path: Path, wrong: int) -> None:
    commits = [at(1, NOW - HOUR), at(2, wrong), at(3, NOW + HOUR), at(4, None)]
    lake = small_lake(tmp_path / "lake", offset_commits=commits, runs=[ingest(1)])
    assert named(lake).startswith("1 record has a timestamp that no clock can have shown")
    assert named(lake).endswith(f": __consumer_offsets-7 at log offset 2 of group 'payments' ({to_iso(wrong)})")


def test_records_of_every_table_are_named_and_counted(tmp_path: Path) -> None:
    wrong = WRONG["in microseconds"]
    of_group = {"log_offset": 2, "log_timestamp": wrong, "group_id": "payments", "record_name": "GroupMetadata"}
    of_share = {"log_offset": 9, "log_timestamp": wrong, "group_id": "share", "kind": "tombstone", "partition": 0}
    lake = small_lake(
        tmp_path / "lake",
        offset_commits=[at(1, NOW, commit_timestamp=wrong)],
        group_records=[{**of_group, "kind": "tombstone"}],
        transaction_markers=[marker(3, "COMMIT", 5) | {"log_timestamp": wrong}],
        share_state_records=[{**of_share, "topic_id": "AAAAAAAAAAAAAAAAAAAAAA"}],
        runs=[ingest(1)],
    )
    note = named(lake)
    assert note.startswith("4 records have timestamps")
    assert "__consumer_offsets-0 at log offset 2 of group 'payments'" in note
    assert "__consumer_offsets-0 at log offset 3 (" in note
    assert "__consumer_offsets-7 at log offset 1 of group 'payments'" in note
    assert note.endswith("; ...")


@pytest.mark.long
def test_gate_names_only_new_records_and_full_all(tmp_path: Path, run: Run) -> None:
    wrong = WRONG["of 2099"]
    commits = [at(1, wrong), at(2, NOW, run=3)]
    runs = [ingest(1), compaction(1), ingest(3), compaction(3)]
    lake = small_lake(tmp_path / "lake", offset_commits=commits, runs=runs)
    assert (named(lake, since=1), named(lake) != "") == ("", True)
    position = "__consumer_offsets-7 at log offset 1 of group 'payments' (2099-01-01T00:00:00.000Z)"
    where = ("--lake", str(lake.location.path))
    assert position in run("check", "--full", *where)[2]
    assert position not in run("check", *where)[2]


def test_a_suite_about_other_tables_names_none(tmp_path: Path, run: Run) -> None:
    lake = small_lake(tmp_path / "lake", offset_commits=[at(1, NOW)], runs=[ingest(1), compaction(1)])
    code, _, err = run("check", "--gate", "--suite", "after_emit", "--lake", str(lake.location))
    assert (code, "Traceback" in err) == (0, False), err


def test_time_of_the_read_is_ignored_if_its_clock_was_wrong(tmp_path: Path) -> None:
    lake = small_lake(tmp_path / "lake", offset_commits=[at(1, NOW)], runs=[ingest(1, finished_at=5000)])
    assert not named(lake)
