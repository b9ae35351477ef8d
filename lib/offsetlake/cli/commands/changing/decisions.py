"""`offsetlake reject`: a person decides that planned tombstones are not written."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import FORMAT, JOBS, LAKE, command
from offsetlake.cli.output import write, write_note
from offsetlake.cli.progress import Progress
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.lake import Lake
from offsetlake.log.writer.os_users import process_principal
from offsetlake.pipeline import dismissals
from offsetlake.pipeline.emit.decisions import read_selection
from offsetlake.pipeline.expire import rejecting
from offsetlake.pipeline.expire.rejections import rejections
from offsetlake.util.amounts import counted

# The columns of a table for people, each with its importance (`offsetlake.cli.tables.Column`).
_SHOWN = {
    "group_id": 1, "topic": 1, "partition": 1, "committed_offset": 2, "rule": 1, "outcome": 1, "reason": 1,
}  # fmt: skip


@command(
    JOBS,
    FORMAT | LAKE,
    "offsetlake tombstones --outcome planned --group 'search*' --lake example/lake --format json > kept.jsonl",
    "offsetlake reject kept.jsonl --lake example/lake",
    "offsetlake reject kept.jsonl --take-back --lake example/lake",
    "offsetlake audit orphan_groups --lake example/lake --format json > used.jsonl",
    "offsetlake reject used.jsonl --of orphans --lake example/lake",
    "offsetlake reject --of orphans --lake example/lake",
)
def reject(
    context: CommandContext,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="Planned tombstones: rows of `offsetlake tombstones --format json`.",
            show_default=False,
        ),
    ] = None,
    take_back: Annotated[
        bool, typer.Option("--take-back", help="Take back rejections: these tombstones can be planned again.")
    ] = False,
    of: Annotated[
        Literal["tombstones", "orphans", "incomplete", "hanging"],
        typer.Option(
            "--of",
            help="What the rows are: tombstones, or rows of the audit orphan_groups, of pending_offsets, or of the "
            "audit hanging_transactions.",
        ),
    ] = "tombstones",
) -> None:
    """Withdraw planned tombstones, and do not plan them again until their offsets are committed again.

    The outcome of a rejected tombstone is withdrawn, and the reason names who rejected it. `offsetlake cleanup` deletes
    such offsets and groups nevertheless. With --take-back, the next `offsetlake expire` plans them again if a rule
    still expires them.

    Rows of audits, with --of, are not listed in the review of the console until their offsets change. Without FILE,
    show what is rejected.
    """
    if file is None:
        lake = context.open_lake()
        write(dismissals.dismissed(lake, of) if of != "tombstones" else rejections(lake), context.format)
        return
    if of != "tombstones":
        _reject_rows(context, file, of, take_back=take_back)
        return
    selected = read_selection(file)
    lake = Lake.create(open_verified(context.settings.lake).location)
    with Progress() as progress:
        decide = rejecting.take_back if take_back else rejecting.reject
        rows, _ = decide(lake, selected, process_principal(), progress.say)
    write(rows, context.settings.format, _SHOWN)
    if take_back:
        write_note(
            f"{counted(selected.num_rows, 'rejection was', 'rejections were')} taken back: `offsetlake expire` "
            "evaluates them again."
        )
    else:
        write_note(f"{counted(rows.num_rows, 'tombstone was', 'tombstones were')} withdrawn.")


def _reject_rows(context: CommandContext, file: Path, of: str, *, take_back: bool) -> None:
    subject = dismissals.SUBJECTS[of]
    selected = read_selection(file, subject.key, shlex.join(subject.question))
    lake = Lake.create(open_verified(context.settings.lake).location)
    with Progress() as progress:
        if take_back:
            rows = dismissals.readmit(lake, dismissals.keys_of(of, selected), progress.say)
        else:
            rows = dismissals.dismiss(lake, of, selected, process_principal(), progress.say)
    write(rows, context.settings.format, {"subject": 1, "group_id": 1, "key": 2, "requester": 1})
    write_note(f"{counted(selected.num_rows, 'row was', 'rows were')} {'taken back' if take_back else 'rejected'}.")
