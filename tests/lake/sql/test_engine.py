"""Queries with a memory limit: sorts spill, joins are refused, and a process that exceeds the limit exits."""

import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from offsetlake.errors import NotEnoughMemory
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql import answers, engine
from offsetlake.lake.sql.answers import KeptAnswer, PartedAnswer, kept
from offsetlake.lake.sql.engine import MEMORY_LIMIT, SPILLING
from offsetlake.lake.sql.select import select
from support.queries.lakes import commit, small_lake

NUMBERS = "SELECT value AS n, concat('a text of some length ', value) AS text FROM generate_series(1, 400000)"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return small_lake(tmp_path_factory.mktemp("engine") / "lake", offset_commits=[commit(0, 1)])


def test_sort_above_the_limit_spills(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ENGINE_BYTES", 80 << 20)
    session = lake.engine(
        ["runs"], {}, settings=SPILLING | {"datafusion.execution.sort_spill_reservation_bytes": "8000000"}
    )
    found = session.query(f"SELECT n FROM ({NUMBERS}) ORDER BY text DESC, n")
    assert sorted(found["n"].to_pylist()) == [*range(1, 400_001)]


def test_join_above_the_limit_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ENGINE_BYTES", 8 << 20)
    with pytest.raises(NotEnoughMemory, match="the query needs more than 1 GB of memory: narrow it"):
        lake.engine(["runs"], {}).query(
            f"SELECT count(*) FROM ({NUMBERS}) AS a JOIN ({NUMBERS}) AS b ON a.text = b.text"
        )


def test_process_with_little_memory_has_smaller_engines(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    join = f"SELECT count(*) AS n FROM ({NUMBERS}) AS a JOIN ({NUMBERS}) AS b ON a.text = b.text"
    monkeypatch.setattr(engine, "_DEFAULTS", {})
    monkeypatch.setitem(engine.SMALL, MEMORY_LIMIT, "8M")
    assert lake.engine(["runs"], {}).query(join)["n"].to_pylist() == [400_000]
    engine.use_little_memory()
    with pytest.raises(NotEnoughMemory):
        lake.engine(["runs"], {}).stream(join).read_all()
    assert lake.engine(["runs"], {}, settings=SPILLING).query(join)["n"].to_pylist() == [400_000]


def test_engine_with_little_memory_gets_more_once_a_join_needs_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine.SMALL, MEMORY_LIMIT, "8M")
    session = lake.engine(["offset_commits"], {}, settings=engine.SMALL)
    join = f"SELECT count(*) AS n FROM ({NUMBERS}) AS a JOIN ({NUMBERS}) AS b ON a.text = b.text"
    assert session.query(join)["n"].to_pylist() == [400_000]
    assert session.query("SELECT * FROM offset_commits").num_rows == 1
    monkeypatch.setitem(engine.SPILLING, MEMORY_LIMIT, "9M")
    with pytest.raises(NotEnoughMemory):
        lake.engine(["runs"], {}, settings=engine.SMALL).query(join)


def test_large_result_is_stored_in_a_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_ROWS_IN_MEMORY", 100)
    small, large = (
        select(lake, f"SELECT value AS n, -value AS m FROM generate_series(1, {rows})") for rows in (100, 9000)
    )
    assert isinstance(small, pa.Table)
    assert isinstance(large, KeptAnswer)
    assert (large.num_rows, large.num_columns, large.column_names) == (9000, 2, ["n", "m"])
    batches = [*large.select(["m"]).to_batches(1000)]
    assert {batch.num_rows <= 1000 for batch in batches} == {True}
    assert pa.Table.from_batches(batches)["m"].to_pylist() == [*range(-1, -9001, -1)]
    assert large.slice(2, 500)["n"].to_pylist() == [*range(3, 503)]
    assert large.slice(0) is large
    assert kept(pa.table({"n": [1]}).to_reader()).num_rows == 1


@pytest.mark.parametrize("parts", [[30, 20], [30, 90, 9000, 0], [9000, 40], [0]])
def test_parts_are_sorted_whether_they_wait_in_memory_or_are_written(
    parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MAX_ROWS_IN_MEMORY", 100)
    collected, first = PartedAnswer("n DESC"), 0
    for rows in parts:
        collected.add(pa.table({"n": pa.array(range(first, first + rows), pa.int64())}).to_reader(max_chunksize=64))
        first += rows
    answer = collected.answer()
    assert answer.num_rows == first
    assert [n for batch in answer.to_batches(1000) for n in batch["n"].to_pylist()] == [*reversed(range(first))]


def test_threads_share_one_scratch_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    folder, start = tempfile.TemporaryDirectory, threading.Barrier(8)

    def slowly(prefix: str) -> "tempfile.TemporaryDirectory[str]":
        time.sleep(0.05)  # long enough for all threads to ask before the first one has its folder
        return folder(prefix=prefix)

    def ask(_number: int) -> str:
        start.wait(60)
        return engine.scratch_folder()

    monkeypatch.setattr(tempfile, "TemporaryDirectory", slowly)
    monkeypatch.setattr(engine, "_created_scratch", cache(engine._created_scratch.__wrapped__))
    with ThreadPoolExecutor(8) as threads:
        (found,) = {*threads.map(ask, range(8))}
    assert Path(found).is_dir()
    engine._scratch().cleanup()


GROWS = """
import sys
from pathlib import Path
from offsetlake.util import memory_limit
from offsetlake.lake.sql.engine import limited_memory, scratch_folder
from offsetlake.lake.lake import Lake

memory_limit.MAX_GROWTH_BYTES = 60 << 20
print(scratch_folder(), flush=True)
with limited_memory():
    Lake(Path(sys.argv[1])).query("SELECT sum(value) OVER () FROM generate_series(1, 100000000)", "runs")
"""


def test_process_above_the_limit_exits_with_a_message(lake: Lake) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GROWS, str(lake.location.path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == NotEnoughMemory.exit_code, done.stderr
    assert done.stderr.startswith("error: the query needs more than 1 GB of memory: narrow it")
    assert done.stderr.count("\n") == 1
    assert not Path(done.stdout.strip()).exists(), "what it had spilled is removed"
