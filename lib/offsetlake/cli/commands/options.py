"""What the commands share: the application they belong to, their common options, and how they open a lake."""

import os
from dataclasses import replace
from typing import Annotated, Literal

import typer

from offsetlake.cli import config
from offsetlake.cli.output import DEFAULT_ROWS
from offsetlake.errors import TableChanged
from offsetlake.lake.foreign.guard import refuse_changed
from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import last_run
from offsetlake.log.address import CLUSTER, LogAddress

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

JOBS, BY_HAND, QUESTIONS = "Jobs", "By hand: a plan first", "Questions"
"""Kinds of commands, as the help has them."""

LakeOption = Annotated[
    str | None, typer.Option("--lake", metavar="DIR", help="Folder of the lake. [dim]default: lake[/]")
]
LogOption = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="DIR",
        help="The log: a broker's data folder, or a copy of it. [dim]default: the log the lake was read from[/]",
    ),
]
BootstrapOption = Annotated[
    str | None, typer.Option("--bootstrap", metavar="HOST:PORT", help="The log: a live Kafka cluster.")
]
KafkaConfigOption = Annotated[
    str | None,
    typer.Option("--kafka-config", metavar="FILE", help="Kafka client properties: security.protocol=... and the like."),
]
ConfigOption = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="Settings in TOML, in place of the built-in defaults.")
]
FormatOption = Annotated[
    Literal["table", "json", "csv"] | None,
    typer.Option("--format", help="table for people; json (an object a line) and csv have all columns, times in ms."),
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=0,
        max=2**31 - 1,
        help=f"At most N rows; 0: all. [dim]default: {DEFAULT_ROWS} of a table, all of json and csv[/]",
    ),
]
GroupPatternOption = Annotated[
    str | None, typer.Option("--group", metavar="PATTERN", help="Only groups like this: * ? \\[abc] as in a shell.")
]
TopicOption = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")]
NowOption = Annotated[
    str | None,
    typer.Option("--now", metavar="TIME", help="Judge for this instant: ms or ISO 8601. [dim]default: the clock[/]"),
]


def examples(*lines: str) -> str:
    """Lay out examples for the end of a command's help."""
    return "[bold]Examples[/]\n\n" + "\n\n".join(f"  {line}" for line in lines)


def opened(
    lake: str | None, config_file: str | None, style: str | None, *, as_it_is: bool = False
) -> tuple[config.Config, Lake]:
    """Open the lake a question is about; raises TableChanged where another program changed a table.

    With `as_it_is` a table that was changed is only warned of on standard error: the question shows what it holds.
    """
    settings = config.load({"lake": lake, "config": config_file, "format": style}, os.environ)
    found = Lake.open(settings.lake)
    try:
        refuse_changed(found)
    except TableChanged as error:
        if not as_it_is:
            raise
        typer.echo(f"warning: {error}", err=True)
    return settings, found


def log_of(settings: config.Config) -> LogAddress:
    """Return the log that the settings name; where they name none, the log that the lake was last read from.

    Raises BadRequest where neither names a log.
    """
    if settings.log is None and settings.bootstrap is None and settings.lake.exists():
        ingest = last_run(Lake.open(settings.lake), "ingest")
        location = ingest.log if ingest else None
        if location and location.startswith(CLUSTER):
            settings = replace(settings, bootstrap=location.removeprefix(CLUSTER))
        else:
            settings = replace(settings, log=location)
    return settings.address()
