"""`offsetlake serve`: starts the serving process in place of this one, which has loaded far more than that needs."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from offsetlake.cli import config
from offsetlake.cli.commands.options import JOBS, ConfigOption, LakeOption, app, examples
from offsetlake.cli.commands.serve_settings import read_settings
from offsetlake.cli.output import write
from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.log.writer.ownership import refuse_brokers_own
from offsetlake.serve.logs import LogFormat
from offsetlake.serve.settings import Settings
from offsetlake.serve.writes.rounds import Flush


@app.command(
    rich_help_panel=JOBS,
    epilog=examples(
        "offsetlake serve --lake example/lake --log example/log --kafka 127.0.0.1:9092",
        "offsetlake serve --lake /lakes/new --log /lakes/new-log --kafka 127.0.0.1:9092 --topics orders:12,payments:6 "
        "--http 127.0.0.1:9093 --log-format json",
        "offsetlake serve --config /etc/offsetlake/offsetlake.toml --check",
    ),
)
def serve(
    lake: LakeOption = None,
    log: Annotated[
        str | None, typer.Option("--log", metavar="DIR", help="The log to serve and write: one of our own.")
    ] = None,
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
    commits_recorded: Annotated[
        str | None,
        typer.Option(
            "--commits-recorded",
            metavar="SHARE",
            help="Of all commits, 0 to 1, to record who sent them; of tools and deletions it always is. "
            "[dim]default: 0.01[/]",
        ),
    ] = None,
    advertised: Annotated[
        str | None,
        typer.Option("--advertised", metavar="HOST:PORT", help="Where clients are to connect, if not to --kafka."),
    ] = None,
    tls_certificate: Annotated[
        str | None, typer.Option("--tls-certificate", metavar="FILE", help="Of the server, with its chain, in PEM.")
    ] = None,
    tls_key: Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its key, in PEM.")] = None,
    tls_client_ca: Annotated[
        str | None,
        typer.Option("--tls-client-ca", metavar="FILE", help="Let in only clients with a certificate of it."),
    ] = None,
    credentials: Annotated[
        str | None,
        typer.Option("--credentials", metavar="FILE", help="Who may log in, as `offsetlake credentials` writes it."),
    ] = None,
    rights: Annotated[
        str | None,
        typer.Option("--rights", metavar="FILE", help="Who may read, commit to and delete which groups, in TOML."),
    ] = None,
    commits_per_second: Annotated[
        int | None, typer.Option("--commits-per-second", min=1, help="Of one group; what is over it is slowed down.")
    ] = None,
    open_to_anyone: Annotated[
        bool, typer.Option("--open-to-anyone", help="Listen beyond this machine, and ask nobody who they are.")
    ] = False,
    log_format: Annotated[
        LogFormat | None,
        typer.Option("--log-format", help="What it says, on standard error: a sentence or a JSON object a line."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether it could start with these settings, and which they are.")
    ] = False,
    config_file: ConfigOption = None,
) -> None:
    """Serve consumers and tools as their coordinator for offsets: from the lake's tables and the log, which it writes.

    Listens on this machine alone, unless clients have to log in. A lake or a log that is not there is made.
    """
    given = config.load({"lake": lake, "log": log, "config": config_file}, os.environ)
    if given.log is None:
        raise BadRequest("name the folder of the log to serve and write: --log DIR")
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
        "rights": rights,
        "commits_per_second": commits_per_second,
        "open_to_anyone": "true" if open_to_anyone else None,
    }
    of = {**given.serve, **{name: str(value) for name, value in options.items() if value is not None}}
    settings = read_settings(str(given.lake), given.log, of)
    if check:
        _tell(settings, given.format)
        return
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "offsetlake.serve", settings.to_json()])  # noqa: S606


def _tell(settings: Settings, format_: str) -> None:
    """Tell what a serving process would run with; LakeUnusable or LogBusy where it could not start with its folders."""
    Lake.check(Path(settings.lake))
    refuse_brokers_own(Path(settings.log))
    rows = [{"setting": name, "value": _shown(value)} for name, value in asdict(settings).items()]
    write(pa.Table.from_pylist(rows), format_)


def _shown(value: Any) -> str | None:
    return ":".join(map(str, value)) if isinstance(value, tuple) else None if value is None else str(value)
