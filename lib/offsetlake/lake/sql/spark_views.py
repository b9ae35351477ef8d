"""The tables and views of a lake in Spark SQL: for `spark-sql` and for sessions of users."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from offsetlake.lake.definitions import TABLES
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import LakeLocation
from offsetlake.lake.sql.views import Described, View, views
from offsetlake.util.arguments import lists_arguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@lists_arguments
def register_views(spark: "SparkSession", lake: LakeLocation) -> None:
    """Register the tables and views of a lake as temporary views of a session that has Delta.

    Raises BadRequest for a URI of an unknown scheme, LakeUnusable if there is no lake, TableChanged if another program
    changed one of its tables.
    """
    for statement in spark_statements(open_verified(lake)):
        spark.sql(statement)


def spark_statements(lake: Lake) -> Iterator[str]:
    """Yield the statements that create temporary views of the tables of a lake, then of the views over them."""
    lake.check_up_to_date()
    for table in TABLES:
        path = spark_text(lake.table_location(table).spark_uri)
        # `AS SELECT` would resolve the table again in every view that names it, and in every view over those.
        yield f"CREATE OR REPLACE TEMPORARY VIEW {table} USING delta OPTIONS (path {path})"
    for view in views().values():
        yield f"CREATE OR REPLACE TEMPORARY VIEW {described_view(view)} AS\n{view.select}"


def described_view(view: View | Described) -> str:
    """Return the name of a view, its columns and all comments, as CREATE VIEW of Spark SQL has them."""
    columns = ", ".join(f"{name} COMMENT {spark_text(comment)}" for name, comment in view.columns.items())
    return f"{view.name} ({columns}) COMMENT {spark_text(view.answers)}"


def spark_text(value: str) -> str:
    """Return a text as a literal of Spark SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
