"""`offsetlake serve`: starts the serving process in place of this one, which has loaded far more than that needs."""

import os
import re
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import typer

from offsetlake import config
from offsetlake.commands.options import JOBS, ConfigOption, LakeOption, LogOption, app, examples
from offsetlake.errors import BadRequest
from offsetlake.serve.logs import LogFormat
from offsetlake.serve.settings import Settings
from offsetlake.serve.writes import Flush

MOST_LOG_PARTITIONS = 10_000
_LOOPBACK = ("localhost", "::1")
_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:]+)\]|(?P<host>[^:]+)):(?P<port>[0-9]{1,5})")
_TOPIC = re.compile(r"(?P<name>[a-zA-Z0-9._-]{1,249}):(?P<partitions>[0-9]{1,9})")


@app.command(
    rich_help_panel=JOBS,
    epilog=examples(
        "offsetlake serve --lake lake --log log",
        "offsetlake serve --log log --kafka 127.0.0.1:9192 --topics orders:12,payments:6",
        "offsetlake serve --log log --http 127.0.0.1:9093 --log-format json",
    ),
)
def serve(
    lake: LakeOption = None,
    log: LogOption = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            "--kafka", metavar="HOST:PORT", help="Where to listen for Kafka's protocol. [dim]default: 127.0.0.1:9092[/]"
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Where to listen for HTTP: health, offsets, metrics for Prometheus. [dim]default: nowhere[/]",
        ),
    ] = None,
    topics: Annotated[
        str | None,
        typer.Option("--topics", metavar="NAME:PARTITIONS,...", help="The topics there are. [dim]default: any[/]"),
    ] = None,
    flush: Annotated[
        Flush | None,
        typer.Option("--flush", help="A commit is on disk before it is answered; within a second; whenever."),
    ] = None,
    log_partitions: Annotated[
        int | None,
        typer.Option("--log-partitions", min=1, help="Of the log: as many as its brokers had. [dim]default: 50[/]"),
    ] = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option("--log-format", help="What it says, on standard error: a sentence or a JSON object a line."),
    ] = None,
    config_file: ConfigOption = None,
) -> None:
    """Serve consumers and tools as their coordinator for offsets: from the lake's tables and the log, which it writes.

    Listens on this machine alone: nobody is asked who they are. A lake or a log that is not there is made.
    """
    given = config.load({"lake": lake, "log": log, "config": config_file}, os.environ)
    if given.log is None:
        raise BadRequest("name the folder of the log to serve and write: --log DIR")
    options = {"kafka": kafka, "topics": topics, "flush": flush and flush.value, "log_partitions": log_partitions}
    options |= {"http": http, "log_format": log_format and log_format.value}
    of = {**given.serve, **{name: str(value) for name, value in options.items() if value is not None}}
    host, port = _address(of["kafka"], "--kafka", "127.0.0.1:9092")
    settings = Settings(
        str(given.lake),
        given.log,
        host,
        port,
        _topics(of.get("topics")),
        _one_of("flush", of["flush"], Flush),
        _number(of),
        _address(of["http"], "--http", "127.0.0.1:9093") if "http" in of else None,
        _one_of("log_format", of["log_format"], LogFormat),
    )
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "offsetlake.serve", settings.to_json()])  # noqa: S606


def _address(text: str, option: str, example: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 2**16 - 1:
        raise BadRequest(f"{option} wants HOST:PORT, such as {example}, not {text!r}")
    host = match["v6"] or match["host"]
    if host not in _LOOPBACK and not host.startswith("127."):
        raise BadRequest(
            f"{option} {text}: whoever reaches that address could write; only loopback addresses are served"
        )
    return host, int(match["port"])


def _one_of(setting: str, text: str, known: type[StrEnum]) -> str:
    if text not in [*known]:
        raise BadRequest(f"{setting} is {text!r}: it is one of {', '.join(known)}")
    return text


def _number(of: Mapping[str, str]) -> int:
    text = of["log_partitions"]
    if not text.isdecimal() or not 1 <= int(text) <= MOST_LOG_PARTITIONS:
        raise BadRequest(f"log_partitions is {text!r}: it is a number from 1 to {MOST_LOG_PARTITIONS}")
    return int(text)


def _topics(text: str | None) -> dict[str, int] | None:
    """Read NAME:PARTITIONS,..."""
    if text is None:
        return None
    found = {}
    for part in text.split(","):
        match = _TOPIC.fullmatch(part.strip())
        if match is None or int(match["partitions"]) < 1:
            raise BadRequest(
                f"--topics wants NAME:PARTITIONS,... such as orders:12,payments:6; {part.strip()!r} is none"
            )
        if match["name"] in found:
            raise BadRequest(f"--topics names {match['name']} twice")
        found[match["name"]] = int(match["partitions"])
    return found
