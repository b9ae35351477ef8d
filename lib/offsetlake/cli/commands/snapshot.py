"""`offsetlake snapshot`: what stands now, as a file for those who only read."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from offsetlake.cli import config
from offsetlake.cli.commands.options import (
    QUESTIONS,
    BootstrapOption,
    ConfigOption,
    KafkaConfigOption,
    LakeOption,
    LogOption,
    app,
    examples,
    log_of,
)
from offsetlake.cli.output import write_line
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.compact.snapshot import export, read_snapshot


@app.command(
    rich_help_panel=QUESTIONS,
    epilog=examples(
        "offsetlake snapshot offsets.parquet",
        "offsetlake snapshot groups.arrow --table groups --lake /lakes/prod --bootstrap broker-1:9092",
    ),
)
def snapshot(
    file: Annotated[Path, typer.Argument(help="The file to write: .parquet or .arrow.")],
    table: Annotated[
        Literal["offsets", "pending_offsets", "groups", "group_members"],
        typer.Option("--table", help="Which of the compacted tables. [dim]default: offsets[/]"),
    ] = "offsets",
    lake: LakeOption = None,
    log: LogOption = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Write a table as it stands now, with the log's tail that no job has read yet, to a file."""
    options = {"lake": lake, "log": log, "bootstrap": bootstrap, "kafka_config": kafka_config, "config": config_file}
    settings = config.load(options, os.environ)
    rows = read_snapshot(Lake.open(settings.lake), log_of(settings)).tables[table]
    export(rows, file)
    write_line(f"{file}: {rows.num_rows:,} rows of {table}")
