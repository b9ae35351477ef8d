"""Large log partitions are compacted by ranges of groups, and give the tables of an undivided compaction."""

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.lake.files import active_files
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import StateFile, list_state_files
from offsetlake.pipeline.compact import division
from offsetlake.pipeline.compact import job as compact_job
from offsetlake.pipeline.compact.division import choose_bounds
from offsetlake.pipeline.compact.group_ranges import EVERY_GROUP, GroupRange, ranges
from offsetlake.pipeline.compact.rebuild import rebuild
from support.e2e.divided import divided
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, state, upkeep
from support.lakes import new_lake
from support.oracle.random_logs import random_log

ALL_NAMES = ["", "a", "b", "ba", "c", "d", "ж", "\U0001f600"]
NAMES = st.sampled_from(ALL_NAMES)
SOME_NAMES = st.lists(NAMES, unique=True).map(sorted)


@given(groups=st.lists(NAMES, min_size=1).map(sorted), existing=SOME_NAMES, count=st.integers(1, 5))
def test_bounds_divide_the_groups(groups: list[str], existing: list[str], count: int) -> None:
    bounds = choose_bounds(groups, existing, count)
    assert bounds == sorted({*bounds})
    assert {*bounds} <= {*groups, *existing}
    assert all(groups[0] < bound for bound in bounds)


def test_bounds_divide_evenly() -> None:
    groups = [f"{number:02}" for number in range(90)]
    assert choose_bounds(groups, [], 3) == ["30", "60"]
    assert choose_bounds(groups, [], 1) == []
    assert choose_bounds([*groups[:10], *["big"] * 80], [], 9) == ["big"]


def test_bounds_of_existing_files_are_preferred_if_the_ranges_stay_similar() -> None:
    groups = [f"{number:02}" for number in range(90)]
    assert choose_bounds(groups, ["00", "25", "33x", "65"], 3) == ["33x", "65"]
    assert choose_bounds(groups, ["00", "05"], 3) == ["30", "60"]


@given(firsts=SOME_NAMES, bounds=SOME_NAMES, groups=SOME_NAMES)
def test_files_of_a_range_contain_all_of_its_groups(firsts: list[str], bounds: list[str], groups: list[str]) -> None:
    """A group is in the last file that begins at or before it, or in the first one."""
    files = [StateFile(f"file {first}", 0, first) for first in firsts]
    home = {
        group: max((file for file in files if file.first_group <= group), key=_first, default=None)
        for group in ALL_NAMES
    }
    for groups_of_range in ranges(bounds):
        inside = {group for group in ALL_NAMES if _inside(group, groups_of_range)}
        held = groups_of_range.rows(pa.table({"group_id": pa.array(groups, pa.string())}))["group_id"].to_pylist()
        assert held == [group for group in groups if group in inside]
        chosen = groups_of_range.files(files)
        assert chosen == [file for file in files if file in chosen]
        assert {home[group] for group in inside} - {None} <= {*chosen}
        shared = groups_of_range.shared_files(files)
        for file in chosen:
            others = {group for group in ALL_NAMES if home[group] == file} - inside
            assert not others or file in shared
        assert {*shared} <= {*chosen}
    assert EVERY_GROUP.files(files) == files
    assert not EVERY_GROUP.shared_files(files)


def _first(file: StateFile) -> str:
    return file.first_group


def _inside(group: str, groups: GroupRange) -> bool:
    return (groups.first is None or group >= groups.first) and (groups.before is None or group < groups.before)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    random_log(random.Random(31), 400, groups=20, log_partitions=2).write(tmp_path / "log")
    return tmp_path / "log"


@pytest.mark.long
def test_rebuild_of_divided_log_partitions_gives_the_same_tables(log: Path, tmp_path: Path) -> None:
    expected, lake = new_lake(tmp_path / "expected"), new_lake(tmp_path / "lake")
    cycle(InProcess(), expected, log)
    cycle(InProcess(), lake, log)
    with divided() as counts:
        rebuild(InProcess, lake, lambda _: None)  # type: ignore[arg-type]
    assert max(counts) > 2
    assert state(lake) == state(expected)
    assert len(_state_files(lake)) > 2
    assert not _unreferenced(lake)


def test_files_of_an_interrupted_division_are_never_read(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compaction is interrupted after its commits were sorted, and resumed without a division."""
    expected, lake = new_lake(tmp_path / "expected"), new_lake(tmp_path / "lake")
    cycle(InProcess(), expected, log)
    with divided(), monkeypatch.context() as patch:
        patch.setattr(compact_job, "distribute", _fail)
        with pytest.raises(InterruptedError):
            cycle(InProcess(), lake, log)
    assert _unreferenced(lake)
    cycle(InProcess(), lake, log)
    assert state(lake) == state(expected)
    upkeep(lake)
    assert not _unreferenced(lake)
    assert state(lake) == state(expected)


def test_small_log_partitions_are_compacted_undivided(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(division, "sort_commits", _fail)
    cycle(InProcess(), new_lake(tmp_path / "lake"), log)


@pytest.mark.parametrize(
    ("rows", "tasks", "large"),
    [
        ({0: 90, 1: 10}, 4, [0]),
        ({0: 90, 1: 10}, 2, []),
        ({0: 9, 1: 1}, 4, []),
        ({0: 300, 1: 300}, 1, [0, 1]),
        ({0: 25, 1: 25, 2: 25, 3: 25}, 32, [0, 1, 2, 3]),
    ],
    ids=["most of the records", "too few cores", "few records", "more than the memory of a task", "fewer than tasks"],
)
def test_large_log_partitions(
    rows: dict[int, int], tasks: int, large: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(division, "TASK_ROWS", 10)
    monkeypatch.setattr(division, "MAX_TASK_ROWS", 200)
    assert division._large(rows, tasks) == large


def _fail(*_arguments: Any) -> Any:
    raise InterruptedError


def _state_files(lake: Lake) -> Sequence[StateFile]:
    files = list_state_files(lake, "offsets", lake.versions("offsets")["offsets"])[0]
    assert all(one.first_group < other.first_group for one, other in pairwise(files))
    return files


def _unreferenced(lake: Lake) -> set[str]:
    """Return the data files of `offset_commits` that the table does not name."""
    named = {file["path"] for file in active_files(lake, "offset_commits")}
    return {path.name for path in lake.table_location("offset_commits").path.glob("*.parquet")} - named
