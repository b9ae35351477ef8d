"""The commands that ask the views; none of them starts Spark."""

import os
from collections.abc import Sequence
from typing import Annotated

import pyarrow as pa
import typer

from offsetlake.cli import config
from offsetlake.cli.commands.options import (
    QUESTIONS,
    ConfigOption,
    FormatOption,
    GroupPatternOption,
    LakeOption,
    LimitOption,
    TopicOption,
    app,
    examples,
    opened,
)
from offsetlake.cli.output import DEFAULT_IMPORTANCE, Progress, tell, write, write_exact
from offsetlake.lake.engine import limited_memory
from offsetlake.lake.spark_views import spark_statements
from offsetlake.lake.views import View
from offsetlake.lake.views import views as all_views
from offsetlake.queries.audits import audit as rows_of
from offsetlake.queries.diff import diff as between
from offsetlake.util.times import to_ms

LONG_SECONDS = 5  # after which it is said what is faster


@app.command(
    rich_help_panel=QUESTIONS,
    epilog=examples(
        "offsetlake audit",
        "offsetlake audit changes --group 'bulk-*' --since 2026-11-21T05:38:54",
        "offsetlake audit commit_rate --limit 10",
    ),
)
@limited_memory()
def audit(
    view: Annotated[
        str | None, typer.Argument(metavar="[VIEW]", help="The view. [dim]default: tell which there are[/]")
    ] = None,
    group: GroupPatternOption = None,
    topic: TopicOption = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only what was from then on: ms or ISO 8601.")
    ] = None,
    limit: LimitOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Ask a view: what changed, who went back, who commits too much, what goes soon, and more; worst first."""
    if view is None:
        settings = config.load({"lake": lake, "config": config_file, "format": format_}, os.environ)
        listed = {name: of.answers for name, of in sorted(all_views().items())}
        return write(pa.table({"view": [*listed], "answers": [*listed.values()]}), settings.format)
    settings, at = opened(lake, config_file, format_)
    with Progress(quiet=True) as progress:
        progress.say(f"asking {view}")
        instant = None if since is None else to_ms(since)
        found = rows_of(at, view, group, topic, instant, limit or None, progress.advance)
    if group is None and "group_id" in all_views()[view].columns and progress.seconds > LONG_SECONDS:
        tell("all groups were looked at: it is faster with --group PATTERN")
    return write(found, settings.format, _importance(all_views()[view], found.column_names), limit)


@app.command(
    rich_help_panel=QUESTIONS,
    epilog=examples("offsetlake diff --from 2026-11-21T05:38:48 --to 2026-11-21T05:38:50 --group warehouse"),
)
@limited_memory()
def diff(
    from_: Annotated[str, typer.Option("--from", metavar="TIME", help="The first instant: ms or ISO 8601.")],
    to: Annotated[str, typer.Option("--to", metavar="TIME", help="The second one.")],
    group: Annotated[str | None, typer.Option("--group", metavar="GROUP", help="Only this group.")] = None,
    topic: TopicOption = None,
    limit: LimitOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Offsets at two instants side by side: those that are not the same, and by how much."""
    settings, at = opened(lake, config_file, format_)
    with Progress(quiet=True) as progress:
        progress.say("comparing offsets")
        found = between(at, to_ms(from_), to_ms(to), group, topic, limit or None, progress.advance)
    write(found, settings.format, limit=limit)


@app.command(
    rich_help_panel=QUESTIONS,
    epilog=examples("offsetlake views > lake.sql", "make spark-sql"),
)
def views(lake: LakeOption = None, config_file: ConfigOption = None) -> None:
    """Print the tables and views of the lake as statements for spark-sql with Delta: temporary views, with comments."""
    _, at = opened(lake, config_file, None)
    write_exact("".join(f"{statement};\n\n" for statement in spark_statements(at)))


def _importance(view: View, columns: Sequence[str]) -> dict[str, int]:
    """Return the importance of a view's columns (`offsetlake.cli.tables.Column`)."""
    least = {name: number for number, name in enumerate(reversed(view.least_important), DEFAULT_IMPORTANCE + 1)}
    return {name: least.get(name, DEFAULT_IMPORTANCE) for name in columns}
