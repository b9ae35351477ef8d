"""`offsetlake serve`: replaces this process by the serving process, which needs far fewer modules."""

import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import JOBS, LAKE, KafkaConfigOption, command
from offsetlake.cli.commands.serving.serve_settings import with_options
from offsetlake.coordinator.settings import BROKER_NAMES
from offsetlake.lake.lake import Lake
from offsetlake.log.writer.ownership import refuse_broker_folder
from offsetlake.serve.settings import ConsoleAccess, Settings, without_secrets
from offsetlake.serve.writes.rounds import Flush
from offsetlake.util.extras import requires
from offsetlake.util.log_lines import LogFormat

OwnLogOption = Annotated[
    str | None,
    typer.Option("--log", metavar="DIR", help="The log to serve and write; never the data folder of a broker."),
]

KafkaOption = Annotated[
    str | None,
    typer.Option(
        "--kafka",
        metavar="HOST:PORT",
        help="The listener for the Kafka protocol. [dim]default: 127.0.0.1:9092[/]",
    ),
]
_HttpOption = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        help="The listener for HTTP: health, offsets, Prometheus metrics. [dim]default: none[/]",
    ),
]
_ConsoleOption = Annotated[
    ConsoleAccess | None,
    typer.Option(
        "--console",
        help="The console at /console of --http: to read, also to make changes (for those with the permission admin), "
        "or off. [dim]default: read[/]",
    ),
]
_ShareOption = Annotated[
    str | None,
    typer.Option(
        "--share",
        metavar="HOST:PORT",
        help="The listener for share consumers of the topics of the cluster. [dim]default: none[/]",
    ),
]
_TopicsOption = Annotated[
    str | None,
    typer.Option("--topics", metavar="NAME:PARTITIONS,...", help="The topics that exist. [dim]default: every topic[/]"),
]
_FlushOption = Annotated[
    Flush | None,
    typer.Option(
        "--flush",
        help="When commits are flushed to disk: always (before they are acknowledged), interval (within a second) "
        "or os (by the operating system).",
    ),
]
_LogPartitionsOption = Annotated[
    int | None,
    typer.Option(
        "--log-partitions",
        min=1,
        help="The partitions of the log: offsets.topic.num.partitions of its brokers. [dim]default: 50[/]",
    ),
]
_CommitsRecordedOption = Annotated[
    str | None,
    typer.Option(
        "--commits-recorded",
        metavar="SHARE",
        help="The share of commits, from 0 to 1, for which an audit event is recorded; for tools and deletions it "
        "always is. [dim]default: 0.01[/]",
    ),
]
AdvertisedOption = Annotated[
    str | None,
    typer.Option("--advertised", metavar="HOST:PORT", help="The address for clients, if it is not --kafka."),
]
TlsCertificateOption = Annotated[
    str | None,
    typer.Option("--tls-certificate", metavar="FILE", help="The server certificate with its chain (PEM)."),
]
TlsKeyOption = Annotated[
    str | None, typer.Option("--tls-key", metavar="FILE", help="The private key of the server (PEM).")
]
TlsClientCaOption = Annotated[
    str | None,
    typer.Option("--tls-client-ca", metavar="FILE", help="Require client certificates that this CA has signed (PEM)."),
]
CredentialsOption = Annotated[
    str | None,
    typer.Option("--credentials", metavar="FILE", help="The credentials file of `offsetlake credentials`."),
]
AclOption = Annotated[
    str | None,
    typer.Option(
        "--acl", metavar="FILE", help="The ACLs (TOML): who may read, commit and delete groups, and read topics."
    ),
]
_CommitsPerSecondOption = Annotated[
    int | None,
    typer.Option("--commits-per-second", min=1, help="The quota of each group; groups above it are throttled."),
]
OpenToAnyoneOption = Annotated[
    bool | None,
    typer.Option("--open-to-anyone", help="Allow a listener on a non-loopback address without authentication."),
]
_LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option("--log-format", help="The format of log lines on standard error: text, or JSON objects."),
]
_CheckOption = Annotated[bool, typer.Option("--check", help="Validate the configuration, print it, and exit.")]


ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="HOST:PORT,...",
        help="A Kafka cluster: to coordinate its groups as the broker --node-id, after `offsetlake adopt`, or to serve "
        "share consumers at --share.",
    ),
]
NodeIdOption = Annotated[
    int | None,
    typer.Option("--node-id", min=0, max=2**31 - 1, help="The node id in that cluster, which no broker has or had."),
]
_MetadataMaxAgeOption = Annotated[
    str | None,
    typer.Option(
        "--metadata-max-age",
        metavar="DURATION",
        help="How old the metadata of the cluster may become before it is read again. [dim]default: 5s[/]",
    ),
]


@command(
    JOBS,
    {"lake": LAKE["lake"], "log": OwnLogOption, "kafka_config": KafkaConfigOption} | LAKE,
    "offsetlake serve --lake example/lake --log example/log --kafka 127.0.0.1:9092",
    "offsetlake serve --lake /lakes/new --log /lakes/new-log --kafka 127.0.0.1:9092 --topics orders:12,payments:6 "
    "--http 127.0.0.1:9093 --log-format json",
    "offsetlake serve --lake /lakes/new --log /lakes/new-log --cluster broker-1:9092,broker-2:9092 --node-id 1000 "
    "--kafka-config client.properties --kafka 0.0.0.0:9092 --advertised offsets.example:9092",
    "offsetlake serve --config /etc/offsetlake/offsetlake.toml --check",
)
@requires("serve")
def serve(
    context: CommandContext,
    kafka: KafkaOption = None,
    http: _HttpOption = None,
    console: _ConsoleOption = None,
    share: _ShareOption = None,
    topics: _TopicsOption = None,
    cluster: ClusterOption = None,
    node_id: NodeIdOption = None,
    metadata_max_age: _MetadataMaxAgeOption = None,
    flush: _FlushOption = None,
    log_partitions: _LogPartitionsOption = None,
    commits_recorded: _CommitsRecordedOption = None,
    advertised: AdvertisedOption = None,
    tls_certificate: TlsCertificateOption = None,
    tls_key: TlsKeyOption = None,
    tls_client_ca: TlsClientCaOption = None,
    credentials: CredentialsOption = None,
    acl: AclOption = None,
    commits_per_second: _CommitsPerSecondOption = None,
    open_to_anyone: OpenToAnyoneOption = None,
    log_format: _LogFormatOption = None,
    check: _CheckOption = False,
) -> None:
    """Serve consumers and tools as their offset coordinator, from the tables of the lake and a log that it writes.

    With --cluster and --node-id, this process is a broker of that cluster which leads `__consumer_offsets` and no other
    topic. With --cluster and --share, it serves share consumers of the topics of that cluster. --kafka-config has the
    client properties for the cluster, such as security.protocol.
    A listener on a non-loopback address requires authentication. The lake and the log are created if they do not exist.
    """
    options = {
        "kafka": kafka,
        "http": http,
        "console": console and console.value,
        "share": share,
        "topics": topics,
        "cluster": cluster,
        "node_id": node_id,
        "metadata_max_age": metadata_max_age,
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
    settings, secrets = without_secrets(with_options(context.settings, "the log to serve and write", options))
    if settings.console is not None:
        settings = replace(settings, console=replace(settings.console, options=context.options))
    if check:
        context.write(_checked(settings))
        return
    sys.stdout.flush()
    arguments = [sys.executable, "-m", "offsetlake.cli.serve_process", settings.to_json()]
    os.execve(sys.executable, arguments, {**os.environ, **secrets})  # noqa: S606


def _checked(settings: Settings) -> pa.Table:
    """Return a row for each setting; raise LakeUnusable or LogBusy if a serving process could not use its folders."""
    Lake.check(settings.lake)
    refuse_broker_folder(Path(settings.log))
    values = asdict(settings)
    groups = values.pop("coordinator") | {"consumer_assignors": ",".join(settings.coordinator.consumer_assignors)}
    values |= {f"groups.{name}": groups[field] for field, name in BROKER_NAMES.items()}
    rows = [{"setting": name, "value": _text(value)} for name, value in values.items()]
    return pa.Table.from_pylist(rows)


def _text(value: Any) -> str | None:
    return ":".join(map(str, value)) if isinstance(value, tuple) else None if value is None else str(value)
