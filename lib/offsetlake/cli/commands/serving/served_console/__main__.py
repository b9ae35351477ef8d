"""The process of the console that `offsetlake serve` starts at the first request of `/console`.

    python -m offsetlake.cli.commands.serving.served_console SETTINGS DESCRIPTOR

SETTINGS are those of the serving process as JSON. DESCRIPTOR is the socket at which the serving process passes on
connections (`offsetlake.web.console.server.serve_behind`); if the console cannot be served, it receives the reason.
"""

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

from starlette.types import ASGIApp

from offsetlake.auth.security_files import SecurityFiles
from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.serving.console import console_of
from offsetlake.errors import BadRequest, OffsetlakeError
from offsetlake.serve.net.security import security_paths
from offsetlake.serve.settings import CONSOLE_PATH, ConsoleSettings, Settings
from offsetlake.util.log_lines import log_to_stderr
from offsetlake.util.processes import CHILD_NICENESS, leave
from offsetlake.web.console.access import Gate
from offsetlake.web.console.server import serve_behind
from offsetlake.web.http.console_process import READY

_OOM_SCORE = Path("/proc/self/oom_score_adj")


def main() -> int:
    """Serve until the parent closes its end of the socket, and return the exit code."""
    control = socket.socket(fileno=int(sys.argv[2]))
    control.set_inheritable(False)
    os.nice(CHILD_NICENESS)
    with suppress(OSError):
        _OOM_SCORE.write_text("1000", encoding="ascii")  # if memory is short, this process ends, not its parent
    settings = Settings.from_json(sys.argv[1])
    log_to_stderr(settings.log_format)
    try:
        security = SecurityFiles(security_paths(settings))
        app = _application(settings, settings.console or ConsoleSettings(), security)
    except OffsetlakeError as error:
        control.sendall(str(error).encode())
        return error.exit_code
    serve_behind(app, security, control, READY, CONSOLE_PATH)
    return 0


def _application(settings: Settings, console: ConsoleSettings, security: SecurityFiles) -> ASGIApp:
    """Return the console of the served lake and log."""
    context = CommandContext({**console.options, "log": settings.log})
    if str(context.settings.lake) != settings.lake:
        other = context.settings.lake
        raise BadRequest(f"The settings name the lake {other} now, but {settings.lake} is served. Restart the server.")
    context.open_lake()
    return console_of(context, Gate(security, console.allows_changes, CONSOLE_PATH))


if __name__ == "__main__":
    leave(main())
