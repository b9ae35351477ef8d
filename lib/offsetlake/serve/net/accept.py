"""Connections that were just accepted: counted, and put behind TLS, before anything is read from them."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from offsetlake.serve.logs import ClientLog
from offsetlake.serve.net.connections import AcceptedConnection
from offsetlake.serve.net.login import SECONDS
from offsetlake.serve.net.security import Security

LOG = ClientLog(logging.getLogger(__name__))


class AcceptedConnections:
    """Admits accepted connections and hands each to a protocol of its own, with TLS where that is configured."""

    def __init__(
        self,
        security: Security,
        context: Callable[[], ssl.SSLContext | None],
        make: Callable[[], AcceptedConnection],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._security, self._context, self._make, self._loop = security, context, make, loop
        self._beginning: set[asyncio.Task[None]] = set()

    def take(self, handle: socket.socket, address: Any) -> None:
        """Hand a connection on, or close it if there are too many."""
        arriving = self._make()
        arriving.client.address = "{}:{}".format(*address)
        if not self._security.connections.admit(arriving, arriving.client):
            handle.close()
            return
        task = self._loop.create_task(self._begin(handle, arriving))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _begin(self, handle: socket.socket, arriving: AcceptedConnection) -> None:
        context = self._context()
        timeouts = {} if context is None else {"ssl_handshake_timeout": SECONDS, "ssl_shutdown_timeout": 1}
        try:
            await self._loop.connect_accepted_socket(lambda: arriving, handle, ssl=context, **timeouts)
        except OSError as error:
            handle.close()
            self._security.connections.discard(arriving)
            if not isinstance(error, ConnectionResetError | BrokenPipeError):  # probes disconnect without a word
                LOG.warning("%s is not let in: no TLS came about (%s)", arriving.client.address, _reason(error))


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "of another protocol").replace("_", " ").lower()
    return "too slow" if isinstance(error, ConnectionAbortedError) else str(error.strerror)
