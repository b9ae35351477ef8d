"""`offsetlake forget`: removes the name and the addresses of a principal from the audit events."""

from typing import Annotated

import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.jobs import write_results
from offsetlake.cli.commands.options import JOB_FORMAT, JOBS, LAKE, command
from offsetlake.cli.output import write_note
from offsetlake.cli.progress import Progress
from offsetlake.pipeline import runner
from offsetlake.pipeline.maintain.forget import FORGOTTEN, rows_about

_SHOWN = {"table": 1, "column": 2, "rows": 1, "action": 1}
_LEFT = (
    "The name remains in the log itself until its segments are deleted, and in copies of the lake and of the log; new "
    "events of the principal are recorded again. Client hosts of group members are kept: they name no principal."
)


@command(
    JOBS,
    JOB_FORMAT | LAKE,
    "offsetlake forget --principal User:mallory --lake example/lake",
    "offsetlake forget --principal User:mallory --lake example/lake --execute",
)
def forget(
    context: CommandContext,
    principal: Annotated[
        str, typer.Option("--principal", metavar="PRINCIPAL", help="The principal: User:alice, os:alice.")
    ],
    execute: Annotated[
        bool, typer.Option("--execute", help="Replace the rows. Without this option, only count them.")
    ] = False,
) -> None:
    """Replace the name, the client ids and the addresses of a principal in the audit events: the plan first.

    The files and Delta log entries that contained them are removed too, so earlier versions of the table can no longer
    be read. The table runs records that it was done, without the name.
    """
    if not execute:
        context.write(rows_about(context.open_lake(), principal), _SHOWN)
        write_note(f"Nothing was changed: with --execute, the principal is replaced by {FORGOTTEN!r}. {_LEFT}")
        return
    with Progress() as progress:
        job = runner.run_forget(context.settings.lake, principal, progress.say)
    write_results(context, [job])
    write_note(_LEFT)
