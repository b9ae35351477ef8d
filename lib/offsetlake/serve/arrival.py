"""A connection that was just accepted: counted, and put behind TLS, before anything is read of it."""

import asyncio
import logging
import os
import socket
import ssl

from offsetlake.serve.limits import Arriving, Connections
from offsetlake.serve.login import SECONDS

LOG = logging.getLogger(__name__)


class Arrival(asyncio.Protocol):
    """Hands a connection to a `Login`, or what HTTP has for it, with TLS where that is on."""

    def __init__(
        self, connections: Connections, context: ssl.SSLContext | None, login: Arriving, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._connections, self._context, self._login, self._loop = connections, context, login, loop
        self._securing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand it on, unless there are too many.

        For TLS the socket gets a new transport: uvloop's `start_tls` loses what came in before its first turn.
        """
        login, context, peer = self._login, self._context, transport.get_extra_info("peername")
        if peer is None:  # it has hung up already
            transport.close()
            return
        login.client.address = "{}:{}".format(*peer)
        if not self._connections.admit(login, login.client):
            transport.close()
        elif context is None:
            transport.set_protocol(login)
            login.connection_made(transport)
        else:
            try:
                handle = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
            except OSError as error:
                self._refuse(error)
            else:
                self._securing = self._loop.create_task(self._secure(handle, context))
            transport.close()

    async def _secure(self, handle: socket.socket, context: ssl.SSLContext) -> None:
        login = self._login
        try:
            await self._loop.connect_accepted_socket(
                lambda: login, handle, ssl=context, ssl_handshake_timeout=SECONDS, ssl_shutdown_timeout=1
            )
        except OSError as error:
            handle.close()
            self._refuse(error)

    def _refuse(self, error: OSError) -> None:
        """Count it no more; who has hung up without a word, as probes do, leaves no line."""
        self._connections.discard(self._login)
        if not isinstance(error, ConnectionResetError | BrokenPipeError):
            LOG.warning("%s is not let in: no TLS came about (%s)", self._login.client.address, _reason(error))


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "of another protocol").replace("_", " ").lower()
    return "too slow" if isinstance(error, ConnectionAbortedError) else str(error.strerror)
