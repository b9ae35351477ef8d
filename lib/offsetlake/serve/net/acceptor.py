"""Accepts connections on listening sockets, and pauses while no file descriptor is available.

uvloop's own servers are not used: if `accept` fails for lack of descriptors, uvloop closes the listening socket.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

from offsetlake.errors import BadRequest

LOG = logging.getLogger(__name__)
BACKLOG = 1024
MAX_ACCEPTED = 32
"""Maximum number of connections that are accepted before other events are processed."""

RETRY_SECONDS = 1.0
"""The pause when no descriptor is available; meanwhile clients wait in the backlog of the socket."""

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Acceptor:
    """Passes each connection and the address of its client to `start`, until it is closed."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        start: Callable[[socket.socket, Any], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.sockets, self._start, self._loop = sockets, start, loop
        self._retry: asyncio.TimerHandle | None = None
        for listening in sockets:
            listening.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Stop listening."""
        self._pause()
        for listening in self.sockets:
            listening.close()

    def _resume(self) -> None:
        for listening in self.sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _pause(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        for listening in self.sockets:
            if listening.fileno() >= 0:
                self._loop.remove_reader(listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(MAX_ACCEPTED):
            try:
                connection, address = listening.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                LOG.warning(
                    "Cannot accept connections: %(reason)s; retrying in %(seconds).0f s: close connections or raise "
                    "the limit of open files",
                    {"reason": error.strerror, "seconds": RETRY_SECONDS},
                )
                self._pause()
                self._retry = self._loop.call_later(RETRY_SECONDS, self._resume)
                return
            connection.setblocking(False)
            self._start(connection, address)


async def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host.

    Raises:
        BadRequest: One of the addresses cannot be used.
    """
    loop = asyncio.get_running_loop()
    sockets: list[socket.socket] = []
    try:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in addresses):
            sockets.append(socket.create_server(address[:2], family=family, backlog=BACKLOG))
    except OSError as error:
        for listening in sockets:
            listening.close()
        raise BadRequest(f"Cannot listen on {host}:{port}: {error.strerror}.") from error
    return sockets
