"""A snapshot of tables and tail is what the tables are once the tail was ingested and compacted."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyarrow import feather

import offsetlake
from offsetlake.errors import LogMismatch
from offsetlake.lake.definitions import STATE
from support.command_line import Run
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, rows
from support.lakes import new_lake
from support.oracle.random_logs import RandomLog, logs, worlds

FIXTURES = Path(__file__).parents[2] / "fixtures"


def plain(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: [str(value) for value in row.values()])


@pytest.mark.slow
@given(log=logs(max_batches=30) | worlds(commit_ids=(7, 8)).flatmap(lambda world: logs(30, world)), data=st.data())
@settings(max_examples=5)
def test_snapshot_equals_the_next_compaction(log: RandomLog, data: st.DataObject) -> None:
    assume(log.plans)
    cut = data.draw(st.integers(0, len(log.plans)))
    with TemporaryDirectory() as name:
        folder = Path(name)
        lake = new_lake(folder / "lake")
        first = RandomLog(log.world, log.plans[:cut])
        if first.plans:
            first.write(folder / "log")
            cycle(InProcess(), lake, folder / "log")
        log.write(folder / "log")
        found = offsetlake.open_snapshot(folder / "lake", folder / "log").tables
        cycle(InProcess(), lake, folder / "log")
        expected = {table: rows(lake, table) for table in STATE if table != "share_partitions"}
    assert {table: plain(rows_of_table) for table, rows_of_table in found.items()} == expected


def test_snapshot_returns_the_offsets_of_a_group(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    snapshot = offsetlake.open_snapshot(tmp_path / "lake", FIXTURES / "broker-log")
    cycle(InProcess(), lake, FIXTURES / "broker-log")
    group = rows(lake, "offsets")[0]["group_id"]
    of_group = [row for row in rows(lake, "offsets") if row["group_id"] == group]
    assert plain(snapshot.offsets(group)) == of_group
    topic = of_group[0]["topic"]
    assert plain(snapshot.offsets(group, topic)) == [row for row in of_group if row["topic"] == topic]
    assert snapshot.offsets("nobody").num_rows == 0


def test_snapshot_of_another_log_is_refused(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    cycle(InProcess(), lake, FIXTURES / "broker-log")
    with pytest.raises(LogMismatch):
        offsetlake.open_snapshot(tmp_path / "lake", FIXTURES / "real-log")


@pytest.mark.parametrize(("name", "read"), [("o.parquet", pq.read_table), ("o.arrow", feather.read_table)])
def test_snapshot_is_exported_as_a_file(tmp_path: Path, run: Run, name: str, read: Any) -> None:
    new_lake(tmp_path / "lake")
    code, out, err = run("snapshot", name, "--lake", "lake", "--log", str(FIXTURES / "broker-log"))
    expected = offsetlake.open_snapshot(tmp_path / "lake", FIXTURES / "broker-log").tables["offsets"]
    assert (code, out, err) == (0, f"Wrote {expected.num_rows} rows of offsets to {name}\n", "")
    assert plain(read(tmp_path / name)) == plain(expected)
    assert {path.name for path in tmp_path.iterdir()} == {"lake", name}


def test_unwritable_export_is_an_error(tmp_path: Path, run: Run) -> None:
    new_lake(tmp_path / "lake")
    for name in ("o.txt", "no/o.parquet"):
        code, out, err = run("snapshot", name, "--lake", "lake", "--log", str(FIXTURES / "broker-log"))
        assert (code, out) == (2, "")
        assert err.startswith(f"error: Cannot write {name}: ")
