"""Rows that tasks write satisfy the constraints of their table, or no commit names them."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from offsetlake.errors import CheckFailed
from offsetlake.kafka.chunk import Chunk
from offsetlake.lake.constraints import check_rows, evaluate
from offsetlake.lake.definitions import TABLES, definition
from offsetlake.lake.files import repeating_as_dictionaries, table_schema
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.compact import task as compact_task
from offsetlake.pipeline.ingest import task as ingest_task
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, state
from support.lakes import new_lake

BROKER_LOG = Path(__file__).parents[1] / "fixtures" / "broker-log"
CHECKS = [(table, check["sql"]) for table in TABLES for check in definition(table).checks]


def rows_for(table: str, sql: str, schema: pa.Schema) -> pa.Table:
    """All combinations of values of the columns that an expression names, some of which it is about."""
    columns = [column for column in table_schema(table) if re.search(rf"\b{column.name}\b", sql)]
    texts = [*re.findall(r"'([^']*)'", sql), "other", None]
    values = [texts if pa.types.is_string(column.type) else [-1, 0, 1, None] for column in columns]
    combined = zip(*itertools.product(*values), strict=True)
    named = {column.name: pa.array(of, column.type) for column, of in zip(columns, combined, strict=True)}
    return pa.table({name: of.cast(schema.field(name).type) for name, of in named.items()})


@pytest.mark.parametrize(("table", "sql"), CHECKS)
@pytest.mark.parametrize("schema", [table_schema, repeating_as_dictionaries])
def test_an_expression_is_evaluated_as_another_engine_does(
    table: str, sql: str, schema: Callable[[str], pa.Schema]
) -> None:
    rows = rows_for(table, sql, schema(table))
    expected = [row[0] for row in duckdb.sql(f"SELECT ({sql}) FROM rows").fetchall()]
    assert evaluate(sql, rows).to_pylist() == expected
    assert {True, False} <= set(expected)


def test_rows_without_a_clear_answer_are_refused() -> None:
    offsets = {"start_offset": [0, None, 1], "end_offset": [0, None, None]}
    rows = pa.table({name: pa.array(values, pa.int64()) for name, values in offsets.items()})
    check_rows("log_ends", rows.slice(0, 2))
    check_rows("log_ends", rows.slice(0, 0))
    with pytest.raises(CheckFailed, match=r"1 rows for table log_ends violate .* 'end_offset': None"):
        check_rows("log_ends", rows)


def with_one_broken_row(rows: Any) -> Any:
    """The same rows, but the first one before the beginning of the log."""
    offsets = pa.array([-1, *rows["log_offset"].to_pylist()[1:]], pa.int64())
    return rows.set_column(rows.schema.get_field_index("log_offset"), "log_offset", offsets)


@pytest.mark.slow
def test_a_broken_row_of_an_ingest_is_refused_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ingest_task.decode

    def broken(*arguments: Any) -> Chunk:
        chunk = real(*arguments)
        return chunk._replace(commits=with_one_broken_row(chunk.commits)) if chunk.commits.num_rows else chunk

    lake = new_lake(tmp_path / "lake")
    monkeypatch.setattr(ingest_task, "decode", broken)
    refused(lake, "offset_commits")
    monkeypatch.undo()
    cycle(InProcess(), lake, BROKER_LOG)


@pytest.mark.slow
def test_a_broken_row_of_a_compaction_is_refused_before_the_commit(
    tmp_path: Path, broker_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = new_lake(tmp_path / "lake")
    real = compact_task.merged
    monkeypatch.setattr(compact_task, "merged", lambda *tables: with_one_broken_row(real(*tables)))
    refused(lake, "offsets")
    assert lake.count("offset_commits")
    monkeypatch.undo()
    cycle(InProcess(), lake, BROKER_LOG)
    assert state(lake) == state(broker_lake)


def refused(lake: Lake, table: str) -> None:
    """Run a cycle that writes a broken row to a table."""
    before = lake.versions(table)
    with pytest.raises(
        CheckFailed, match=rf"rows for table {table} violate its constraint log_position_known .*'log_offset': -1"
    ):
        cycle(InProcess(), lake, BROKER_LOG)
    assert lake.versions(table) == before
    assert not pc.any(
        pc.is_in(lake.query(f"SELECT log_offset FROM {table}", table)["log_offset"], pa.array([-1]))
    ).as_py()
