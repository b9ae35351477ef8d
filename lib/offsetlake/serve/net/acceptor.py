"""Accepts connections of listening sockets, and waits when no file descriptor is left for another one.

uvloop's own servers are not used: where `accept` fails for lack of descriptors, uvloop closes the listening socket.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

LOG = logging.getLogger(__name__)
MAX_ACCEPTED = 32  # connections, before other events are processed
RETRY_SECONDS = 1.0  # after no descriptor was left; until then clients wait in the backlog
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Acceptor:
    """Passes each connection of some listening sockets to `take`, with its client's address, until it is closed."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        take: Callable[[socket.socket, Any], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.sockets, self._take, self._loop = sockets, take, loop
        self._retry: asyncio.TimerHandle | None = None
        for each in sockets:
            each.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Stop listening."""
        self._pause()
        for each in self.sockets:
            each.close()

    def _resume(self) -> None:
        for each in self.sockets:
            self._loop.add_reader(each, self._accept, each)

    def _pause(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        for each in self.sockets:
            if each.fileno() >= 0:
                self._loop.remove_reader(each)

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
                    "no connection can be accepted (%(reason)s): trying again in %(seconds).0f s; close connections or "
                    "raise the limit of open files",
                    {"reason": error.strerror, "seconds": RETRY_SECONDS},
                )
                self._pause()
                self._retry = self._loop.call_later(RETRY_SECONDS, self._resume)
                return
            connection.setblocking(False)
            self._take(connection, address)


async def listen(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host; raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            sockets.append(socket.create_server(address[:2], family=family, backlog=backlog))
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets
