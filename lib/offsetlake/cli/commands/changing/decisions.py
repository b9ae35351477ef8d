"""`offsetlake reject`: a person decides that planned tombstones are not written."""

from pathlib import Path
from typing import Annotated

import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import FORMAT, JOBS, LAKE, command
from offsetlake.cli.output import write, write_note
from offsetlake.cli.progress import Progress
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.lake import Lake
from offsetlake.log.writer.os_users import process_principal
from offsetlake.pipeline.emit.decisions import read_selection
from offsetlake.pipeline.expire.rejections import reject as reject_tombstones

# The columns of a table for people, each with its importance (`offsetlake.cli.tables.Column`).
_SHOWN = {
    "group_id": 1, "topic": 1, "partition": 1, "committed_offset": 2, "rule": 1, "outcome": 1, "reason": 1,
}  # fmt: skip


@command(
    JOBS,
    FORMAT | LAKE,
    "offsetlake tombstones --outcome planned --group 'search*' --lake example/lake --format json > kept.jsonl",
    "offsetlake reject kept.jsonl --lake example/lake",
)
def reject(
    context: CommandContext,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Planned tombstones: rows of `offsetlake tombstones --format json`.")
    ],
) -> None:
    """Withdraw planned tombstones, and do not plan them again until their offsets are committed again.

    The outcome of a rejected tombstone is withdrawn, and the reason names who rejected it. `offsetlake cleanup` deletes
    such offsets and groups nevertheless.
    """
    selected = read_selection(file)
    lake = Lake.create(open_verified(context.settings.lake).location)
    with Progress() as progress:
        rows, _ = reject_tombstones(lake, selected, process_principal(), progress.say)
    write(rows, context.settings.format, _SHOWN)
    write_note(f"{rows.num_rows:,} tombstones were withdrawn.")
