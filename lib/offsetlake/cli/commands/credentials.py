"""`offsetlake credentials`: who may log in to the serving process, by password or by bearer token."""

import fcntl
import getpass
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from offsetlake.cli import output
from offsetlake.cli.commands.options import JOBS, app, examples
from offsetlake.errors import BadRequest
from offsetlake.serve.auth.credentials import Credentials
from offsetlake.util.atomic_files import real_path
from offsetlake.util.times import LAST_INSTANT, duration_ms, now_ms

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
    epilog=examples(
        "offsetlake credentials add billing",
        "openssl rand -base64 24 | tee billing.password | offsetlake credentials add billing",
    )
)
def add(name: NameArgument, file: FileOption = DEFAULT_FILE) -> None:
    """Let NAME log in with a password, or with a new one; it is asked for, or read from standard input."""
    _check_name(name)
    password = _password()
    with _changing(file) as known:
        known.add_user(name, password)


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
    with _changing(file) as known:
        made = known.add_token(name, until)
    typer.echo(made)


@commands.command("list", epilog=examples("offsetlake credentials list"))
def list_(file: FileOption = DEFAULT_FILE) -> None:
    """List who may log in, and all tokens by their ids."""
    known = Credentials.read(file)
    rows: list[dict[str, Any]] = [{"name": name, "by": "password"} for name in known.users]
    rows += [{"name": of.name, "by": f"token {id_}", "expires": of.expires} for id_, of in known.tokens.items()]
    output.write(pa.Table.from_pylist(rows, _COLUMNS), "table")


@commands.command(epilog=examples("offsetlake credentials remove billing", "offsetlake credentials remove grafana"))
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME|ID", help="A name, with all its tokens; or the id of a token.")],
    file: FileOption = DEFAULT_FILE,
) -> None:
    """Let NAME in no more, or take back one token."""
    with _changing(file, new=False) as known:
        tokens = [id_ for id_, of in known.tokens.items() if name in {id_, of.name}]
        if name not in known.users and not tokens:
            raise BadRequest(f"{file} knows neither a name nor a token {name!r}: see `offsetlake credentials list`")
        known.users.pop(name, None)
        for id_ in tokens:
            del known.tokens[id_]


@contextmanager
def _changing(file: Path, *, new: bool = True) -> Iterator[Credentials]:
    """Yield what the file has, and write it again: one at a time, or one brings back what another has removed.

    The lock is on the folder of the file itself, whichever symbolic link leads to it.
    """
    try:
        file = real_path(file)
        folder = os.open(file.parent, os.O_RDONLY)  # of the file itself there is soon another one
    except OSError as error:
        raise BadRequest(f"credentials {file} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        known = Credentials() if new and not file.exists() else Credentials.read(file)
        yield known
        known.write(file)
    finally:
        os.close(folder)


def _check_name(name: str) -> None:
    if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
        raise BadRequest(f"{name!r} is no name: it has 1 to {LONGEST_NAME} characters that can be printed")


def _password() -> str:
    """Read a password; never from the arguments, which everybody can see."""
    try:
        password = _typed()
        password.encode()
    except UnicodeError as error:
        raise BadRequest("a password is UTF-8, this one is not: nothing is changed") from error
    if not password:
        raise BadRequest("an empty password lets anybody in: nothing is changed")
    return password


def _typed() -> str:
    """Read a line, from the terminal without showing it."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != password:
        raise BadRequest("the two passwords differ: nothing is changed")
    return password
