"""`offsetlake rebuild`: tables of latest state are made anew from history."""

import os
from typing import Annotated

import typer

from offsetlake.cli import config
from offsetlake.cli.commands.jobs import RunFormatOption, summarize
from offsetlake.cli.commands.options import JOBS, ConfigOption, LakeOption, app, examples
from offsetlake.cli.output import Progress
from offsetlake.errors import BadRequest
from offsetlake.lake.definitions import TABLES
from offsetlake.pipeline import runner


@app.command(
    rich_help_panel=JOBS,
    epilog=examples(
        "offsetlake rebuild",
        "offsetlake rebuild --table offsets",
        "offsetlake rebuild --table offsets --log-partition 7",
    ),
)
def rebuild(
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="TABLE", help="Only this table; may be repeated. [dim]default: all[/]"),
    ] = None,
    log_partition: Annotated[
        int | None, typer.Option("--log-partition", metavar="N", min=0, help="Only the groups of this log partition.")
    ] = None,
    format_: RunFormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Rebuild offsets, pending_offsets, groups and group_members from history, after another program changed them.

    The tables hold afterwards what the last compaction covered. Of any other table no row changes: only table features
    that deltalake cannot write are taken away.
    """
    options = {"lake": lake, "config": config_file}
    settings = config.load(options | {"format": format_}, os.environ)
    if unknown := {*(table or ())} - {*TABLES}:
        raise BadRequest(f"there is no table {min(unknown)!r}: tables are {', '.join(TABLES)}")
    with Progress() as progress:
        progress.say("loading Spark")

        done = runner.run_rebuild(settings.lake, table or TABLES, log_partition, progress.say)
    summarize(settings, options, [done])
