"""The views of turning points, on logs that are read in small chunks and several runs, against the whole history.

The expected rows are those of SELECTs that compare every commit with the one before it, without routine commits.
"""

from pathlib import Path
from typing import Any

import pytest

from support.queries.turning_points import compare_views, lake_of_steps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "runs"),
    [(1, 1), (2, 3), *(pytest.param(seed, seed % 4 + 1, marks=pytest.mark.long) for seed in range(3, 15))],
)
def test_views_of_turning_points_match_those_of_all_history(
    tmp_path: Path, seed: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of_steps(tmp_path, seed, runs, monkeypatch)
    compare_views(lake, {"regressions", "double_writers", "stalled_partitions", "commit_rate"})
    routine, every = (lake.count("offset_commits", condition) for condition in ("routine", "true"))
    assert routine > every / 5


@pytest.mark.long
@pytest.mark.slow
def test_baseline_of_dropped_history_is_compared_with_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_of_steps(tmp_path, 5, 3, monkeypatch, cut_after=2)
    baseline = lake.query("SELECT repeats, routine FROM offset_commits WHERE ingest_run < 4").to_pylist()
    assert {(row["repeats"], row["routine"]) for row in baseline} == {(None, False)}
    assert 0 < len(baseline) < lake.count("offset_commits", "routine")
    compare_views(lake, {"regressions", "commit_rate"})


def test_steps_of_history_match_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_of_steps(tmp_path, 99, 2, monkeypatch)
    rows = lake.query("SELECT * FROM offset_commits ORDER BY log_partition, log_offset", "offset_commits").to_pylist()
    by_key: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        by_key.setdefault((row["group_id"], row["topic"], row["partition"]), []).append(row)
    known = 0
    for of_key in by_key.values():
        for before, row in zip([None, *of_key], of_key, strict=False):
            if row["repeats"] is None:
                continue
            known += 1
            assert before is not None
            assert (before["kind"], row["producer_id"], before["producer_id"]) == ("commit", None, None)
            if row["repeats"] == 0:
                assert row["committed_offset"] > before["committed_offset"]
            else:
                assert row["committed_offset"] == before["committed_offset"]
                assert row["repeats"] == (before["repeats"] or 0) + 1
    assert known > len(rows) / 2
    assert {row["routine"] for row in rows} == {True, False}
