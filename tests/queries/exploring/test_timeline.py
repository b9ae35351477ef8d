"""The timeline of a log: numbers by bin, from files that are read once each."""

from collections import Counter
from pathlib import Path

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.queries.exploring import timeline as module
from offsetlake.queries.exploring.timeline import MAX_BINS, Timeline, Timelines
from offsetlake.util.times import to_ms
from support.queries.lakes import commit, small_lake, tombstone

TIMES = [1_000_000 + (n * n * 37) % 5_000_000 for n in range(500)]
COMMITS = [commit(n, n, log_timestamp=at) for n, at in enumerate(TIMES)]
GENERATION = {"record_name": "GroupMetadata", "kind": "value", "value": "{}", "group_id": "g"}


def by_bin(shown: Timeline, kind: str) -> dict[int, int]:
    return {
        int(n) * shown.step_ms + shown.start_ms: int(shown.counts[kind][n]) for n in shown.counts[kind].nonzero()[0]
    }


def expected(shown: Timeline, times: list[int]) -> dict[int, int]:
    return dict(Counter(at // shown.step_ms * shown.step_ms for at in times))


def test_numbers_by_bin_and_kind(tmp_path: Path) -> None:
    removed = [tombstone(1000 + n, log_timestamp=TIMES[n]) for n in range(7)]
    without = commit(5000, 1, log_timestamp=None)
    generations = [
        {**GENERATION, "log_offset": 2000, "log_timestamp": 3_000_000},
        {**GENERATION, "log_offset": 2001, "log_timestamp": 3_000_000, "record_name": "ConsumerGroupMemberMetadata"},
    ]
    runs = [
        {"run_id": 1, "job": "reset", "started_at": 1, "finished_at": 2_000_000},
        {"run_id": 2, "job": "ingest", "started_at": 1, "finished_at": 2_000_000, "outcome": "nothing new"},
        {"run_id": 3, "job": "ingest", "started_at": 1, "finished_at": 9_000_000},
    ]
    altered = {"run_id": 1, "strategy": "to_offset", "group_id": "g", "topic": "t", "judged_offset": 1}
    outcomes = ({"outcome": "done", "log_offset": 3000}, {"outcome": "refused", "reason": "moved"})
    alterations = [{**altered, **outcome, "partition": n} for n, outcome in enumerate(outcomes)]
    lake = small_lake(
        tmp_path, offset_commits=[*COMMITS, *removed, without], group_records=generations, runs=runs,
        alterations=alterations,
    )  # fmt: skip
    shown = Timelines().timeline(lake)
    assert shown is not None
    assert len(shown.counts["commits"]) <= MAX_BINS
    assert (shown.first_ms, shown.last_ms) == (min(TIMES), max(TIMES))
    assert by_bin(shown, "commits") == expected(shown, TIMES)
    assert by_bin(shown, "deletions") == expected(shown, TIMES[:7])
    assert by_bin(shown, "rebalances") == expected(shown, [3_000_000])
    assert by_bin(shown, "resets") == by_bin(shown, "jobs") == expected(shown, [2_000_000])


def test_a_file_is_read_once_unless_the_bins_become_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    count = module._count

    def counted(lake: Lake, table: str, path: str, step: int) -> object:
        read.append(path)
        return count(lake, table, path, step)

    monkeypatch.setattr(module, "_count", counted)
    timelines, lake = Timelines(), small_lake(tmp_path, offset_commits=COMMITS)
    first = timelines.timeline(lake)
    assert first is not None
    small_lake(tmp_path, offset_commits=[commit(900, 1, log_timestamp=TIMES[0])])
    second = timelines.timeline(Lake.open(tmp_path))
    assert second is not None
    assert len(read) == len({*read}) == 2
    assert by_bin(second, "commits") == expected(first, [*TIMES, TIMES[0]])
    late = max(TIMES) * 10
    small_lake(tmp_path, offset_commits=[commit(901, 1, log_timestamp=late)])
    third = timelines.timeline(Lake.open(tmp_path))
    assert third is not None
    assert len(third.counts["commits"]) <= MAX_BINS
    assert by_bin(third, "commits") == expected(third, [*TIMES, TIMES[0], late])


def test_there_is_no_timeline_without_timestamps(tmp_path: Path) -> None:
    lake = small_lake(tmp_path, offset_commits=[commit(0, 1, log_timestamp=None)])
    assert Timelines().timeline(lake) is None


@pytest.mark.parametrize("wrong", [to_ms("2099-01-01"), 1000 * to_ms("2026-11-21"), 2**63 - 1, -5000, -(2**63)])
def test_wrong_clocks_do_not_change_the_timeline(tmp_path: Path, wrong: int) -> None:
    runs = [{"run_id": 1, "job": "ingest", "started_at": 1, "finished_at": to_ms("2026-11-21")}]
    right = small_lake(tmp_path / "right", offset_commits=COMMITS, runs=runs)
    lake = small_lake(tmp_path / "lake", offset_commits=[*COMMITS, commit(900, 1, log_timestamp=wrong)], runs=runs)
    small_lake(lake.location.path, offset_commits=[commit(901, 1, log_timestamp=wrong)])
    expected, found = Timelines().timeline(right), Timelines().timeline(Lake.open(lake.location.path))
    assert expected is not None
    assert found is not None
    assert (found.first_ms, found.last_ms, found.step_ms) == (min(TIMES), max(TIMES), expected.step_ms)
    assert by_bin(found, "commits") == by_bin(expected, "commits")
