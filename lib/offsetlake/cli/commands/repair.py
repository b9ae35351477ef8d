"""`offsetlake repair`: repairs incomplete commits and torn ends of a log, and reports hanging transactions."""

from typing import Annotated

import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import FORMAT, JOBS, LAKE, NowOption, command
from offsetlake.cli.output import write, write_note
from offsetlake.cli.progress import Progress
from offsetlake.errors import BadRequest, Refused
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.lake import Lake
from offsetlake.pipeline import runner
from offsetlake.pipeline.changes import repair as job
from offsetlake.pipeline.changes.execute import count_of
from offsetlake.queries import questions
from offsetlake.util.amounts import counted, noun
from offsetlake.util.command_lines import command_line
from offsetlake.util.times import duration_ms

# The columns of a table for people, each with its importance (`offsetlake.cli.tables.Column`).
_SHOWN = {
    "group_id": 1, "topic": 1, "partition": 1, "committed_offset": 1, "outcome": 1, "evidence": 4, "log_offset": 3,
    "reason": 1,
}  # fmt: skip
_OwnLogOption = Annotated[
    str | None, typer.Option("--log", metavar="DIR", help="The log to repair: one that offsetlake serves.")
]


@command(
    JOBS,
    FORMAT | {"log": _OwnLogOption} | LAKE,
    "offsetlake repair --lake example/lake",
    "offsetlake repair --lake example/lake --open-longer-than 1h",
)
def repair(
    context: CommandContext,
    open_longer_than: Annotated[
        str,
        typer.Option(
            "--open-longer-than", metavar="DURATION", help="The age from which an open transaction is reported."
        ),
    ] = "15m",
    now: NowOption = None,
) -> None:
    """Repair the offsets of incomplete commits, truncate torn ends, and report hanging transactions.

    A commit in parts of which some are missing never takes effect; its offsets keep their previous values, which are
    written again at the end of the log. The log must be one that offsetlake serves: a broker repairs its own.
    """
    min_age_ms = duration_ms(open_longer_than)
    now_or_then = context.now if now is None else context.instant("--now", now)
    log, verified = context.log, open_verified(context.settings.lake)
    with Progress() as progress:
        if log.folder is None:
            raise BadRequest("Cannot repair a live cluster: select a log that offsetlake serves with --log.")
        truncated = job.truncate_torn_ends(log.folder)
        lake = Lake.create(verified.location)
        runner.catch_up(lake, log, progress.say)
        rows = job.repair(lake, log, now_or_then, progress.say, truncated)
        runner.catch_up(lake, log, progress.say)
        hanging = questions.transactions(lake, now_or_then, min_age_ms).num_rows
    write(rows, context.settings.format, _SHOWN)
    for note in truncated:
        write_note(note)
    refused = count_of(rows, "refused")
    repaired = rows.num_rows - refused
    write_note(
        f"Wrote {counted(repaired, 'offset')} again, after incomplete commits."
        if rows.num_rows
        else "No commit is incomplete."
    )
    if hanging:
        flags = context.flags("fleet", "cluster", "lake", "config")
        words = ["transactions", "--open-longer-than", open_longer_than, *flags]
        write_note(
            f"{counted(hanging, 'transaction is', 'transactions are')} open for {open_longer_than} or longer: "
            f"{command_line(*words)}"
        )
    if refused:
        raise Refused(
            f"{refused:,} of {counted(rows.num_rows, 'offset')} {noun(refused, 'was', 'were')} refused: see the "
            "column reason. Run the command again to "
            "retry them."
        )
