"""`offsetlake serve`: starts the serving process in place of this one, which has loaded far more than that needs."""

import os
import re
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from offsetlake import config
from offsetlake.commands.options import JOBS, ConfigOption, LakeOption, LogOption, app, examples
from offsetlake.errors import BadRequest
from offsetlake.serve.security import problems
from offsetlake.serve.settings import Settings
from offsetlake.serve.writes import Flush

_FILES = ("tls_certificate", "tls_key", "tls_client_ca", "credentials", "rights")
_NUMBERS = {
    "log_partitions": 10_000,
    "max_connections": 1_000_000,
    "max_connections_per_address": 1_000_000,
    "commits_per_second": 1_000_000,
}
"""Settings that are a number from 1 to the one here."""
_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:]+)\]|(?P<host>[^:]+)):(?P<port>[0-9]{1,5})")
_TOPIC = re.compile(r"(?P<name>[a-zA-Z0-9._-]{1,249}):(?P<partitions>[0-9]{1,9})")


@app.command(
    rich_help_panel=JOBS,
    epilog=examples(
        "offsetlake serve --lake lake --log log",
        "offsetlake serve --log log --kafka 127.0.0.1:9192 --topics orders:12,payments:6",
        "offsetlake serve --kafka 0.0.0.0:9092 --advertised offsets.example:9092 --tls-certificate server.pem "
        "--tls-key server.key --credentials credentials.json --rights rights.toml",
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
        "topics": topics,
        "flush": flush and flush.value,
        "log_partitions": log_partitions,
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
    settings = _settings(str(given.lake), given.log, of)
    if wrong := problems(settings):
        raise BadRequest("; ".join(wrong))
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "offsetlake.serve", settings.to_json()])  # noqa: S606


def _settings(lake: str, log: str, of: Mapping[str, str]) -> Settings:
    """Read settings as texts; BadRequest where one makes no sense."""
    host, port = _address("kafka", of["kafka"])
    more: dict[str, Any] = {name: of[name] for name in _FILES if name in of}
    more |= {name: _number(of, name, most) for name, most in _NUMBERS.items() if name in of}
    if "advertised" in of:
        more["advertised"] = _address("advertised", of["advertised"])
    if of.get("open_to_anyone", "false") not in {"true", "false"}:
        raise BadRequest(f"open_to_anyone is {of['open_to_anyone']!r}: it is true or false")
    more["open_to_anyone"] = of.get("open_to_anyone") == "true"
    more["commits_recorded"] = _share(of["commits_recorded"])
    return Settings(lake, log, host, port, _topics(of.get("topics")), _flush(of["flush"]), **more)


def _address(option: str, text: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 2**16 - 1:
        raise BadRequest(f"--{option} wants HOST:PORT, such as 127.0.0.1:9092, not {text!r}")
    return match["v6"] or match["host"], int(match["port"])


def _flush(text: str) -> str:
    if text not in [*Flush]:
        raise BadRequest(f"flush is {text!r}: it is one of {', '.join(Flush)}")
    return text


def _number(of: Mapping[str, str], name: str, most: int) -> int:
    text = of[name]
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise BadRequest(f"{name} is {text!r}: it is a number from 1 to {most}")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise BadRequest(f"commits_recorded is {text!r}: it is a share of all commits from 0 (none) to 1 (all)")
    return share


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
