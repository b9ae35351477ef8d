"""The log partitions of groups, by all commits, however often they are asked for and whatever history grows by."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from offsetlake.lake.delta.commits import ours
from offsetlake.lake.foreign.guard import VerifiedLake
from offsetlake.lake.history import group_places as module
from offsetlake.lake.lake import Lake
from offsetlake.queries.selection import log_partitions_of
from support.queries.lakes import commit, small_lake

PLACES = {"a": [0, 7], "b": [3], "c": [3]}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    module._KNOWN.clear()
    rows = [commit(n, n, group_id=g, log_partition=p) for n, (g, ps) in enumerate(PLACES.items()) for p in ps * 2]
    yield small_lake(tmp_path / "lake", offset_commits=rows)
    module._KNOWN.clear()


def add(lake: Lake, group: str, log_partition: int) -> None:
    table = lake.delta_table("offset_commits")
    rows = table.to_pyarrow_table().slice(0, 1).to_pylist()
    schema = table.to_pyarrow_table().schema
    added = pa.Table.from_pylist([rows[0] | {"group_id": group, "log_partition": log_partition}], schema=schema)
    write_deltalake(table.table_uri, added, mode="append", commit_properties=ours("test", 1))


def answers(lake: Lake) -> list[list[int]]:
    return [log_partitions_of(lake, groups) for groups in (["a"], ["b", "c"], ["a", "b"], ["none"], [], ["a", "c"])]


@pytest.mark.parametrize("kept", [False, True])
def test_the_log_partitions_of_groups(lake: Lake, monkeypatch: pytest.MonkeyPatch, *, kept: bool) -> None:
    verified = VerifiedLake(lake.location)
    repeated = verified.open() if kept else lake
    expected = [[0, 7], [3], [0, 3, 7], [], [], [0, 3, 7]]
    assert answers(repeated) == expected
    read: list[str] = []
    real = module.file_batches
    monkeypatch.setattr(module, "file_batches", lambda *given: read.append(given[2]) or real(*given))
    add(lake, "a", 8)
    repeated = verified.open() if kept else lake
    assert log_partitions_of(repeated, ["a"]) == [0, 7, 8]
    assert answers(repeated)[0] == [0, 7, 8]
    assert len(read) == 1


def test_the_files_of_tables_that_stay_open_are_listed_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    real = module.active_files
    monkeypatch.setattr(module, "active_files", lambda *given: listed.append(given[1]) or real(*given))
    verified = VerifiedLake(lake.location)
    first = verified.open()
    assert [log_partitions_of(opened, ["a"]) for opened in (first, first, verified.open())] == [[0, 7]] * 3
    assert listed == ["offset_commits", "group_records"]
    add(lake, "a", 8)
    assert log_partitions_of(verified.open(), ["a"]) == [0, 7, 8]
    assert log_partitions_of(first, ["a"]) == [0, 7]
