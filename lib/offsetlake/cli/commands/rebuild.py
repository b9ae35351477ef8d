"""`offsetlake rebuild`: rebuilds state tables from history."""

from typing import Annotated

import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.jobs import write_results
from offsetlake.cli.commands.options import JOB_FORMAT, JOBS, LAKE, command
from offsetlake.cli.progress import Progress
from offsetlake.errors import BadRequest
from offsetlake.lake.definitions import TABLES
from offsetlake.pipeline import runner


@command(
    JOBS,
    JOB_FORMAT | LAKE,
    "offsetlake rebuild",
    "offsetlake rebuild --table offsets",
    "offsetlake rebuild --table offsets --log-partition 7",
)
def rebuild(
    context: CommandContext,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="TABLE", help="Only this table; can be repeated. [dim]default: all[/]"),
    ] = None,
    log_partition: Annotated[
        int | None, typer.Option("--log-partition", metavar="N", min=0, help="Only the groups of this log partition.")
    ] = None,
) -> None:
    """Rebuild the state tables, such as offsets and groups, from history after another program changed them.

    The rebuilt tables contain what the last compaction covered. The rows of other tables do not change: rebuild only
    drops their table features that deltalake cannot write.
    """
    if unknown := {*(table or ())} - {*TABLES}:
        raise BadRequest(f"Unknown table {min(unknown)!r}: expected one of {', '.join(TABLES)}.")
    lake = context.settings.lake
    with Progress() as progress:
        progress.say("loading Spark")
        job = runner.run_rebuild(lake, table or TABLES, log_partition, progress.say, context.settings.spark)
    write_results(context, [job])
