"""`offsetlake credentials`: who may log in to the serving process, by password or by bearer token."""

import getpass
import sys
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from offsetlake import output
from offsetlake.commands.options import JOBS, app, examples
from offsetlake.errors import BadRequest
from offsetlake.serve.credentials import Credentials
from offsetlake.times import LAST_INSTANT, duration_ms, now_ms

LONGEST_NAME = 255  # characters
_COLUMNS = pa.schema([("name", pa.string()), ("by", pa.string()), ("expires", pa.timestamp("ms", "UTC"))])

commands = typer.Typer(
    help="Who may log in to `offsetlake serve`, which reads the file again when it changes. It holds no password.",
    rich_markup_mode="rich",
)
app.add_typer(commands, name="credentials", rich_help_panel=JOBS)

FileOption = Annotated[
    Path, typer.Option("--file", metavar="FILE", help="The credentials file; made where it is not there.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name; to Kafka it is User:NAME.")]
DEFAULT_FILE = Path("credentials.json")


@commands.command(
    epilog=examples("offsetlake credentials add billing", "pass billing | offsetlake credentials add billing")
)
def add(name: NameArgument, file: FileOption = DEFAULT_FILE) -> None:
    """Let NAME log in with a password, or with a new one; it is asked for, or read from standard input."""
    _check_name(name)
    known = Credentials.read(file) if file.exists() else Credentials()
    known.add_user(name, _password())
    known.write(file)


@commands.command(epilog=examples("offsetlake credentials token grafana --expires 90d"))
def token(
    name: NameArgument,
    expires: Annotated[str, typer.Option("--expires", metavar="DURATION", help="How long it is good for.")] = "90d",
    file: FileOption = DEFAULT_FILE,
) -> None:
    """Make a bearer token for NAME, and print it: it is not kept anywhere."""
    _check_name(name)
    until = now_ms() + duration_ms(expires)
    if until > LAST_INSTANT:
        raise BadRequest(f"--expires {expires}: no instant is as late as that")
    known = Credentials.read(file) if file.exists() else Credentials()
    made = known.add_token(name, until)
    known.write(file)
    typer.echo(made)


@commands.command("list")
def list_(file: FileOption = DEFAULT_FILE) -> None:
    """List who may log in, and all tokens by their ids."""
    known = Credentials.read(file)
    rows: list[dict[str, Any]] = [{"name": name, "by": "password"} for name in known.users]
    rows += [{"name": of.name, "by": f"token {id_}", "expires": of.expires} for id_, of in known.tokens.items()]
    output.write(pa.Table.from_pylist(rows, _COLUMNS), "table")


@commands.command(
    epilog=examples("offsetlake credentials remove billing", "offsetlake credentials remove 3f9a5cd1e20b")
)
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME|ID", help="A name, with all its tokens; or the id of a token.")],
    file: FileOption = DEFAULT_FILE,
) -> None:
    """Let NAME in no more, or take back one token."""
    known = Credentials.read(file)
    tokens = [id_ for id_, of in known.tokens.items() if name in {id_, of.name}]
    if name not in known.users and not tokens:
        raise BadRequest(f"{file} knows neither a name nor a token {name!r}: see `offsetlake credentials list`")
    known.users.pop(name, None)
    for id_ in tokens:
        del known.tokens[id_]
    known.write(file)


def _check_name(name: str) -> None:
    if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
        raise BadRequest(f"{name!r} is no name: it has 1 to {LONGEST_NAME} characters that can be printed")


def _password() -> str:
    """Read a password, from the terminal without showing it; never from the arguments, which everybody can see."""
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Once more: ") != password:
            raise BadRequest("the two passwords differ: nothing is changed")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise BadRequest("an empty password lets anybody in: nothing is changed")
    return password
