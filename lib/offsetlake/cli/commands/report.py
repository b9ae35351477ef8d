"""`offsetlake report`: writes an HTML page with charts about a lake."""

from pathlib import Path
from typing import Annotated

import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import LAKE, QUESTIONS, GroupPatternOption, command
from offsetlake.cli.output import write_line
from offsetlake.cli.progress import Progress
from offsetlake.errors import BadRequest
from offsetlake.lake.sql.engine import limited_memory
from offsetlake.util.atomic_files import replacing
from offsetlake.util.times import to_ms


@command(
    QUESTIONS,
    LAKE,
    "offsetlake report",
    "offsetlake report --group 'bulk-*' --since 2026-11-21T05:38 --to /var/www/bulk.html",
)
def report(
    context: CommandContext,
    to: Annotated[
        Path,
        typer.Option(
            "--to", metavar="FILE", help="The file to write. [dim]default: report.html[/]", show_default=False
        ),
    ] = Path("report.html"),
    group: GroupPatternOption = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="The start of charts over time: ms or ISO 8601. [dim]default: a week before the newest record[/]",
        ),
    ] = None,
) -> None:
    """Write an HTML page with charts of commit rates, lag, expirations, top committers, the log and the tables.

    The page is self-contained and needs no network access.
    """
    lake = context.open_lake()
    with Progress() as progress, limited_memory():
        progress.say("loading Matplotlib")
        from offsetlake.report.report import report as render  # noqa: PLC0415 - Matplotlib takes a second to import

        since_ms = None if since is None else to_ms(since)
        page = render(lake, context.settings.retention, group, since_ms, progress.say)
        progress.say(f"writing {to}")
        _write(to, page)
    context.note_dropped(lake)
    write_line(f"Wrote {to} ({len(page.encode()) / 1000:,.0f} kB): open it in a browser")


def _write(file: Path, page: str) -> None:
    """Replace the file atomically."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as temporary:
            temporary.write_text(page, encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"Cannot write the report to {file}: {error.strerror}.") from error
