"""The statements that register a lake in the catalogs of other engines, run by these engines or read by a parser."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot
import yaml
from jsonschema import Draft202012Validator
from pyspark.sql import SparkSession
from sqlglot import exp

from offsetlake.errors import BadRequest
from offsetlake.lake.definitions import TABLES, definition
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.catalogs import CatalogSchema, Dialect, catalog_statements, table_uri
from offsetlake.lake.sql.dbt_sources import dbt_fleet_sources, dbt_sources
from offsetlake.lake.sql.fleet_catalogs import CLUSTER, fleet_statements, lake_schemas
from offsetlake.lake.sql.views import needed, views
from support.queries.lakes import end, small_lake
from support.queries.view_rows import HISTORY, ODD, PRESENT

pytestmark = pytest.mark.slow

DESCRIBED = {
    **{table: (definition(table).comment, definition(table).column_comments) for table in TABLES},
    **{name: (view.answers, view.columns) for name, view in views().items()},
}
"""The comment, and the comments of the columns, of every table and view."""

ROWS = {
    "audit_events": [{"log_offset": 1, "last_log_offset": 1}],
    "group_members": [{"group_id": "classic", "member_id": "m"}],
    "log_ends": [end(1, 10)],
    "history_cuts": [{"run_id": 1, "scope": "history", "through_run": 1}],
    "quarantine": [{"log_offset": 1, "reason": "a reason"}],
    "unresolved_records": [
        {"group_id": "nobody", "scope": "group", "log_topic": "t", "log_offset": 1, "reason": "why"}
    ],
    "runs": [{"run_id": 1, "job": "ingest", "started_at": 1, "finished_at": 2}],
}
"""Rows of the tables that no view reads: the substitute for `delta_scan` needs one file of each table."""


def full_lake(folder: Path) -> Lake:
    """Return a lake with rows in every table."""
    present = {table: [{**row, "log_partition": 1} for row in rows] for table, rows in PRESENT.items()}
    merged = {
        table: [row for rows in (HISTORY, present, ODD, ROWS) for row in rows.get(table, [])]
        for table in HISTORY | PRESENT | ROWS
    }
    return small_lake(folder, **merged)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return full_lake(tmp_path_factory.mktemp("catalogs") / "it's a `lake`")


@pytest.fixture
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """A session of DuckDB with a database `lakes`, and a substitute for the function of its extension `delta`."""
    with duckdb.connect() as session:
        session.execute("ATTACH ':memory:' AS lakes")
        session.execute("CREATE MACRO delta_scan(folder) AS TABLE SELECT * FROM read_parquet(folder || '/*.parquet')")
        yield session


def statements(lake: Lake, dialect: Dialect, name: str = "lakes.kafka") -> list[str]:
    return [*catalog_statements(lake, CatalogSchema.parse(name), dialect)]


def trino_view(lake: Lake, name: str) -> str:
    """Return the statement that creates a view in Trino."""
    start = f'CREATE OR REPLACE VIEW "lakes"."kafka".{name} COMMENT'
    (created,) = (statement for statement in statements(lake, "trino") if statement.startswith(start))
    return created


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=str)


def test_duckdb_runs_the_statements_and_has_the_same_rows_and_all_comments(
    lake: Lake, duck: duckdb.DuckDBPyConnection
) -> None:
    for statement in statements(lake, "duckdb"):
        duck.execute(statement)
    for name in (*TABLES, *views()):
        expected = lake.query(f"SELECT * FROM {name}", name).to_pylist()
        found = duck.sql(f"SELECT * FROM lakes.kafka.{name}").to_arrow_table().to_pylist()
        assert in_order(found) == in_order(expected), name
        assert expected, name
    comments = dict(duck.execute("SELECT view_name, comment FROM duckdb_views() WHERE NOT internal").fetchall())
    columns = duck.execute(
        "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE schema_name = 'kafka'"
    ).fetchall()
    assert {
        name: (comment, {column: meaning for view, column, meaning in columns if view == name})
        for name, comment in comments.items()
    } == DESCRIBED


def test_two_lakes_in_one_session_do_not_replace_each_other(
    tmp_path: Path, lake: Lake, duck: duckdb.DuckDBPyConnection
) -> None:
    other = small_lake(tmp_path / "other", **ROWS, **{name: rows[:1] for name, rows in (HISTORY | PRESENT).items()})
    for statement in (*statements(lake, "duckdb"), *statements(other, "duckdb", "lakes.other-lake")):
        duck.execute(statement)
    for schema, of in (("kafka", lake), ("other-lake", other)):
        counted = duck.execute(f'SELECT count(*) FROM lakes."{schema}".commit_outcomes').fetchall()
        assert counted == [(of.query("SELECT count(*) AS n FROM commit_outcomes")["n"][0].as_py(),)]


@pytest.fixture(scope="module")
def fleet(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lake]:
    some = {name: rows[:1] for name, rows in (HISTORY | PRESENT).items()}
    other = small_lake(tmp_path_factory.mktemp("catalogs") / "other", **ROWS, **some)
    return {"prod-eu": lake, "us.2": other}


def of_fleet(fleet: dict[str, Lake], dialect: Dialect, name: str = "lakes.kafka") -> list[str]:
    return [*fleet_statements(fleet, CatalogSchema.parse(name), dialect)]


def rows_of_all(fleet: dict[str, Lake], name: str) -> list[dict[str, Any]]:
    return [
        {"cluster": cluster, **row}
        for cluster, each in fleet.items()
        for row in each.query(f"SELECT * FROM {name}", name).to_pylist()
    ]


@pytest.mark.long
def test_duckdb_has_a_schema_for_each_lake_and_views_over_all(
    fleet: dict[str, Lake], duck: duckdb.DuckDBPyConnection
) -> None:
    for statement in of_fleet(fleet, "duckdb"):
        duck.execute(statement)
    for name in DESCRIBED:
        found = duck.sql(f"SELECT * FROM lakes.kafka.{name}").to_arrow_table()
        assert found.column_names[0] == "cluster"
        assert in_order(found.to_pylist()) == in_order(rows_of_all(fleet, name)), name
    for cluster, schema in {"prod-eu": "kafka_prod_eu", "us.2": "kafka_us_2"}.items():
        counted = duck.execute(f"SELECT count(*) FROM lakes.{schema}.commit_outcomes").fetchall()
        assert counted == [(fleet[cluster].query("SELECT count(*) AS n FROM commit_outcomes")["n"][0].as_py(),)]
    columns = duck.execute(
        "SELECT column_name, comment FROM duckdb_columns() WHERE schema_name = 'kafka' AND table_name = 'changes'"
    ).fetchall()
    assert dict(columns) == CLUSTER | views()["changes"].columns


def test_views_over_all_lakes_for_trino_are_those_of_duckdb_and_can_be_parsed(fleet: dict[str, Lake]) -> None:
    trino, duckdb_views = (
        {
            statement.split()[4]: statement.partition(" AS\n")[2]
            for statement in of_fleet(fleet, dialect)
            if statement.startswith('CREATE OR REPLACE VIEW "lakes"."kafka".')
        }
        for dialect in ("trino", "duckdb")
    )
    assert trino == duckdb_views
    assert len(trino) == len(DESCRIBED)
    assert all(isinstance(sqlglot.parse_one(select, dialect="trino"), exp.Union) for select in trino.values())
    assert sum(statement.startswith("CALL ") for statement in of_fleet(fleet, "trino")) == 2 * len(TABLES)


def test_clusters_whose_schemas_would_have_the_same_name_are_refused() -> None:
    with pytest.raises(BadRequest, match=r"The clusters a-b and A\.B would have the same schema, kafka_A_B"):
        lake_schemas(CatalogSchema.parse("main.kafka"), ["a-b", "c", "A.B"])


def test_dbt_has_a_source_for_each_lake_and_one_for_all(fleet: dict[str, Lake]) -> None:
    file = yaml.safe_load(dbt_fleet_sources(fleet, CatalogSchema.parse("main.kafka")))
    Draft202012Validator(DBT_PROPERTIES).validate(file)
    assert [source["schema"] for source in file["sources"]] == ["kafka_prod_eu", "kafka_us_2", "kafka"]
    for source in file["sources"]:
        extra = CLUSTER if source["name"] == "kafka" else {}
        assert {
            table["name"]: {column["name"]: column["description"] for column in table["columns"]}
            for table in source["tables"]
        } == {name: {**extra, **columns} for name, (_, columns) in DESCRIBED.items()}


def without_guards(tree: exp.Expression) -> exp.Expression:
    """Replace `coalesce(greatest(a, b), a, b)` by `greatest(a, b)`; fail for one without this guard.

    `NOT coalesce(a, FALSE)` becomes `NOT a`, as which sqlglot translates `a IS NOT TRUE` although `a` can be null.
    """
    for function in [*tree.find_all(exp.Greatest, exp.Least)]:
        guard = function.parent
        assert isinstance(guard, exp.Coalesce), f"null if an argument is null: {function.sql()}"
        arguments = [function.this, *function.expressions]
        assert [each.sql() for each in guard.expressions] == [each.sql() for each in arguments]
        guard.replace(function)
    for negation in tree.find_all(exp.Not):
        if isinstance(negation.this, exp.Coalesce):
            negation.set("this", negation.this.this)
    return tree


def canonical(tree: exp.Expression) -> str:
    """Return a query in one form: with CAST for TRY_CAST, and without the position of nulls in an order.

    A divisor is also without NULLIF, because the views do not divide by 0.
    """
    for division in tree.find_all(exp.Div):
        if isinstance(division.expression, exp.Nullif):
            division.set("expression", division.expression.this)
    for cast in tree.find_all(exp.TryCast):
        cast.replace(exp.Cast(this=cast.this, to=cast.to))
    for ordered in tree.find_all(exp.Ordered):
        ordered.set("nulls_first", None)
    return tree.sql("trino")


@pytest.mark.parametrize("name", views())
def test_translation_for_trino_is_that_of_sqlglot(lake: Lake, name: str) -> None:
    tree = sqlglot.parse_one(trino_view(lake, name), dialect="trino")
    assert isinstance(tree, exp.Create)
    select = without_guards(tree.expression)
    for table in select.find_all(exp.Table):
        if table.db:
            assert (table.catalog, table.db, table.name in DESCRIBED) == ("lakes", "kafka", True)
            table.set("catalog", None)
            table.set("db", None)
        else:
            assert table.name not in DESCRIBED, "a table or view without the name of its schema"
    (translated,) = sqlglot.transpile(views()[name].select, read="spark", write="trino")
    assert canonical(select) == canonical(sqlglot.parse_one(translated, dialect="trino"))


def test_select_for_trino_has_the_same_rows(lake: Lake, duck: duckdb.DuckDBPyConnection) -> None:
    for statement in statements(lake, "duckdb"):
        duck.execute(statement)
    for name, view in views().items():
        select = trino_view(lake, name).partition(" AS\n")[2]
        assert in_order(duck.sql(select).to_arrow_table().to_pylist()) == in_order(
            lake.query(f"SELECT * FROM {view.name}", name).to_pylist()
        ), name


def test_trino_registers_every_table_and_comments_every_view(lake: Lake) -> None:
    made = statements(lake, "trino", "delta.my-schema")
    assert made[0] == 'CREATE SCHEMA IF NOT EXISTS "delta"."my-schema"'
    for table, statement in zip(TABLES, made[1:], strict=False):
        location = f"file://{lake.table_location(table)}".replace("'", "''")
        assert statement == (
            f"CALL \"delta\".system.register_table(schema_name => 'my-schema', table_name => '{table}', "
            f"table_location => '{location}')"
        )
    comments = [text for text in made if text.startswith("COMMENT ON COLUMN")]
    assert len(comments) == sum(len(view.columns) for view in views().values())
    assert not any(
        isinstance(tree, exp.Command) for tree in sqlglot.parse(";".join(made[1 + len(TABLES) :]), dialect="trino")
    )


@pytest.mark.parametrize(
    ("dialect", "uri"),
    [
        ("spark", "s3a://bucket/lake/offsets"),
        ("databricks", "s3://bucket/lake/offsets"),
        ("trino", "s3://bucket/lake/offsets"),
        ("duckdb", "s3://bucket/lake/offsets"),
    ],
)
def test_tables_in_an_object_store_have_the_uri_of_the_engine(dialect: Dialect, uri: str) -> None:
    assert table_uri(Lake("s3://bucket/lake"), "offsets", dialect) == uri


@pytest.mark.jvm
@pytest.mark.long
def test_spark_runs_the_statements_and_has_all_comments(spark: SparkSession, tmp_path: Path, lake: Lake) -> None:
    versions = lake.versions()
    for statement in statements(lake, "spark", "spark_catalog.kafka"):
        spark.sql(statement)
    try:
        for name, (comment, columns) in DESCRIBED.items():
            found = spark.table(f"spark_catalog.kafka.{name}")
            assert {field.name: field.metadata.get("comment") for field in found.schema} == columns, name
            described = spark.sql(f"DESCRIBE TABLE EXTENDED spark_catalog.kafka.{name}").toArrow().to_pylist()
            assert comment in [row["data_type"] for row in described if row["col_name"] == "Comment"], name
        found = spark.table("spark_catalog.kafka.regressions").toArrow().to_pylist()
        assert in_order(found) == in_order(lake.query("SELECT * FROM regressions").to_pylist())
        assert found
    finally:
        spark.sql("DROP SCHEMA spark_catalog.kafka CASCADE")
    assert lake.versions() == versions, "no statement writes to a table"
    assert lake.count("offset_commits")


@pytest.mark.jvm
@pytest.mark.long
def test_spark_has_views_over_all_lakes(spark: SparkSession, fleet: dict[str, Lake]) -> None:
    names = ("offsets", "log_clock")
    tables, used = needed(names)
    wanted = re.compile(rf"CREATE (SCHEMA|.*\.({'|'.join(tables | {view.name for view in used})}) )")
    try:
        for statement in of_fleet(fleet, "spark", "spark_catalog.kafka"):
            if wanted.match(statement):  # the others take a minute
                spark.sql(statement)
        for name in names:
            found = spark.table(f"spark_catalog.kafka.{name}")
            comments = {field.name: field.metadata.get("comment") for field in found.schema}
            assert comments == CLUSTER | DESCRIBED[name][1]
            assert in_order(found.toArrow().to_pylist()) == in_order(rows_of_all(fleet, name)), name
    finally:
        for schema in ("kafka", "kafka_prod_eu", "kafka_us_2"):
            spark.sql(f"DROP SCHEMA IF EXISTS spark_catalog.{schema} CASCADE")


@pytest.mark.parametrize(
    "name", ["main", "", "main.", ".kafka", "a.b.c", "main.ka'fka", 'main."kafka"', "a b.c", "a.b\n"]
)
def test_invalid_catalog_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match=r"expected CATALOG\.SCHEMA"):
        CatalogSchema.parse(name)


TEXT = {"type": "string", "minLength": 1}
NAME = {"type": "string", "pattern": r"^[\w-]+$"}
COLUMN = {"name": NAME, "description": TEXT}
TABLE = {**COLUMN, "columns": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/column"}}}
DBT_PROPERTIES = {
    "$defs": {
        "column": {"type": "object", "properties": COLUMN, "required": [*COLUMN], "additionalProperties": False},
        "table": {"type": "object", "properties": TABLE, "required": [*TABLE], "additionalProperties": False},
    },
    "type": "object",
    "required": ["version", "sources"],
    "additionalProperties": False,
    "properties": {
        "version": {"const": 2},
        "sources": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "tables"],
                "additionalProperties": False,
                "properties": {
                    "name": NAME, "description": TEXT, "database": NAME, "schema": NAME,
                    "tables": {"type": "array", "items": {"$ref": "#/$defs/table"}},
                },
            },
        },
    },
}  # fmt: skip
"""The properties of https://docs.getdbt.com/reference/source-properties that the file uses."""


def test_dbt_sources_describe_every_table_and_view(lake: Lake) -> None:
    text = dbt_sources(lake, CatalogSchema.parse("main.kafka"))
    file = yaml.safe_load(text)
    Draft202012Validator(DBT_PROPERTIES).validate(file)
    (source,) = file["sources"]
    assert (source["name"], source["database"], source["schema"]) == ("kafka", "main", "kafka")
    assert {
        table["name"]: (
            table["description"], {column["name"]: column["description"] for column in table["columns"]},
        )
        for table in source["tables"]
    } == DESCRIBED  # fmt: skip
    assert not re.search(r"{[{%#]", text), "dbt renders descriptions as Jinja templates"
