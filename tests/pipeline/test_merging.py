"""`maintain` merges files of history: the rows stay, and those of a group are together."""

import json
import random
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from offsetlake.errors import LakeBusy
from offsetlake.lake import upkeep
from offsetlake.lake.definitions import HISTORY
from offsetlake.lake.files import FileChanges, TableFile, active_files, commit
from offsetlake.lake.foreign.guard import refuse_changed
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.maintain import merging
from support.e2e.delta_files import contents
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle
from support.lakes import new_lake
from support.long_cases import long_cases
from support.oracle.random_logs import RandomLog, random_log

RUNS = 5
ORDER = ("log_partition", "group_id", "topic", "partition", "log_offset")


def lake_of_many_files(folder: Path, seed: int) -> Lake:
    """Return a lake that has read a random log in RUNS runs."""
    log, lake = random_log(random.Random(seed), 200, groups=12, log_partitions=3), new_lake(folder / "lake")
    for run in range(1, RUNS + 1):
        part = RandomLog(log.world, log.plans[: len(log.plans) * run // RUNS])
        part.write(folder / f"log-{run}")
        cycle(InProcess(), lake, folder / f"log-{run}")
    return lake


def paths(lake: Lake, table: str) -> set[Path]:
    folder = Path(str(lake.table_location(table)))
    return {folder / file["path"] for file in active_files(lake, table)}


def merge_all(lake: Lake, run_id: int) -> dict[str, int]:
    return {table: merging.merge(lake, table, run_id, lambda _: None) for table in HISTORY}


@pytest.mark.long
def test_merged_files_have_the_same_rows_in_the_order_of_groups(tmp_path: Path) -> None:
    lake = lake_of_many_files(tmp_path, 3)
    before, files = {table: contents(lake, table) for table in HISTORY}, paths(lake, "offset_commits")
    version = lake.versions("offset_commits")["offset_commits"]

    merged = merge_all(lake, 100)

    assert {table: contents(lake, table) for table in HISTORY} == before
    assert merged["offset_commits"] == len(files) >= upkeep.MIN_SMALL_FILES
    (file,) = paths(lake, "offset_commits")
    rows = pq.read_table(file).to_pylist()
    kinds = [(bool(row["superseded"]), bool(row["routine"])) for row in rows]
    for kind in {*kinds}:  # each has its own row groups
        places = [tuple(row[name] for name in ORDER) for row, found in zip(rows, kinds, strict=True) if found == kind]
        assert places == sorted(places)
    assert len({row["group_id"] for row in rows}) > 1
    assert lake.versions("offset_commits")["offset_commits"] == version + 1
    refuse_changed(Lake.open(lake.location))


def test_merging_is_no_change_of_data(tmp_path: Path) -> None:
    """So it is permitted in an append-only table, and who follows the table by its changes does not read rows twice."""
    lake = lake_of_many_files(tmp_path, 4)
    merge_all(lake, 100)
    version = lake.versions("offset_commits")["offset_commits"]
    entry = Path(str(lake.delta_log("offset_commits"))) / f"{version:020}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    changed = [action[kind]["dataChange"] for action in actions for kind in ("add", "remove") if kind in action]
    assert len(changed) > upkeep.MIN_SMALL_FILES
    assert not any(changed)
    assert lake.delta_table("offset_commits").metadata().configuration["delta.appendOnly"] == "true"


@pytest.mark.parametrize("seed", [0, *long_cases(range(1, 4))])
def test_any_size_of_files_and_portions(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, generator = lake_of_many_files(tmp_path, 10 + seed), random.Random(seed)
    sizes = sorted(file["size_bytes"] for file in active_files(lake, "offset_commits"))
    monkeypatch.setattr(merging, "_ROWS_AT_ONCE", generator.randint(1, 60))
    monkeypatch.setattr(upkeep, "MIN_SMALL_FILES", 2)
    for run_id in range(100, 104):
        monkeypatch.setattr(upkeep, "TARGET_BYTES", generator.choice(sizes) * generator.choice((1, 2, 3)) + 1)
        before, files = {table: contents(lake, table) for table in HISTORY}, paths(lake, "offset_commits")

        merged = merge_all(lake, run_id)

        assert {table: contents(lake, table) for table in HISTORY} == before
        left = paths(lake, "offset_commits")
        assert len(files - left) == merged["offset_commits"]
        assert len(left - files) <= merged["offset_commits"] // 2, "at least two files are merged into one"


@pytest.mark.long
def test_a_run_merges_a_table_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_of_many_files(tmp_path, 5)
    monkeypatch.setattr(upkeep, "MIN_SMALL_FILES", 2)
    assert merge_all(lake, 100)["offset_commits"]
    versions = lake.versions(*HISTORY)
    assert {*merge_all(lake, 101).values()} == {0}, "one file is not merged"
    assert lake.versions(*HISTORY) == versions


@pytest.mark.long
def test_files_that_another_program_rearranges_meanwhile_are_not_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of_many_files(tmp_path, 6)
    before = contents(lake, "offset_commits")
    commit = merging.commit

    def after_another(*arguments: object, **options: object) -> None:
        Lake.open(lake.location).delta_table("offset_commits").optimize.compact()
        commit(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(merging, "commit", after_another)
    with pytest.raises(LakeBusy, match="another program rearranged the files of table offset_commits"):
        merge_all(lake, 100)
    assert contents(Lake.open(lake.location), "offset_commits") == before


def append(lake: Lake, number: int, rows: int) -> None:
    """Append a file of markers at random log offsets to the table of markers."""
    log_offsets = np.random.default_rng(number).integers(0, 1 << 40, rows).tolist()
    constant = {"log_partition": 0, "producer_epoch": 0, "coordinator_epoch": 0, "marker": "COMMIT"}
    file = TableFile(lake, "transaction_markers")
    file.write_rows([constant | {"ingest_run": number, "log_offset": n, "producer_id": n} for n in log_offsets])
    commit(lake, "transaction_markers", [FileChanges(file.close())], "test", number)


@pytest.mark.long
def test_a_row_is_rewritten_a_few_times_however_many_files_follow(tmp_path: Path) -> None:
    lake, rewritten = new_lake(tmp_path / "lake"), 0
    for day in range(40):
        for part in range(4):
            append(lake, 4 * day + part + 1, 250)
        known = paths(lake, "transaction_markers")
        merging.merge(lake, "transaction_markers", 1_000 + day, lambda _: None)
        rewritten += sum(pq.read_metadata(path).num_rows for path in paths(lake, "transaction_markers") - known)
    rows = len(contents(lake, "transaction_markers"))
    assert rows == 40 * 1_000
    assert len(paths(lake, "transaction_markers")) < 12
    assert rewritten < 6 * rows, "each row would be rewritten 20 times on average"
