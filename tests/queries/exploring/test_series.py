"""The offset of a partition over time: what remains of it after sampling, its marks, its log ends and its lag."""

from pathlib import Path
from random import Random

from offsetlake.lake.lake import Lake
from offsetlake.queries.exploring.series import DENSITY_BINS, MAX_BUCKETS, MAX_MARKS, notable_changes, series
from support.queries.lakes import commit, end, marker, small_lake, tombstone

COMMITS = 20_000


def values(steps: object) -> list[tuple[int, int | None]]:
    columns = (steps[name].to_pylist() for name in ("effective_timestamp", "new_offset"))  # type: ignore[index]
    return list(zip(*columns, strict=True))


def test_a_sample_has_every_regression_and_the_extremes_of_each_bucket(tmp_path: Path) -> None:
    random, offset, rows, back = Random(7), 0, [], {}
    for n in range(COMMITS):
        is_back = n > 0 and random.random() < 0.005
        moved = offset - random.randrange(1, 50) if is_back else offset + random.randrange(5)
        if moved < offset:
            back[n] = (offset, moved)
        offset = moved
        rows.append(commit(n, offset, log_timestamp=10 * n))
    lake = small_lake(tmp_path, offset_commits=rows)
    shown = series(lake, "g", "t", 0)
    assert shown.commits == COMMITS
    assert shown.steps.num_rows <= 4 * MAX_BUCKETS + len(back)
    marks = {mark["log_offset"]: (mark["old_offset"], mark["new_offset"]) for mark in shown.marks.to_pylist()}
    assert (marks, shown.more_marks) == (back, 0)
    assert {*back} <= {*shown.steps["log_offset"].to_pylist()}
    kept = dict(values(shown.steps))
    length = 10 * COMMITS // MAX_BUCKETS
    for start in range(0, 10 * (COMMITS - 1), length):
        inside = [row["committed_offset"] for row in rows if start <= row["log_timestamp"] < start + length]
        sample = [value for at, value in kept.items() if start - length <= at < start + 2 * length]
        assert min(sample) <= min(inside)  # type: ignore[type-var]
        assert max(sample) >= max(inside)  # type: ignore[type-var]
    assert (len(shown.density), int(shown.density.sum())) == (DENSITY_BINS, COMMITS)


def test_a_period_has_the_value_at_its_beginning(tmp_path: Path) -> None:
    lake = small_lake(tmp_path, offset_commits=[commit(n, n * n, log_timestamp=1000 * n) for n in range(10)])
    shown = series(lake, "g", "t", 0, 3500, 6000)
    assert values(shown.steps) == [(3000, 9), (4000, 16), (5000, 25), (6000, 36)]
    assert (shown.commits, shown.period) == (3, (3500, 6000))


def test_transactions_and_tombstones(tmp_path: Path) -> None:
    rows = [commit(1, 10), commit(2, 20, producer_id=5), tombstone(3), commit(6, 15, producer_id=6), commit(8, 12)]
    markers = [marker(4, "COMMIT", 5), marker(7, "ABORT", 6)]
    shown = series(small_lake(tmp_path, offset_commits=rows, transaction_markers=markers), "g", "t", 0)
    assert values(shown.steps) == [(1, 10), (3, None), (8, 12)]
    assert [(mark["change"], mark["old_offset"], mark["new_offset"]) for mark in shown.marks.to_pylist()] == [
        ("delete", 10, None)
    ]


def test_marks_have_their_authors_and_only_the_largest_are_kept(tmp_path: Path) -> None:
    steps = [offset for n in range(MAX_MARKS + 20) for offset in (10_000, 10_000 - n - 1)]
    events = [
        {"log_offset": 2 * MAX_MARKS - 1, "last_log_offset": 2 * MAX_MARKS, "client_id": "app"},
        {"log_offset": 1, "last_log_offset": 1, "group_id": "other"},
    ]
    lake = small_lake(tmp_path, offset_commits=[commit(n, at) for n, at in enumerate(steps)], audit_events=events)
    shown = series(lake, "g", "t", 0)
    assert (shown.marks.num_rows, shown.more_marks) == (MAX_MARKS, 20)
    assert min(mark["old_offset"] - mark["new_offset"] for mark in shown.marks.to_pylist()) == 21
    assert {mark["log_offset"]: mark["client_id"] for mark in shown.marks.to_pylist() if mark["principal"]} == {
        2 * MAX_MARKS - 1: "app"
    }
    newest, total = notable_changes(lake, "g", None, 2 * MAX_MARKS - 1, 3)
    assert newest["log_offset"].to_pylist() == [2 * MAX_MARKS - 1, 2 * MAX_MARKS - 3, 2 * MAX_MARKS - 5]
    assert (newest["principal"].to_pylist(), total) == (["User:alice", None, None], MAX_MARKS)


def test_log_ends_have_the_lag_of_their_time(tmp_path: Path) -> None:
    rows = [commit(n, offset, log_timestamp=at) for n, (at, offset) in enumerate([(1500, 10), (3200, 40)])]
    ends = [end(1, 30, complete_run=1), end(2, 35, complete_run=1), end(4, 60, complete_run=1)]
    asks = [
        {"ingest_run": run, "asked_timestamp": 1000 * run, "complete_run": 1, "start_offset": None} for run in (1, 2, 4)
    ]
    lake = small_lake(tmp_path, offset_commits=rows, log_ends=[*ends, *asks])
    shown = series(lake, "g", "t", 0)
    assert shown.ends.to_pylist() == [
        {"asked_timestamp": 2000, "end_offset": 35, "lag": 25},
        {"asked_timestamp": 4000, "end_offset": 60, "lag": 20},
    ]
    assert shown.period == (1500, 4000)


def test_rebalances_are_those_of_the_group(tmp_path: Path) -> None:
    generation = {"record_name": "GroupMetadata", "kind": "value", "value": "{}"}
    records = [
        {**generation, "group_id": group, "log_offset": n, "log_timestamp": at}
        for n, (group, at) in enumerate([("g", 50), ("other", 60), ("g", 70), ("g", 500)])
    ]
    lake = small_lake(tmp_path, offset_commits=[commit(9, 1, log_timestamp=40), commit(10, 2, log_timestamp=90)],
                      group_records=records)  # fmt: skip
    assert series(lake, "g", "t", 0).rebalances.tolist() == [50, 70]
    assert isinstance(lake, Lake)


def test_a_partition_without_commits_is_empty(tmp_path: Path) -> None:
    shown = series(small_lake(tmp_path, offset_commits=[commit(1, 1)]), "g", "t", 7)
    assert (shown.commits, shown.steps.num_rows, shown.marks.num_rows) == (0, 0, 0)
