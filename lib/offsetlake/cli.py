"""The command `offsetlake`: parse, build, call, report. What the commands do is elsewhere."""

import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Literal, NoReturn

import typer
from typer.exceptions import TyperException

from offsetlake import config
from offsetlake.audit import questions
from offsetlake.audit.as_of import offsets_as_of
from offsetlake.errors import OffsetlakeError
from offsetlake.lake.definitions import TABLES
from offsetlake.lake.lake import Lake
from offsetlake.lake.select import select
from offsetlake.output import Progress, write
from offsetlake.times import to_ms

EXIT_OF_A_BUG = 70  # EX_SOFTWARE
EXIT_OF_CTRL_C = 130

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

LakeOption = Annotated[
    str | None, typer.Option("--lake", metavar="DIR", help="Folder of the lake. [dim]default: lake[/]")
]
LogOption = Annotated[
    str | None, typer.Option("--log", metavar="DIR", help="The log: a broker's data folder, or a copy of it.")
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
LimitOption = Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="At most so many rows.")]

_OFFSETS_SHOWN = (
    "group_id", "topic", "partition", "committed_offset", "metadata", "commit_timestamp", "log_partition", "log_offset",
)  # fmt: skip
_GROUPS_SHOWN = (
    "group_id", "group_type", "state", "state_timestamp", "protocol_type", "member_count", "subscribed_topics",
    "offsets",
)  # fmt: skip
_HISTORY_SHOWN = (
    "log_offset", "log_timestamp", "event", "committed_offset", "previous_offset", "difference", "metadata",
    "producer_id", "outcome",
)  # fmt: skip


def _examples(*lines: str) -> str:
    return "[bold]Examples[/]\n\n" + "\n\n".join(f"  {line}" for line in lines)


@app.callback(invoke_without_command=True)
def offsetlake(
    context: typer.Context,
    wants_version: Annotated[bool, typer.Option("--version", help="Tell the version and leave.")] = False,
) -> None:
    """Consumer offsets as a lakehouse: Kafka's offset commit log in Delta tables, and the questions asked of it."""
    if wants_version:
        typer.echo(f"offsetlake {_version()}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(epilog=_examples("offsetlake run --log /backup/kafka-data", "offsetlake run --bootstrap broker-1:9092"))
def run(
    lake: LakeOption = None,
    log: LogOption = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Read what is new in the log and bring the tables up to date: ingest, then compact."""
    options = {"lake": lake, "log": log, "bootstrap": bootstrap, "kafka_config": kafka_config, "config": config_file}
    _jobs(options, reads=True, compacts=True)


@app.command(epilog=_examples("offsetlake ingest --log /backup/kafka-data --lake /lakes/orders"))
def ingest(
    lake: LakeOption = None,
    log: LogOption = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Read what is new in the log into the history tables, each record once."""
    options = {"lake": lake, "log": log, "bootstrap": bootstrap, "kafka_config": kafka_config, "config": config_file}
    _jobs(options, reads=True, compacts=False)


@app.command(epilog=_examples("offsetlake compact --lake /lakes/orders"))
def compact(lake: LakeOption = None, config_file: ConfigOption = None) -> None:
    """Bring offsets, pending offsets and groups up to what history holds."""
    _jobs({"lake": lake, "config": config_file}, reads=False, compacts=True)


@app.command(
    epilog=_examples(
        "offsetlake offsets --group billing",
        "offsetlake offsets --as-of 2026-01-31T14:05 --format csv",
    )
)
def offsets(
    group: Annotated[str | None, typer.Option("--group", metavar="GROUP", help="Only this group.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", metavar="TIME", help="As they were then: ms since the epoch or ISO 8601, UTC unless it says."
        ),
    ] = None,
    limit: LimitOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Where every group is: the latest committed offset of each group, topic and partition, now or as of a time."""
    settings, opened = _open(lake, config_file, format_)
    if as_of is None:
        answer = questions.offsets(opened, group, topic, limit)
    else:
        answer = offsets_as_of(opened, to_ms(as_of), group, topic, limit)
    write(answer, settings.format, _OFFSETS_SHOWN)


@app.command(epilog=_examples("offsetlake groups", "offsetlake groups --group 'billing-*' --state Empty"))
def groups(
    group: Annotated[
        str | None, typer.Option("--group", metavar="PATTERN", help="Only groups like this: * ? [abc] as in a shell.")
    ] = None,
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help="Only groups in this state.")] = None,
    group_type: Annotated[
        Literal["classic", "consumer", "share", "streams"] | None,
        typer.Option("--type", help="Only groups of this type."),
    ] = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Every group: type, state, members, subscription, number of offsets."""
    settings, opened = _open(lake, config_file, format_)
    write(questions.groups(opened, group, state, group_type), settings.format, _GROUPS_SHOWN)


@app.command(epilog=_examples("offsetlake history --group billing --topic orders --partition 0 --limit 20"))
def history(
    group: Annotated[str, typer.Option("--group", metavar="GROUP", help="The group.")],
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="The topic.")],
    partition: Annotated[int, typer.Option("--partition", metavar="P", help="The partition.")],
    limit: LimitOption = None,
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Every commit of one partition by one group, newest first: who was where when, and what jumped back."""
    settings, opened = _open(lake, config_file, format_)
    write(questions.history(opened, group, topic, partition, limit), settings.format, _HISTORY_SHOWN)


@app.command(
    epilog=_examples(
        'offsetlake sql "SELECT group_id, count(*) AS commits FROM offset_commits GROUP BY group_id"',
        'offsetlake sql "SELECT * FROM runs" --format json',
    )
)
def sql(
    statement: Annotated[
        str, typer.Argument(metavar="SELECT", help=f"A SELECT in DataFusion's dialect, over {', '.join(TABLES)}.")
    ],
    format_: FormatOption = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Ask anything in SQL, of all tables of the lake; it only reads."""
    settings, opened = _open(lake, config_file, format_)
    write(select(opened, statement), settings.format)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line, that of the process where none is given, and leave the process with its exit code."""
    signal.signal(signal.SIGINT, _interrupt)
    sys.exit(_exit_code(arguments))


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    logging.disable()  # py4j would log the trace of the call to the JVM that is given up
    raise KeyboardInterrupt


def _exit_code(arguments: Sequence[str] | None) -> int:
    try:
        result: Any = app(args=arguments, prog_name="offsetlake", standalone_mode=False)
    except (OffsetlakeError, TyperException) as error:
        message = error.format_message() if isinstance(error, TyperException) else str(error)
        typer.echo(f"error: {' '.join(message.split())}", err=True)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_OF_CTRL_C
    except Exception:  # noqa: BLE001 - the outermost frame; nothing is hidden
        traceback.print_exc()
        return EXIT_OF_A_BUG
    return result if isinstance(result, int) else 0


def _jobs(options: dict[str, str | None], *, reads: bool, compacts: bool) -> None:
    from offsetlake import cycle, summary  # noqa: PLC0415 - half a second of importing Spark, which questions need not

    settings = config.load(options, os.environ)
    log = settings.address() if reads else None
    with Progress() as progress:
        done = cycle.run_jobs(settings.lake, log, compacts=compacts, say=progress.say)
    flags = [word for name in ("lake", "config") if (value := options[name]) for word in (f"--{name}", value)]
    summary.summarize(Lake.open(settings.lake), done, flags)


def _open(lake: str | None, config_file: str | None, style: str | None) -> tuple[config.Config, Lake]:
    settings = config.load({"lake": lake, "config": config_file, "format": style}, os.environ)
    return settings, Lake.open(settings.lake)


def _version() -> str:
    try:
        return version("offsetlake")
    except PackageNotFoundError:
        return "of a checkout"


if __name__ == "__main__":
    main()
