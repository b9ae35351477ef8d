"""Statements that register the tables of a lake, and create the views over them, in the catalog of another engine.

The catalog stores the names of the tables and where they are. The tables stay as they are, and no statement writes to
them: a comment on a Delta table would be a commit, so comments of tables are not repeated where an engine reads them
from the Delta log. The names carry the catalog and the schema, so that several lakes can be used in one session.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from offsetlake.errors import BadRequest
from offsetlake.lake.definitions import TABLES, definition
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.lake.sql.spark_views import described_view, spark_text
from offsetlake.lake.sql.views import Described, View, views

Dialect = Literal["spark", "databricks", "trino", "duckdb"]

_NAME = re.compile(r"[\w-]+\.[\w-]+")
_TRINO = (
    (re.compile(r"\bSTRING\b"), "VARCHAR"),
    (re.compile(r"\barray_contains\("), "contains("),
    (re.compile(r"\b(\w+) IS NOT TRUE\b"), r"NOT coalesce(\1, FALSE)"),
    # The functions of Trino return null if any argument is null; those of the other engines ignore nulls.
    (re.compile(r"\b(greatest|least)\(([\w.]+), ([\w.]+)\)"), r"coalesce(\1(\2, \3), \2, \3)"),
)
"""What Trino writes differently from the SELECTs in `schemas/views/`, which Spark and DuckDB run unchanged."""


@dataclass(frozen=True, slots=True)
class CatalogSchema:
    """A schema of a catalog; in DuckDB, a schema of an attached database."""

    catalog: str
    schema: str

    @classmethod
    def parse(cls, name: str) -> "CatalogSchema":
        """Return the schema that `CATALOG.SCHEMA` names; raise BadRequest for another form."""
        if not _NAME.fullmatch(name):
            raise BadRequest(
                f"Invalid catalog {name!r}: expected CATALOG.SCHEMA, two names of letters, digits, hyphens and "
                "underscores, such as main.kafka."
            )
        return cls(*name.split("."))

    def quoted(self, quote: str) -> str:
        """Return the qualified name, each part between quotation marks, because it may be a reserved word."""
        return f"{quote}{self.catalog}{quote}.{quote}{self.schema}{quote}"


def catalog_statements(lake: Lake, schema: CatalogSchema, dialect: Dialect) -> Iterator[str]:
    """Yield the statements of a dialect that create the schema, the tables of a lake, and the views over them.

    Raises LakeUnusable if an older program made the lake.
    """
    lake.check_up_to_date()
    locations = {table: table_uri(lake, table, dialect) for table in TABLES}
    yield from _STATEMENTS[dialect](schema, locations)


def table_uri(lake: Lake, table: str, dialect: Dialect) -> str:
    """Return the path or the URI of a table as the engine of a dialect names it."""
    location = lake.table_location(table)
    if dialect == "spark":
        return location.spark_uri
    uri = str(location)
    return f"file://{uri}" if dialect == "trino" and uri.startswith("/") else uri


def _spark(schema: CatalogSchema, locations: Mapping[str, str]) -> Iterator[str]:
    name = schema.quoted("`")
    yield f"CREATE SCHEMA IF NOT EXISTS {name}"
    for table, location in locations.items():
        yield f"CREATE TABLE IF NOT EXISTS {name}.{table} USING delta LOCATION {spark_text(location)}"
    for view in views().values():
        yield from create_view(schema, view, view.select_from(name), "spark")


def _trino(schema: CatalogSchema, locations: Mapping[str, str]) -> Iterator[str]:
    name = schema.quoted('"')
    catalog, _ = name.split(".")
    yield f"CREATE SCHEMA IF NOT EXISTS {name}"
    for table, location in locations.items():
        arguments = {"schema_name": schema.schema, "table_name": table, "table_location": location}
        passed = ", ".join(f"{argument} => {quoted(value)}" for argument, value in arguments.items())
        yield f"CALL {catalog}.system.register_table({passed})"
    for view in views().values():
        select = view.select_from(name)
        for pattern, replacement in _TRINO:
            select = pattern.sub(replacement, select)
        yield from create_view(schema, view, select, "trino")


def _duckdb(schema: CatalogSchema, locations: Mapping[str, str]) -> Iterator[str]:
    name = schema.quoted('"')
    yield f"CREATE SCHEMA IF NOT EXISTS {name}"
    for table in described_tables():
        select = f"SELECT * FROM delta_scan({quoted(locations[table.name])})"  # noqa: S608
        yield from create_view(schema, table, select, "duckdb")
    for view in views().values():
        yield from create_view(schema, view, view.select_from(name), "duckdb")


def described_tables() -> Iterator[Described]:
    """Yield the names, comments and columns of all tables."""
    for table in map(definition, TABLES):
        yield Described(table.name, table.comment, table.column_comments)


def described() -> list[View | Described]:
    """Return all tables, and all views, each after those it is built on."""
    return [*described_tables(), *views().values()]


def create_view(schema: CatalogSchema, view: View | Described, select: str, dialect: Dialect) -> Iterator[str]:
    """Yield the statements of a dialect that create a view in a schema, with its comments."""
    qualified = f"{schema.quoted(quotation_mark(dialect))}.{view.name}"
    match dialect:
        case "spark" | "databricks":
            yield f"CREATE OR REPLACE VIEW {schema.quoted('`')}.{described_view(view)} AS\n{select}"
            return
        case "trino":
            yield f"CREATE OR REPLACE VIEW {qualified} COMMENT {quoted(view.answers)} AS\n{select}"
        case "duckdb":
            yield f"CREATE OR REPLACE VIEW {qualified} AS\n{select}"
            yield f"COMMENT ON VIEW {qualified} IS {quoted(view.answers)}"
    for column, comment in view.columns.items():
        yield f"COMMENT ON COLUMN {qualified}.{column} IS {quoted(comment)}"


def quotation_mark(dialect: Dialect) -> str:
    """Return the character around names in a dialect."""
    return "`" if dialect in ("spark", "databricks") else '"'


_STATEMENTS = {"spark": _spark, "databricks": _spark, "trino": _trino, "duckdb": _duckdb}
