"""The commands that query the audit views, and compare offsets; none of them starts Spark."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import pyarrow as pa
import typer

from offsetlake.cli.commands.completion import complete_view
from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.each_lake import each_lake
from offsetlake.cli.commands.options import (
    FLEET,
    LAKE,
    QUESTIONS,
    ROWS,
    TIMES,
    GroupOption,
    GroupPatternOption,
    TopicOption,
    command,
)
from offsetlake.cli.output import DEFAULT_IMPORTANCE, write, write_exact, write_note
from offsetlake.cli.progress import Progress
from offsetlake.errors import BadRequest
from offsetlake.lake.sql.catalogs import CatalogSchema, catalog_statements
from offsetlake.lake.sql.dbt_sources import dbt_fleet_sources, dbt_sources
from offsetlake.lake.sql.engine import limited_memory
from offsetlake.lake.sql.fleet_catalogs import fleet_statements
from offsetlake.lake.sql.spark_views import spark_statements
from offsetlake.lake.sql.views import View
from offsetlake.lake.sql.views import views as all_views

MIN_SLOW_SECONDS = 5  # a query of all groups that takes longer suggests --group


@command(
    QUESTIONS,
    ROWS | LAKE | FLEET,
    "offsetlake audit",
    "offsetlake audit changes --group 'bulk-*' --since 2026-11-21T05:38:54",
    "offsetlake audit commit_rate --limit 10",
)
def audit(
    context: CommandContext,
    view: Annotated[
        str | None,
        typer.Argument(
            metavar="[VIEW]", autocompletion=complete_view, help="The view. [dim]default: list all views[/]"
        ),
    ] = None,
    group: GroupPatternOption = None,
    topic: TopicOption = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help=f"Only rows from this time on: {TIMES}.")
    ] = None,
) -> None:
    """Query an audit view: changes, rewound groups, commit rates, upcoming expirations and more; worst first."""
    if view is None:
        answers = {name: definition.answers for name, definition in sorted(all_views().items())}
        write(pa.table({"view": [*answers], "answers": [*answers.values()]}), context.format)
    else:
        _query(context, view, group, topic, since)


@each_lake()
@limited_memory()
def _query(context: CommandContext, view: str, group: str | None, topic: str | None, since: str | None) -> None:
    since_ms = None if since is None else context.instant("--since", since)
    with Progress(quiet=True) as progress:
        progress.say(f"querying {view}")
        rows = context.questions.scan_audit(
            view, group, topic, since=since_ms, limit=context.max_rows, advance=progress.advance
        )
    if group is None and "group_id" in all_views()[view].columns and progress.seconds > MIN_SLOW_SECONDS:
        write_note("The query read all groups: it is faster with --group PATTERN.")
    context.write(rows, _importance(all_views()[view], rows.column_names))


@command(
    QUESTIONS,
    ROWS | LAKE | FLEET,
    "offsetlake diff --from 2026-11-21T05:38:48 --to 2026-11-21T05:38:50 --group warehouse",
)
@each_lake()
@limited_memory()
def diff(
    context: CommandContext,
    from_: Annotated[str, typer.Option("--from", metavar="TIME", help=f"The first time: {TIMES}.")],
    to: Annotated[str, typer.Option("--to", metavar="TIME", help=f"The second time: {TIMES}.")],
    group: GroupOption = None,
    topic: TopicOption = None,
) -> None:
    """Compare the offsets at two times: show those that differ, and the difference."""
    start, end = context.instant("--from", from_), context.instant("--to", to)
    with Progress(quiet=True) as progress:
        progress.say("comparing offsets")
        rows = context.questions.diff(start, end, group, topic, limit=context.max_rows, advance=progress.advance)
    context.write(rows)


@command(
    QUESTIONS,
    LAKE | FLEET,
    "offsetlake views > lake.sql",
    "make spark-sql",
    "offsetlake views --catalog main.kafka --dialect databricks > databricks.sql",
    "offsetlake views --catalog main.kafka --dialect dbt > sources.yml",
    "offsetlake views --catalog main.kafka --fleet conf/lakes.toml > all.sql",
)
def views(
    context: CommandContext,
    catalog: Annotated[
        str | None,
        typer.Option(
            "--catalog",
            metavar="CATALOG.SCHEMA",
            help="Persistent tables and views in this schema; with --fleet, in a schema for each lake, and views over "
            "all of them in this one. [dim]default: temporary views for spark-sql[/]",
        ),
    ] = None,
    dialect: Annotated[
        Literal["spark", "databricks", "trino", "duckdb", "dbt"] | None,
        typer.Option(
            "--dialect",
            help="The engine of the catalog; dbt prints a file of sources instead of statements. "
            "[dim]default: spark[/]",
        ),
    ] = None,
) -> None:
    """Print SQL statements that create the tables and views of the lake, with comments, in Spark or another engine."""
    if catalog is None:
        if dialect is not None:
            raise BadRequest("--dialect requires --catalog CATALOG.SCHEMA.")
        if context.lakes is not None and len(context.lakes) > 1:
            raise BadRequest("The views of several lakes require --catalog CATALOG.SCHEMA.")
        _write_statements(spark_statements(context.open_lake()))
        return
    schema = CatalogSchema.parse(catalog)
    if context.lakes is not None:
        lakes = {name: context.of_cluster(name).open_lake() for name in context.lakes}
        if dialect == "dbt":
            write_exact(dbt_fleet_sources(lakes, schema))
        else:
            _write_statements(fleet_statements(lakes, schema, dialect or "spark"))
    elif dialect == "dbt":
        write_exact(dbt_sources(context.open_lake(), schema))
    else:
        _write_statements(catalog_statements(context.open_lake(), schema, dialect or "spark"))


def _write_statements(statements: Iterable[str]) -> None:
    write_exact("".join(f"{statement};\n\n" for statement in statements))


def _importance(view: View, columns: Sequence[str]) -> dict[str, int]:
    """Return the importance of the columns of a view (`offsetlake.cli.tables.Column`)."""
    least = {name: number for number, name in enumerate(reversed(view.least_important), DEFAULT_IMPORTANCE + 1)}
    return {name: least.get(name, DEFAULT_IMPORTANCE) for name in columns}
