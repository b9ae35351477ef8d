"""What visitors of a console have: tokens and permissions, in the files that the settings name, and a way to leave."""

import http.client
import socket
from pathlib import Path

from offsetlake.auth.credentials import Credentials

FAR_FUTURE = 4_000_000_000_000


def tokens_of(folder: Path, *names: str) -> dict[str, str]:
    """Write the file of credentials, and return the tokens by name."""
    known = Credentials()
    tokens = {name: known.add_token(name, FAR_FUTURE) for name in names}
    known.write(folder / "credentials.json")
    return tokens


def acl_file(folder: Path, *entries: tuple[str, str, list[str]]) -> str:
    """Write a file of ACL entries, each a principal, a pattern of groups and the permissions; return its path."""
    path = folder / "acl.toml"
    path.write_text(
        "".join(
            f'[[acl]]\nprincipal = "{principal}"\ngroup = "{group}"\npermissions = {permissions}\n'
            for principal, group, permissions in entries
        )
    )
    return str(path)


def leave_during(port: int, path: str) -> None:
    """Send a GET request, and disconnect without reading the response."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    assert connection.sock is not None
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
