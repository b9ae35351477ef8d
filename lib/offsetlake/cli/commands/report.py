"""`offsetlake report`: what a lake says, as a page with pictures."""

from pathlib import Path
from typing import Annotated

import typer

from offsetlake.cli.commands.options import (
    QUESTIONS,
    ConfigOption,
    GroupPatternOption,
    LakeOption,
    app,
    examples,
    opened,
)
from offsetlake.cli.output import Progress, write_line
from offsetlake.errors import BadRequest
from offsetlake.lake.engine import limited_memory
from offsetlake.util.atomic_files import replacing
from offsetlake.util.times import to_ms


@app.command(
    rich_help_panel=QUESTIONS,
    epilog=examples(
        "offsetlake report",
        "offsetlake report --group 'bulk-*' --since 2026-11-21T05:38 --to /var/www/bulk.html",
    ),
)
def report(
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
            help="Where pictures over time begin: ms or ISO 8601. [dim]default: a week before the newest record[/]",
        ),
    ] = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Write one HTML page with pictures: commit rates, lag, what expires when, worst committers, log and tables.

    The page needs nothing else, no network either: send it, print it, read it on a phone.
    """
    settings, at = opened(lake, config_file, None)
    with Progress() as progress, limited_memory():
        progress.say("loading Matplotlib")
        from offsetlake.report.report import report as page_of  # noqa: PLC0415 - a second of importing Matplotlib

        page = page_of(at, settings.retention, group, None if since is None else to_ms(since), progress.say)
        progress.say(f"writing {to}")
        _write(to, page)
    write_line(f"{to}: {len(page.encode()) / 1000:,.0f} kB, open it in a browser")


def _write(file: Path, page: str) -> None:
    """Write all of it, or leave what was there."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as new:
            new.write_text(page, encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"the report cannot be written to {file}: {error.strerror}") from error
