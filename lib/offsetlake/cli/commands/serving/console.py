"""`offsetlake console`: serves pages about a lake to browsers."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offsetlake.auth.security_files import SecurityFiles, SecurityPaths
from offsetlake.cli import config
from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import FLEET, LAKE_AND_LOG, QUESTIONS, command
from offsetlake.cli.commands.serving.serve import (
    AclOption,
    CredentialsOption,
    TlsCertificateOption,
    TlsKeyOption,
)
from offsetlake.cli.output import write_note
from offsetlake.errors import BadRequest
from offsetlake.serve.net.security import is_loopback
from offsetlake.util.extras import requires

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from offsetlake.web.console.access import Gate

_PATHS = frozenset({"--log", "--kafka-config", "--config", "--fleet"})


@command(
    QUESTIONS,
    LAKE_AND_LOG | FLEET,
    "offsetlake console --lake example/lake --http 127.0.0.1:8090",
    "offsetlake console --lake example/lake --allow-changes",
)
@requires("console")
def console(
    context: CommandContext,
    http: Annotated[str, typer.Option("--http", metavar="HOST:PORT", help="The listener.")] = "127.0.0.1:8090",
    credentials: CredentialsOption = None,
    acl: AclOption = None,
    tls_certificate: TlsCertificateOption = None,
    tls_key: TlsKeyOption = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let visitors reset, restore and delete offsets and groups.")
    ] = False,
) -> None:
    """Serve pages about groups, offsets and commits to browsers, until Ctrl-C. Without --allow-changes, it only reads.

    The address of a page contains all that it shows, and each page shows the command with the same answer.

    Without --credentials, it listens on loopback only, and everybody on this machine can read the lake. With them,
    people sign in with a token of `offsetlake credentials token`, and see the groups that --acl permits. An address
    that other machines can reach requires TLS, too.

    With --allow-changes, those who have the permission admin on a group can change its offsets: without credentials,
    everybody on this machine. Changes are made as by the commands `reset`, `restore`, `undelete` and `cleanup`.

    With several lakes of --fleet, the first page lists the clusters.
    """
    from offsetlake.web.console.access import Gate  # noqa: PLC0415 - FastAPI takes half a second to import
    from offsetlake.web.console.clusters import ClusterConsole, clusters_application  # noqa: PLC0415
    from offsetlake.web.console.server import serve  # noqa: PLC0415

    host, colon, port = http.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise BadRequest(f"Invalid address {http!r}: expected HOST:PORT, such as 127.0.0.1:8090.")
    host = host.strip("[]")
    options = {"credentials": credentials, "acl": acl, "tls_certificate": tls_certificate, "tls_key": tls_key}
    lakes = context.lakes if context.lakes is not None and len(context.lakes) > 1 else None
    settings = context.settings if lakes is None else config.load(context.options, os.environ)
    files = {name: value or settings.serve.get(name) for name, value in options.items()}
    security = _security(host, files)
    gate = Gate(security, allow_changes)
    if lakes is None:
        context.open_lake()
        app = console_of(context, gate)
    else:
        clusters = {}
        for name in lakes:
            one = CommandContext({**context.options, "cluster": name}, arguments=context.arguments)
            clusters[name] = ClusterConsole(str(one.settings.lake), console_of(one, gate))
        app = clusters_application(clusters, gate)
    serve(app, security, host, int(port), lambda url: write_note(f"Serving {url}: open it in a browser"))


def _security(host: str, files: Mapping[str, str | None]) -> SecurityFiles:
    """Return credentials, ACLs and TLS by the files; raise BadRequest if others could reach an address without them."""
    missing = [name for name in ("credentials", "tls_certificate") if not files[name]]
    if missing and not is_loopback(host):
        raise BadRequest(
            f"Cannot listen on {host}, which other machines can reach, without {' and '.join(missing)}: set them, or "
            "use a loopback address, such as 127.0.0.1."
        )
    paths = SecurityPaths(**files)
    if problems := paths.problems():
        raise BadRequest("; ".join(problems))
    return SecurityFiles(paths)


def console_of(context: CommandContext, gate: "Gate") -> "ASGIApp":
    """Return the console of the lake of a command; write a warning if it cannot make the changes that are allowed.

    The commands on its pages contain absolute paths, because people copy them into shells in other folders.
    """
    from offsetlake.web.console.app import application  # noqa: PLC0415 - FastAPI takes half a second to import
    from offsetlake.web.console.changing.workbench import Workbench  # noqa: PLC0415
    from offsetlake.web.console.dashboard import check_address  # noqa: PLC0415

    lake = context.settings.lake.absolute()
    bench = Workbench(lake, context.log) if gate.allows_changes else None
    if bench is not None and (problem := bench.log_problem()):
        write_note(f"warning: no change can be made now: {problem}")
    if context.lakes is None:
        flags = ["--lake", str(lake), *context.flags("log", "bootstrap", "kafka_config", "config")]
    else:
        flags = context.flags("fleet", "cluster", "config")
    options = zip(flags[::2], flags[1::2], strict=True)
    source = [f"{flag}={Path(value).absolute() if flag in _PATHS else value}" for flag, value in options]
    address = context.settings.console.get("grafana")
    dashboard = check_address(address) if address else ""
    return application(lake, gate, context.settings.retention, bench, source, dashboard)
