"""Users of the machine as principals: who runs a job, and who comes in at the door of a log."""

import pwd
import socket
import struct
from typing import Protocol

_PROCESS_USER_GROUP = struct.Struct("3i")  # ucred of Linux


class _Socket(Protocol):
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def os_principal(uid: int) -> str:
    """Name a user, `os:NAME`; by number where nobody has named it."""
    try:
        return f"os:{pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"os:{uid}"


def peer_principal(connection: _Socket) -> str:
    """Name the user at the other end of a Unix socket, as the kernel knows it."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PROCESS_USER_GROUP.size)
    return os_principal(_PROCESS_USER_GROUP.unpack(found)[1])
