"""Principals of operating system users, who run jobs and connect to job sockets."""

import os
import pwd
import socket
import struct
from typing import Protocol

_PROCESS_USER_GROUP = struct.Struct("3i")  # struct ucred of Linux


class _Socket(Protocol):
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def os_principal(uid: int) -> str:
    """Return the principal of a user: `os:NAME`, or `os:UID` if the user has no name."""
    try:
        return f"os:{pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"os:{uid}"


def process_principal() -> str:
    """Return the principal of the user who runs this process."""
    return os_principal(os.geteuid())


def peer_principal(connection: _Socket) -> str:
    """Return the principal of the peer of a Unix socket, according to the kernel."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PROCESS_USER_GROUP.size)
    return os_principal(_PROCESS_USER_GROUP.unpack(credentials)[1])
