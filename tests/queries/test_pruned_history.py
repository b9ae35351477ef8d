"""Questions about some groups and instants read only the files that may contain their records.

The other files are removed from the disk, so that a query that opens one of them fails.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from offsetlake.lake.files import FileChanges, TableFile, active_files, commit
from offsetlake.lake.history.group_places import condition_if_known
from offsetlake.lake.history.history_files import TIMED_TABLES, history_files
from offsetlake.lake.lake import Lake
from offsetlake.queries.history.deleted import deleted_offsets
from offsetlake.queries.history.replayed import replayed
from offsetlake.queries.lag import lag_of_partitions
from offsetlake.queries.log_clock import first_instant
from offsetlake.queries.questions import history
from offsetlake.queries.selection import log_partitions_like, log_partitions_of
from support.queries.lakes import Row, end, marker, small_lake, tombstone
from support.queries.lakes import commit as committed

DEFAULTS = {"superseded": False, "record_type": 1, "coordinator_epoch": 0, "producer_epoch": 0}
ROWS: list[Row] = [
    committed(10, 1, group_id="a", log_partition=0, commit_timestamp=10),
    committed(20, 2, group_id="a", log_partition=0, commit_timestamp=20),
    tombstone(21, group_id="a", log_partition=0, topic="u"),
    committed(10, 3, group_id="z", log_partition=4, commit_timestamp=10),
]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with one file per record."""
    markers = [marker(5, "COMMIT", 1, log_partition=partition) for partition in (0, 4)]
    made = small_lake(tmp_path / "lake", log_ends=[end(9, 50)])
    for run, (table, row) in enumerate(
        [*(("offset_commits", row) for row in ROWS), *(("transaction_markers", row) for row in markers)], start=1
    ):
        file = TableFile(made, table)
        file.write_rows([{**DEFAULTS, **row, "ingest_run": run}])
        commit(made, table, [FileChanges(file.close())], "test", run)
    return made


def remove(lake: Lake, table: str, column: str, value: int) -> None:
    """Remove the files whose rows have at least this value."""
    for file in active_files(lake, table):
        if file[f"min.{column}"] >= value:
            (lake.table_location(table).path / file["path"]).unlink()


def offsets(lake: Lake, instant_ms: int, group_id: str | None = None) -> list[int]:
    columns = ["group_id", "topic", "partition", "committed_offset"]
    parts = [part for (part,) in replayed(lake, [instant_ms], {"group_id": group_id}, columns, lambda *_: None)]
    return sorted(offset for part in parts for offset in part["committed_offset"].to_pylist())


def test_as_of_reads_no_later_files(lake: Lake) -> None:
    assert offsets(lake, 20) == [2, 3]
    remove(lake, "offset_commits", "log_timestamp", 20)
    assert offsets(lake, 19) == [1, 3]


def test_beginning_of_history_is_found_without_reading_it(lake: Lake) -> None:
    assert first_instant(lake) == 5
    for table in TIMED_TABLES:
        remove(lake, table, "log_timestamp", 0)
    assert first_instant(lake) == 5


def test_beginning_of_history_is_found_in_files_without_statistics(lake: Lake) -> None:
    file = TableFile(lake, "offset_commits")
    row = {**DEFAULTS, **ROWS[0], "ingest_run": 9}
    file.write_rows([{**row, "log_timestamp": 4}, {**row, "log_offset": 31, "log_timestamp": None}])
    commit(lake, "offset_commits", [FileChanges([replace(action, stats="{}") for action in file.close()])], "test", 9)
    assert first_instant(lake) == 4


def test_history_without_timestamps_has_no_beginning(tmp_path: Path) -> None:
    lake = small_lake(tmp_path / "lake")
    assert first_instant(lake) is None
    file = TableFile(lake, "offset_commits")
    file.write_rows([{**DEFAULTS, **ROWS[0], "log_timestamp": None, "ingest_run": 1}])
    commit(lake, "offset_commits", [FileChanges(file.close())], "test", 1)
    assert first_instant(lake) is None


def test_records_without_timestamp_count_at_every_instant(lake: Lake) -> None:
    file = TableFile(lake, "offset_commits")
    row = {**DEFAULTS, **ROWS[0], "log_offset": 30, "committed_offset": 9, "ingest_run": 9}
    file.write_rows([{**row, "log_timestamp": 99}, {**row, "log_offset": 31, "log_timestamp": None}])
    commit(lake, "offset_commits", [FileChanges(file.close())], "test", 9)
    assert len(history_files(lake, "offset_commits", 9, 9, 19)) == 1
    assert offsets(lake, 19) == [3, 9]


def test_questions_about_groups_read_their_log_partitions(lake: Lake) -> None:
    assert log_partitions_of(lake, ["a"]) == [0]
    assert log_partitions_of(lake, []) == []
    assert log_partitions_of(lake, ["a", "z"]) == log_partitions_like(lake, "*") == [0, 4]
    for table in ("offset_commits", "transaction_markers"):
        remove(lake, table, "log_partition", 4)
    assert offsets(lake, 20, "a") == [2]
    assert history(lake, "a", "t", 0)["committed_offset"].to_pylist() == [2, 1]
    assert deleted_offsets(lake, ["a"]).num_rows == 0


def test_lag_of_a_pattern_reads_the_log_partitions_of_its_groups(lake: Lake) -> None:
    assert lag_of_partitions(lake, "a")["lag"].to_pylist() == [48]
    remove(lake, "transaction_markers", "log_partition", 4)
    assert lag_of_partitions(lake, "a")["lag"].to_pylist() == [48]


def test_log_partitions_of_many_groups_are_read_at_once(lake: Lake) -> None:
    known = {name: log_partitions_of(lake, [name]) for name in ("none", "a", "z")}
    for name in ("1", "2", "3", "4"):
        assert log_partitions_of(lake, [name]) == []
    assert {name: log_partitions_of(lake, [name]) for name in known} == known
    assert log_partitions_of(lake, ["a", "z"]) == [0, 4]
    assert log_partitions_of(lake, []) == []


def test_offsets_of_a_group_are_found_by_its_known_log_partition(lake: Lake) -> None:
    assert condition_if_known(lake, "a") == "true"
    for name in ("1", "2", "3", "4"):
        log_partitions_of(lake, [name])
    assert condition_if_known(lake, "a") == "log_partition IN (0)"
    assert condition_if_known(lake, "unknown") == "true"
