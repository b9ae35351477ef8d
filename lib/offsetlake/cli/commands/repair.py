"""`offsetlake repair`: what writing in part has left in a log is put right, and what hangs is told."""

from typing import Annotated

import typer

from offsetlake.cli.commands.options import JOBS, ConfigOption, FormatOption, LakeOption, NowOption, app, examples
from offsetlake.cli.commands.plans import hand
from offsetlake.cli.output import tell, write
from offsetlake.errors import BadRequest, Refused
from offsetlake.lake.lake import Lake
from offsetlake.pipeline import runner
from offsetlake.pipeline.changes import repair as job
from offsetlake.pipeline.changes.execute import count_of
from offsetlake.queries import questions
from offsetlake.util.times import duration_ms, now_ms, to_ms

# As in `cli/commands/questions.py`.
_SHOWN = {
    "group_id": 1, "topic": 1, "partition": 1, "committed_offset": 1, "outcome": 1, "evidence": 4, "log_offset": 3,
    "reason": 1,
}  # fmt: skip


@app.command(
    rich_help_panel=JOBS,
    epilog=examples(
        "offsetlake repair --lake example/lake", "offsetlake repair --lake example/lake --open-longer-than 1h"
    ),
)
def repair(
    open_longer_than: Annotated[
        str, typer.Option("--open-longer-than", metavar="DURATION", help="A transaction open so long hangs.")
    ] = "15m",
    now: NowOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    log: Annotated[str | None, typer.Option("--log", metavar="DIR", help="The log to repair: one of our own.")] = None,
    config_file: ConfigOption = None,
) -> None:
    """Write what counts behind commits that were written in part, cut torn ends off, and tell which transactions hang.

    A commit with parts missing never counts; its offsets keep their former values, which are written once more at the
    end of the log. A broker repairs its own log: this is for a log of our own.
    """
    limit = duration_ms(open_longer_than)
    instant = now_ms() if now is None else to_ms(now)
    with hand(lake, log, None, None, config_file, format_) as at:
        if at.log.folder is None:
            raise BadRequest("a broker repairs its own log: name a log of our own with --log")
        torn = job.cut_torn_ends(at.log.folder)
        writable = Lake.create(at.lake.path)
        runner.catch_up(writable, at.log, at.say)
        came = job.repair(writable, at.log, instant, at.say, torn)
        runner.catch_up(writable, at.log, at.say)
        hanging = questions.transactions(writable, instant, limit).num_rows
    write(came, at.settings.format, _SHOWN)
    refused = count_of(came, "refused")
    for note in torn:
        tell(note)
    done = came.num_rows - refused
    tell(
        f"{done:,} offsets written again, behind commits that are not complete"
        if done or refused
        else "no commit in part is there"
    )
    if hanging:
        question = at.command("transactions", "--open-longer-than", open_longer_than, of=("lake", "config"))
        tell(f"{hanging:,} transactions are open for {open_longer_than} or longer: {question}")
    if refused:
        raise Refused(f"{refused:,} of {came.num_rows:,} were refused: see reason; they are tried again next time")
