"""The tables and views of a lake in Spark SQL: for `spark-sql` and for sessions of users."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from offsetlake.lake.definitions import TABLES
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.lake import Lake
from offsetlake.lake.location import folder_of
from offsetlake.lake.views import views
from offsetlake.util.arguments import lists_arguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@lists_arguments
def register_views(spark: "SparkSession", lake: str | Path) -> None:
    """Register the tables and views of a lake as temporary views of a session that has Delta.

    Raises BadRequest for the URI of a lake, LakeUnusable if there is no lake, TableChanged if another program changed
    one of its tables.
    """
    for statement in spark_statements(open_verified(folder_of(lake))):
        spark.sql(statement)


def spark_statements(lake: Lake) -> Iterator[str]:
    """Yield the statements that create temporary views of the tables of a lake, then of the views over them."""
    lake.check_up_to_date()
    for table in TABLES:
        path = _text(str(lake.table_path(table)))
        # `AS SELECT` would resolve the table again in every view that names it, and in every view over those.
        yield f"CREATE OR REPLACE TEMPORARY VIEW {table} USING delta OPTIONS (path {path})"
    for view in views().values():
        columns = ", ".join(f"{name} COMMENT {_text(comment)}" for name, comment in view.columns.items())
        named = f"{view.name} ({columns}) COMMENT {_text(view.answers)}"
        yield f"CREATE OR REPLACE TEMPORARY VIEW {named} AS\n{view.select}"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
