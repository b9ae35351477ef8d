"""Data files have correct statistics, and the commit of a run happens once."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.errors import LakeUnusable
from offsetlake.lake import files
from offsetlake.lake.files import FileChanges, TableFile, commit, table_schema
from offsetlake.lake.lake import Lake
from support.lakes import new_lake

INDEXED = ("ingest_run", "log_topic", "log_partition", "log_offset", "log_timestamp", "reason")  # of quarantine

Row = dict[str, Any]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return new_lake(tmp_path / "lake")


@pytest.fixture(scope="module")
def one_lake() -> Iterator[Lake]:
    """For files that no commit names."""
    with TemporaryDirectory() as folder:
        yield new_lake(Path(folder) / "lake")


@pytest.fixture(scope="module", autouse=True)
def small_row_groups() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "ROWS_A_GROUP", 3)
        yield


def quarantined(log_offset: int, reason: str = "", **others: Any) -> Row:
    return {
        "ingest_run": 1,
        "log_topic": "__consumer_offsets",
        "log_partition": 0,
        "log_offset": log_offset,
        "log_timestamp": None,
        "reason": reason,
        "key_bytes": None,
        "value_bytes": None,
        "is_control": None,
        **others,
    }


def written(lake: Lake, *rows: Row) -> FileChanges:
    file = TableFile(lake, "quarantine")
    file.write_rows(list(rows))
    return FileChanges(added=file.close())


def data_files(lake: Lake, table: str) -> list[Path]:
    return [*lake.table_location(table).path.glob("*.parquet")]


texts = st.text(max_size=3) | st.sampled_from(["", "\x00", "\uffff", "\U0001f600", "x" * 70_000])
longs = st.integers(-(2**63), 2**63 - 1)
ROWS = st.builds(
    quarantined, longs, texts, log_timestamp=st.none() | longs, key_bytes=st.none() | st.binary(max_size=2)
)


@pytest.mark.slow
@given(batches=st.lists(st.lists(ROWS, max_size=4), min_size=1, max_size=5))
def test_statistics_match_the_rows(one_lake: Lake, batches: list[list[Row]]) -> None:
    file = TableFile(one_lake, "quarantine")
    for batch in batches:
        file.write_rows(batch)
    rows = [row for batch in batches for row in batch]
    added = file.close()
    assert len(added) == bool(rows)
    for action in added:
        path = one_lake.table_location("quarantine").path / action.path
        assert pq.read_table(path).to_pylist() == rows
        assert action.size == path.stat().st_size
        held = json.loads(action.stats)
        known = {name: [row[name] for row in rows if row[name] is not None] for name in INDEXED}
        assert held == {
            "numRecords": len(rows),
            "minValues": {name: min(values, key=_in_order) for name, values in known.items() if values},
            "maxValues": {name: max(values, key=_in_order) for name, values in known.items() if values},
            "nullCount": {name: len(rows) - len(values) for name, values in known.items()},
        }
        path.unlink()


def _in_order(value: Any) -> Any:
    """Readers compare text by its bytes."""
    return value.encode() if isinstance(value, str) else value


def test_rows_are_found_by_statistics_of_any_column(lake: Lake) -> None:
    reasons = ["", "'", "\\", "\n", "ключ", "\U0001f600", "\uffff", "a" * 40, "a" * 33 + "b", "x" * 5_000]
    for run, reason in enumerate(reasons, start=1):
        commit(lake, "quarantine", [written(lake, quarantined(run, reason))], "test", run)
    for run, reason in enumerate(reasons, start=1):
        found = lake.query("SELECT log_offset FROM quarantine WHERE reason = '" + reason.replace("'", "''") + "'")
        assert found["log_offset"].to_pylist() == [run]
    assert lake.count("quarantine", "reason > 'b'") == sum(reason.encode() > b"b" for reason in reasons)
    assert lake.count("quarantine", "log_timestamp IS NULL") == len(reasons)


def test_superseded_and_routine_commits_have_their_own_row_groups(one_lake: Lake) -> None:
    schema = table_schema("offset_commits")
    row = dict.fromkeys(schema.names, 0) | {"kind": "commit", "group_id": "g", "topic": "t", "metadata": ""}
    row |= dict.fromkeys(("topic_id", "commit_id", "commit_size", "routine"))
    file = TableFile(one_lake, "offset_commits")
    for log_offset in range(10):
        flags = {"superseded": log_offset % 4 != 3, "routine": (None, True, False)[log_offset % 3]}
        file.write_rows([row | {"log_offset": log_offset} | flags])
    (added,) = file.close()
    stored = pq.ParquetFile(one_lake.table_location("offset_commits").path / added.path)
    groups = [stored.read_row_group(at) for at in range(stored.num_row_groups)]
    kinds = [{(row["superseded"], bool(row["routine"])) for row in group.to_pylist()} for group in groups]
    assert len(groups) > 4
    assert all(len(kind) == 1 for kind in kinds)
    assert sorted(at for group in groups for at in group["log_offset"].to_pylist()) == list(range(10))


def test_columns_are_matched_by_name_and_others_ignored(one_lake: Lake) -> None:
    rows = pa.Table.from_pylist([quarantined(1, "a"), quarantined(2, "b")])
    shuffled = rows.select(rows.column_names[::-1]).append_column("more", pa.array([1, 2]))
    file = TableFile(one_lake, "quarantine")
    file.write(shuffled)
    (added,) = file.close()
    assert pq.read_table(one_lake.table_location("quarantine").path / added.path).to_pylist() == rows.to_pylist()


def test_without_rows_no_file_is_created(lake: Lake) -> None:
    file = TableFile(lake, "quarantine")
    file.write_rows([])
    file.write(table_schema("quarantine").empty_table())
    assert file.close() == []
    assert data_files(lake, "quarantine") == []
    before = lake.versions("quarantine")
    commit(lake, "quarantine", [FileChanges()], "test", 1)
    assert lake.versions("quarantine") == before
    assert lake.delta_table("quarantine").transaction_version("offsetlake-test") is None


@pytest.mark.parametrize("rows", [0, 1, 3, 4], ids="{} rows".format)
def test_discarded_file_is_removed(lake: Lake, rows: int) -> None:
    file = TableFile(lake, "quarantine")
    file.write_rows([quarantined(log_offset) for log_offset in range(rows)])
    assert len(data_files(lake, "quarantine")) == (rows >= 3)
    file.discard()
    assert data_files(lake, "quarantine") == []


def test_commit_of_a_resumed_run_is_skipped(lake: Lake) -> None:
    first, again = written(lake, quarantined(1), quarantined(2)), written(lake, quarantined(1), quarantined(2))
    commit(lake, "quarantine", [first], "ingest", 5)
    version = lake.versions("quarantine")
    commit(lake, "quarantine", [first], "ingest", 5)  # the same files
    commit(lake, "quarantine", [again], "ingest", 5)  # the same rows, written anew behind a kill
    commit(lake, "quarantine", [again], "ingest", 4)  # an older run
    assert lake.versions("quarantine") == version
    assert lake.count("quarantine") == 2
    assert lake.delta_table("quarantine").transaction_version("offsetlake-ingest") == 5


def test_commits_of_jobs_are_told_apart(lake: Lake) -> None:
    """Run 2 of one job may end before run 1 of another, which was cut short."""
    commit(lake, "quarantine", [written(lake, quarantined(2))], "compact", 2)
    commit(lake, "quarantine", [written(lake, quarantined(1))], "ingest", 1)
    assert lake.count("quarantine") == 2
    assert lake.delta_table("quarantine").transaction_version("offsetlake-compact") == 2
    assert lake.delta_table("quarantine").transaction_version("offsetlake-ingest") == 1


def test_commit_adds_and_removes_files_atomically(lake: Lake) -> None:
    schema = table_schema("offsets")
    base = {"topic": "t", "partition": 0, "committed_offset": 0, "metadata": "", "commit_timestamp": 0}
    base |= {"record_type": 1, "value_version": 3, "log_partition": 0, "log_offset": 0}
    exchanges = []
    for group_id in "abc":
        file = TableFile(lake, "offsets")
        file.write(pa.Table.from_pylist([base | {"group_id": group_id}], schema=schema))
        exchanges.append(FileChanges(added=file.close()))
    before = lake.versions("offsets")["offsets"]
    commit(lake, "offsets", exchanges[:2], "compact", 1)
    commit(lake, "offsets", [exchanges[2], FileChanges(removed=[exchanges[0].added[0].path])], "compact", 2)
    assert lake.versions("offsets")["offsets"] == before + 2
    groups = "SELECT group_id FROM offsets ORDER BY group_id"
    assert lake.query(groups, "offsets")["group_id"].to_pylist() == ["b", "c"]
    assert lake.query(groups, offsets=before + 1)["group_id"].to_pylist() == ["a", "b"]
    assert len(data_files(lake, "offsets")) == 3, "readers of an older version still find its files"


def test_full_disk_is_reported_and_the_file_can_be_discarded(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = uuid.UUID(int=7)
    monkeypatch.setattr(uuid, "uuid4", lambda: name)
    path = lake.table_location("quarantine").path / f"part-{name}.parquet"
    path.symlink_to("/dev/full")
    file = TableFile(lake, "quarantine")
    with pytest.raises(LakeUnusable, match=r"no space left on the disk of .*quarantine: free some and run again"):
        _write_and_close(file)
    file.discard()
    assert not path.is_symlink()


def _write_and_close(file: TableFile) -> None:
    file.write_rows([quarantined(1)])
    file.close()
