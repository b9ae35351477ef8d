"""`offsetlake snapshot`: exports the current state as a file."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import LAKE_AND_LOG, QUESTIONS, command
from offsetlake.cli.output import write_line, write_note
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.compact.snapshot import read_snapshot
from offsetlake.pipeline.snapshot_files import export
from offsetlake.queries.in_doubt import sentence_about
from offsetlake.util.amounts import counted


@command(
    QUESTIONS,
    LAKE_AND_LOG,
    "offsetlake snapshot offsets.parquet",
    "offsetlake snapshot offsets.csv --lake example/lake",
    "offsetlake snapshot groups.arrow --table groups --lake /lakes/prod --bootstrap broker-1:9092",
)
def snapshot(
    context: CommandContext,
    file: Annotated[Path, typer.Argument(help="The file to write: .parquet, .arrow, .jsonl or .csv.")],
    table: Annotated[
        Literal["offsets", "pending_offsets", "groups", "group_members"],
        typer.Option("--table", help="The state table. [dim]default: offsets[/]"),
    ] = "offsets",
) -> None:
    """Export the current rows of a state table, including records of the log that no job has read yet.

    The file contains the position in the log that the rows correspond to, except .csv, which is the format of
    kafka-consumer-groups for offsets of several groups. `offsetlake import` reads offsets from it.
    """
    lake = Lake.open(context.settings.lake)
    context.note_unread(lake)
    read = read_snapshot(lake, context.log)
    rows = read.tables[table]
    export(rows, read.ends, file)
    if note := sentence_about(read.tables["unresolved_records"].sort_by([("log_offset", "descending")])):
        write_note(note)
    write_line(f"Wrote {counted(rows.num_rows, 'row')} of {table} to {file}")
