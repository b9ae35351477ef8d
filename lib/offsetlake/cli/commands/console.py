"""`offsetlake console`: serves pages about a lake to a browser on this machine."""

from typing import Annotated

import typer

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.options import LAKE, QUESTIONS, command
from offsetlake.cli.output import write_note
from offsetlake.errors import BadRequest


@command(
    QUESTIONS,
    LAKE,
    "offsetlake console --lake example/lake --http 127.0.0.1:8090",
)
def console(
    context: CommandContext,
    http: Annotated[
        str, typer.Option("--http", metavar="HOST:PORT", help="The listener, at a loopback address.")
    ] = "127.0.0.1:8090",
) -> None:
    """Serve pages about groups, offsets and commits to a browser on this machine, until Ctrl-C. It only reads.

    The address of a page contains all that it shows, and each page shows the command with the same answer.
    """
    from offsetlake.console.server import serve  # noqa: PLC0415 - FastAPI takes half a second to import

    host, colon, port = http.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise BadRequest(f"Invalid address {http!r}: expected HOST:PORT, such as 127.0.0.1:8090.")
    context.open_lake()
    serve(
        context.settings.lake,
        host.strip("[]"),
        int(port),
        lambda address: write_note(f"Serving {address}: open http://{address}/ in a browser"),
    )
