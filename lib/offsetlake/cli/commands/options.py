"""What the commands share: the application that they belong to, and their common options."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Concatenate, Literal, ParamSpec

import typer

from offsetlake.cli.commands.completion import complete_group, complete_topic
from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.output import DEFAULT_ROWS

P = ParamSpec("P")
Options = dict[str, Any]
"""Shared options: the annotation of each by its name."""

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")

JOBS, CHANGES, QUESTIONS = "Jobs", "Changing offsets: the plan first", "Questions"
"""The panels of commands in the help."""

TIMES = "ISO 8601 (UTC), 14:05, 2h ago, now or ms"
"""The forms of a time, for the help (`util.times.to_ms`)."""

LakeOption = Annotated[
    str | None, typer.Option("--lake", metavar="DIR", help="The folder of the lake. [dim]default: lake[/]")
]
LogOption = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="DIR",
        help="The log: the data folder of a broker, or a copy of it. "
        "[dim]default: the log that the lake was last read from[/]",
    ),
]
BootstrapOption = Annotated[
    str | None, typer.Option("--bootstrap", metavar="HOST:PORT", help="The log: a live Kafka cluster.")
]
KafkaConfigOption = Annotated[
    str | None,
    typer.Option("--kafka-config", metavar="FILE", help="A Kafka client properties file, with security.protocol etc."),
]
FleetOption = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="FILE",
        help="A file of lakes (TOML): answer for all of them, with the column cluster. "
        r"[dim]default: OFFSETLAKE_FLEET, else one lake[/]",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="PATTERN", help="Only lakes of --fleet whose names match this shell pattern."),
]
ZooKeeperConfigOption = Annotated[
    str | None,
    typer.Option(
        "--zookeeper-config", metavar="FILE", help="A properties file with credentials: digest.user, sasl.*, tls.*."
    ),
]
ConfigOption = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="A settings file (TOML) that overrides the defaults.")
]
FormatOption = Annotated[
    Literal["table", "json", "csv"] | None,
    typer.Option(
        "--format",
        help="The output format. table is for people; json (one object per line) and csv have all columns, with times "
        "in ms.",
    ),
]
JobFormatOption = Annotated[
    Literal["table", "json", "csv"] | None,
    typer.Option(
        "--format",
        help="The output format. table is a summary; json (one object per line) and csv have the rows of the table "
        "runs, with the versions of all tables.",
    ),
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=0,
        max=2**31 - 1,
        help=f"The maximum number of rows; 0 is unlimited. [dim]default: {DEFAULT_ROWS} for table, else unlimited[/]",
    ),
]

LAKE: Options = {"lake": LakeOption, "config": ConfigOption}
LAKE_AND_LOG: Options = {
    "lake": LakeOption,
    "log": LogOption,
    "bootstrap": BootstrapOption,
    "kafka_config": KafkaConfigOption,
    "config": ConfigOption,
}
FLEET: Options = {"fleet": FleetOption, "cluster": ClusterOption}
"""The options of a command that answers for many lakes; in front of the command, they are options of all commands."""
FORMAT: Options = {"format": FormatOption}
JOB_FORMAT: Options = {"format": JobFormatOption}
ROWS: Options = {"limit": LimitOption, **FORMAT}

GroupPatternOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="PATTERN",
        help="Only groups that match a shell pattern: * ? \\[abc].",
        autocompletion=complete_group,
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option("--group", metavar="GROUP", help="Only this group.", autocompletion=complete_group),
]
TopicOption = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.", autocompletion=complete_topic)
]
NowOption = Annotated[
    str | None,
    typer.Option("--now", metavar="TIME", help=f"The time to evaluate at: {TIMES}. [dim]default: the system clock[/]"),
]


def command(
    panel: str, options: Options, *examples: str
) -> Callable[[Callable[Concatenate[CommandContext, P], None]], Callable[Concatenate[CommandContext, P], None]]:
    """Return a decorator that adds a command, named as its function, to the application.

    The first parameter of the function is the context; the other ones are the options of this command only.

    Args:
        panel: The panel of the help that lists the command.
        options: The shared options that the command accepts: their values are in the context.
        examples: Command lines for the end of the command's help.

    """

    def add(function: Callable[Concatenate[CommandContext, P], None]) -> Callable[Concatenate[CommandContext, P], None]:
        def invoke(typer_context: typer.Context, **values: Any) -> None:
            shared = {name: values.pop(name) for name in options}
            before = typer_context.find_root().params
            shared |= {name: before[name] for name in FLEET if shared.get(name) is None}
            function(CommandContext(shared, shared.pop("limit", None), typer_context.obj), **values)  # type: ignore[call-arg]

        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter("typer_context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
            *(own.replace(kind=keyword) for own in [*inspect.signature(function).parameters.values()][1:]),
            *(inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in options.items()),
        ]
        invoke.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        invoke.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        help_text = inspect.getdoc(function)
        name = function.__name__.rstrip("_").replace("_", "-")
        app.command(name, help=help_text, rich_help_panel=panel, epilog=epilog(*examples))(invoke)
        return function

    return add


def epilog(*examples: str) -> str:
    """Return the end of a command's help with its examples."""
    return "[bold]Examples[/]\n\n" + "\n\n".join(f"  {line}" for line in examples)
