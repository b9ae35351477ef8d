"""Offsets from before a record, by its log position, and the instant at which they were in force."""

from pathlib import Path
from typing import Any

import pytest

from offsetlake.errors import BadRequest
from offsetlake.queries.exploring.before_change import start_of_change
from offsetlake.queries.history.before import LogPosition, instant_before, offsets_before, parse_position
from support.queries.lakes import commit, marker, small_lake, tombstone

TIME = {"log_timestamp": 1000}


def offsets(path: Path, log_offset: int, **tables: Any) -> dict[int, int]:
    lake = small_lake(path / "lake", **tables)
    rows = offsets_before(lake, LogPosition(0, log_offset), "g").to_pylist()
    return {row["partition"]: row["committed_offset"] for row in rows}


@pytest.mark.parametrize(
    ("log_offset", "expected"),
    [(0, {}), (1, {0: 10}), (2, {0: 10, 1: 70}), (3, {0: 5, 1: 70}), (4, {1: 70}), (9, {0: 20, 1: 70})],
)
def test_records_of_one_millisecond_are_told_apart(tmp_path: Path, log_offset: int, expected: dict[int, int]) -> None:
    commits = [
        commit(0, 10, superseded=True, **TIME),
        commit(1, 70, partition=1, **TIME),
        commit(2, 5, superseded=True, **TIME),
        tombstone(3, superseded=True, **TIME),
        commit(4, 20, **TIME),
        commit(5, 1, group_id="other", **TIME),
        commit(6, 1, log_partition=1, **TIME),
    ]
    assert offsets(tmp_path, log_offset, offset_commits=commits) == expected


@pytest.mark.parametrize(
    ("log_offset", "expected"), [(1, {0: 10}), (2, {0: 10}), (3, {0: 10, 1: 7}), (4, {0: 5, 1: 7})]
)
def test_a_commit_of_a_transaction_counts_from_its_marker_on(
    tmp_path: Path, log_offset: int, expected: dict[int, int]
) -> None:
    commits = [commit(0, 10), commit(1, 5, producer_id=1), commit(2, 7, partition=1)]
    markers = [marker(3, "COMMIT", 1)]
    assert offsets(tmp_path, log_offset, offset_commits=commits, transaction_markers=markers) == expected
    lake = small_lake(tmp_path / "lake")
    record = {"log_partition": 0, "log_offset": 1, "producer_id": 1, "event": "reset_back"}
    assert start_of_change(lake, record, None) == (0, 3)


@pytest.mark.parametrize(
    ("times", "instant"),
    [((1, 2, 3, 4), 2), ((1, 3, 3, 4), None), ((1, 2, 3, 2), None), ((5, 2, 3, 4), None), ((None, 2, 3, 4), 2)],
)
def test_an_instant_stands_for_a_position_only_if_it_separates_the_records(
    tmp_path: Path, times: tuple[int | None, ...], instant: int | None
) -> None:
    commits = [commit(n, n, partition=n, log_timestamp=time) for n, time in enumerate(times)]
    lake = small_lake(tmp_path / "lake", offset_commits=commits)
    assert instant_before(lake, LogPosition(0, 2), "g", 3) == instant


def test_a_position_before_history_is_refused(tmp_path: Path) -> None:
    cut = {"run_id": 2, "scope": "history", "through_run": 1, "begins_timestamp": 1000}
    commits = [commit(1, 5, log_timestamp=900), commit(2, 6, log_timestamp=1100)]
    lake = small_lake(tmp_path / "lake", offset_commits=commits, history_cuts=[cut])
    with pytest.raises(BadRequest, match="history begins at 1970-01-01T00:00:01"):
        offsets_before(lake, LogPosition(0, 1), "g")
    assert offsets_before(lake, LogPosition(0, 2), "g")["committed_offset"].to_pylist() == [5]


@pytest.mark.parametrize("text", ["", "9", "9:", ":4", "9:-1", "x:1", "9:1:2"])
def test_invalid_positions_are_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="Invalid log position"):
        parse_position(text)
