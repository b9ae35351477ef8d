"""`offsetlake serve`: replaces this process by the serving process, which needs far fewer modules."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import JOBS, LAKE, command
from offsetlake.cli.commands.serve_settings import read_settings
from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.log.writer.ownership import refuse_broker_folder
from offsetlake.serve.logs import LogFormat
from offsetlake.serve.settings import Settings
from offsetlake.serve.writes.rounds import Flush

_OwnLogOption = Annotated[
    str | None,
    typer.Option("--log", metavar="DIR", help="The log to serve and write; never the data folder of a broker."),
]


@command(
    JOBS,
    {"lake": LAKE["lake"], "log": _OwnLogOption} | LAKE,
    "offsetlake serve --lake example/lake --log example/log --kafka 127.0.0.1:9092",
    "offsetlake serve --lake /lakes/new --log /lakes/new-log --kafka 127.0.0.1:9092 --topics orders:12,payments:6 "
    "--http 127.0.0.1:9093 --log-format json",
    "offsetlake serve --config /etc/offsetlake/offsetlake.toml --check",
)
def serve(
    context: CommandContext,
    kafka: Annotated[
        str | None,
        typer.Option(
            "--kafka",
            metavar="HOST:PORT",
            help="The listener for the Kafka protocol. [dim]default: 127.0.0.1:9092[/]",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="The listener for HTTP: health, offsets, Prometheus metrics. [dim]default: none[/]",
        ),
    ] = None,
    topics: Annotated[
        str | None,
        typer.Option(
            "--topics", metavar="NAME:PARTITIONS,...", help="The topics that exist. [dim]default: every topic[/]"
        ),
    ] = None,
    flush: Annotated[
        Flush | None,
        typer.Option(
            "--flush",
            help="When commits are flushed to disk: always (before they are acknowledged), interval (within a second) "
            "or os (by the operating system).",
        ),
    ] = None,
    log_partitions: Annotated[
        int | None,
        typer.Option(
            "--log-partitions",
            min=1,
            help="The partitions of the log: offsets.topic.num.partitions of its brokers. [dim]default: 50[/]",
        ),
    ] = None,
    commits_recorded: Annotated[
        str | None,
        typer.Option(
            "--commits-recorded",
            metavar="SHARE",
            help="The share of commits, from 0 to 1, for which an audit event is recorded; for tools and deletions it "
            "always is. [dim]default: 0.01[/]",
        ),
    ] = None,
    advertised: Annotated[
        str | None,
        typer.Option("--advertised", metavar="HOST:PORT", help="The address for clients, if it is not --kafka."),
    ] = None,
    tls_certificate: Annotated[
        str | None,
        typer.Option("--tls-certificate", metavar="FILE", help="The server certificate with its chain (PEM)."),
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option("--tls-key", metavar="FILE", help="The private key of the server (PEM).")
    ] = None,
    tls_client_ca: Annotated[
        str | None,
        typer.Option(
            "--tls-client-ca", metavar="FILE", help="Require client certificates that this CA has signed (PEM)."
        ),
    ] = None,
    credentials: Annotated[
        str | None,
        typer.Option("--credentials", metavar="FILE", help="The credentials file of `offsetlake credentials`."),
    ] = None,
    acl: Annotated[
        str | None,
        typer.Option("--acl", metavar="FILE", help="The ACLs of groups (TOML): who may read, commit and delete."),
    ] = None,
    commits_per_second: Annotated[
        int | None,
        typer.Option("--commits-per-second", min=1, help="The quota of each group; groups above it are throttled."),
    ] = None,
    open_to_anyone: Annotated[
        bool,
        typer.Option("--open-to-anyone", help="Allow a listener on a non-loopback address without authentication."),
    ] = False,
    log_format: Annotated[
        LogFormat | None,
        typer.Option("--log-format", help="The format of log lines on standard error: text, or JSON objects."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Validate the configuration, print it, and exit.")] = False,
) -> None:
    """Serve consumers and tools as their offset coordinator, from the tables of the lake and a log that it writes.

    A listener on a non-loopback address requires authentication. The lake and the log are created if they do not exist.
    """
    configured = context.settings
    if configured.log is None:
        raise BadRequest("Specify the folder of the log to serve and write: --log DIR.")
    options = {
        "kafka": kafka,
        "http": http,
        "topics": topics,
        "flush": flush and flush.value,
        "log_partitions": log_partitions,
        "log_format": log_format and log_format.value,
        "commits_recorded": commits_recorded,
        "advertised": advertised,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "tls_client_ca": tls_client_ca,
        "credentials": credentials,
        "acl": acl,
        "commits_per_second": commits_per_second,
        "open_to_anyone": "true" if open_to_anyone else None,
    }
    texts = {**configured.serve, **{name: str(value) for name, value in options.items() if value is not None}}
    settings = read_settings(str(configured.lake), configured.log, texts)
    if check:
        _validate(settings)
        rows = [{"setting": name, "value": _text(value)} for name, value in asdict(settings).items()]
        context.write(pa.Table.from_pylist(rows))
        return
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "offsetlake.serve", settings.to_json()])  # noqa: S606


def _validate(settings: Settings) -> None:
    """Raise LakeUnusable or LogBusy if a serving process could not use its folders."""
    Lake.check(Path(settings.lake))
    refuse_broker_folder(Path(settings.log))


def _text(value: Any) -> str | None:
    return ":".join(map(str, value)) if isinstance(value, tuple) else None if value is None else str(value)
