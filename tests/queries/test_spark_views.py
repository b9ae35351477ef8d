"""The views registered in a Spark session have the same rows as without Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import offsetlake
from offsetlake.errors import LakeUnusable
from offsetlake.lake.definitions import TABLES
from offsetlake.lake.sql.views import views
from support.queries.lakes import small_lake
from support.queries.view_rows import HISTORY, ODD, PRESENT

SMALL = {  # what a plan costs that reads a handful of rows
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of all tests, set for plans of many steps over few rows."""
    before = {name: spark.conf.get(name) for name in SMALL}
    for name, value in SMALL.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)
    for name in (*TABLES, *views()):
        spark.catalog.dropTempView(name)


def _rows(answer: pa.Table) -> list[dict[str, Any]]:
    return sorted(answer.to_pylist(), key=str)


@pytest.mark.jvm
@pytest.mark.long
@pytest.mark.slow
def test_views_have_the_same_rows_in_spark(session: SparkSession, tmp_path: Path) -> None:
    present = {table: [{**row, "log_partition": 1} for row in rows] for table, rows in PRESENT.items()}
    every = {
        table: [row for rows in (HISTORY, present, ODD) for row in rows.get(table, [])] for table in HISTORY | PRESENT
    }
    lake = small_lake(tmp_path / "it's a `lake`", **every)
    offsetlake.register_views(session, lake.location.path)
    assert _rows(session.table("changes").toArrow()) == _rows(lake.query("SELECT * FROM changes"))
    for table in every:  # the same rows in memory: each look at a Delta table costs jobs of its own
        session.createDataFrame(lake.query(f"SELECT * FROM {table}", table)).createOrReplaceTempView(table)
    for name, view in views().items():
        found = session.table(name)
        assert {field.name: field.metadata.get("comment") for field in found.schema} == view.columns
        expected = lake.query(f"SELECT * FROM {name}", name)
        assert _rows(found.toArrow()) == _rows(expected), name
        assert expected.num_rows, name


def test_folder_without_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeUnusable, match="no lake in"):
        offsetlake.register_views(None, tmp_path)  # type: ignore[arg-type]
