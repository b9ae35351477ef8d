"""Completes the names of groups, topics and views in a shell, from the lake that the command line selects."""

import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.errors import OffsetlakeError
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.lake.sql.views import views

MAX_NAMES = 500
"""Names that are offered at most: a lake can contain millions of groups."""


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Return the groups of the lake whose names begin with a text, in their order."""
    return _names(context, "groups", "group_id", incomplete)


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics with stored offsets whose names begin with a text, of the group that is named before."""
    group = context.params.get("group")
    return _names(context, "offsets", "topic", incomplete, None if group is None else f"group_id = {quoted(group)}")


def complete_view(incomplete: str) -> list[str]:
    """Return the views whose names begin with a text, in their order."""
    return sorted(name for name in views() if name.startswith(incomplete))


def _names(context: typer.Context, table: str, column: str, incomplete: str, condition: str | None = None) -> list[str]:
    options = {name: context.params.get(name) for name in ("lake", "config", "fleet", "cluster")}
    where = f"starts_with({column}, {quoted(incomplete)}) AND {condition or 'true'}"
    query = f"SELECT DISTINCT {column} FROM {table} WHERE {where} ORDER BY {column} LIMIT {MAX_NAMES}"  # noqa: S608
    try:
        names: list[str] = Lake.open(CommandContext(options).settings.lake).query(query, table)[column].to_pylist()
    except OffsetlakeError:  # the shell has no place for a message: the command itself reports it when it is run
        return []
    return names
