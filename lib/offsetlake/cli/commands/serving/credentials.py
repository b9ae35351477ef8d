"""`offsetlake credentials`: manages the users and bearer tokens of the serving process."""

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

from offsetlake.auth.credentials import Credentials
from offsetlake.cli import output
from offsetlake.cli.commands.options import JOBS, app, epilog
from offsetlake.errors import BadRequest
from offsetlake.util.atomic_files import real_path
from offsetlake.util.times import MAX_TIMESTAMP_MS, kept_ms, now_ms

MAX_NAME_LENGTH = 255  # characters
_COLUMNS = pa.schema([("name", pa.string()), ("by", pa.string()), ("expires", pa.timestamp("ms", "UTC"))])

commands = typer.Typer(
    help="Manage the users and tokens of `offsetlake serve`, in a file that it reloads on changes. Passwords are "
    "stored only as SCRAM verifiers.",
    rich_markup_mode="rich",
)
app.add_typer(commands, name="credentials", rich_help_panel=JOBS)

FileOption = Annotated[
    Path, typer.Option("--file", metavar="FILE", help="The credentials file; created if it does not exist.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name; the Kafka principal is User:NAME.")]
DEFAULT_FILE = Path("credentials.json")


@commands.command(
    epilog=epilog(
        "offsetlake credentials add billing",
        "openssl rand -base64 24 | tee billing.password | offsetlake credentials add billing",
    )
)
def add(name: NameArgument, file: FileOption = DEFAULT_FILE) -> None:
    """Add a user NAME, or change its password. The password is prompted for, or read from standard input."""
    _check_name(name)
    password = _password()
    with _changing(file) as known:
        known.add_user(name, password)


@commands.command(epilog=epilog("offsetlake credentials token grafana --expires 90d"))
def token(
    name: NameArgument,
    expires: Annotated[str, typer.Option("--expires", metavar="DURATION", help="How long the token is valid.")] = "90d",
    file: FileOption = DEFAULT_FILE,
) -> None:
    """Create a bearer token for NAME, and print it. The file contains only a hash of it."""
    _check_name(name)
    until = now_ms() + kept_ms(expires)
    if until > MAX_TIMESTAMP_MS:
        raise BadRequest(f"Invalid --expires {expires}: the expiry is after the year 9999.")
    with _changing(file) as known:
        secret = known.add_token(name, until)
    typer.echo(secret)


@commands.command("list", epilog=epilog("offsetlake credentials list"))
def list_(file: FileOption = DEFAULT_FILE) -> None:
    """List all users, and all tokens by their ids."""
    known = Credentials.read(file)
    rows: list[dict[str, Any]] = [{"name": name, "by": "password"} for name in known.users]
    rows += [
        {"name": entry.name, "by": f"token {id_}", "expires": entry.expires} for id_, entry in known.tokens.items()
    ]
    output.write(pa.Table.from_pylist(rows, _COLUMNS), "table")


@commands.command(epilog=epilog("offsetlake credentials remove billing", "offsetlake credentials remove grafana"))
def remove(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME|ID", help="A user, which is removed with all its tokens; or the id of a token."),
    ],
    file: FileOption = DEFAULT_FILE,
) -> None:
    """Remove a user with all its tokens, or revoke one token."""
    with _changing(file, new=False) as known:
        tokens = [id_ for id_, entry in known.tokens.items() if name in {id_, entry.name}]
        if name not in known.users and not tokens:
            raise BadRequest(f"{file} contains no user and no token {name!r}: see `offsetlake credentials list`.")
        known.users.pop(name, None)
        for id_ in tokens:
            del known.tokens[id_]


@contextmanager
def _changing(file: Path, *, new: bool = True) -> Iterator[Credentials]:
    """Yield the credentials of the file, and write them back; only one process at a time can do so.

    The lock is on the folder of the file, after symbolic links are resolved: the file itself is replaced.
    """
    try:
        file = real_path(file)
        folder = os.open(file.parent, os.O_RDONLY)
    except OSError as error:
        raise BadRequest(f"Cannot write the credentials {file}: {error.strerror}.") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        known = Credentials() if new and not file.exists() else Credentials.read(file)
        yield known
        known.write(file)
    finally:
        os.close(folder)


def _check_name(name: str) -> None:
    if not name.isprintable() or not 0 < len(name) <= MAX_NAME_LENGTH:
        raise BadRequest(f"Invalid name {name!r}: expected 1 to {MAX_NAME_LENGTH} printable characters.")


def _password() -> str:
    """Read a password, never from the arguments, which other users of the machine can see."""
    try:
        password = _typed()
        password.encode()
    except UnicodeError as error:
        raise BadRequest("The password is not valid UTF-8. Nothing was changed.") from error
    if not password:
        raise BadRequest("The password is empty. Nothing was changed.")
    return password


def _typed() -> str:
    """Read a line; from a terminal without echo, and twice."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Repeat the password: ") != password:
        raise BadRequest("The passwords differ. Nothing was changed.")
    return password
