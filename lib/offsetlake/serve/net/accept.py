"""Accepted connections: the limits of connections and the TLS handshake, before any request is read."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from offsetlake.serve.net.acceptor import Acceptor, listen
from offsetlake.serve.net.connections import AcceptedConnection
from offsetlake.serve.net.login import MAX_LOGIN_SECONDS
from offsetlake.serve.net.security import Security
from offsetlake.util.log_lines import ClientLog

LOG = ClientLog(logging.getLogger(__name__))


class AcceptedConnections:
    """Admits accepted connections, performs the TLS handshake if TLS is configured, and attaches their protocols.

    `context` returns the current TLS context, or None without TLS; `create` returns the protocol of a connection.
    """

    def __init__(
        self,
        security: Security,
        context: Callable[[], ssl.SSLContext | None],
        create: Callable[[], AcceptedConnection],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._security, self._context, self._create, self._loop = security, context, create, loop
        self._starting: set[asyncio.Task[None]] = set()

    def start(self, handle: socket.socket, address: Any) -> None:
        """Start a connection, or close it if a limit is reached."""
        connection = self._create()
        connection.client.address = "{}:{}".format(*address)
        if not self._security.connections.admit(connection, connection.client):
            handle.close()
            return
        task = self._loop.create_task(self._start(handle, connection))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start(self, handle: socket.socket, connection: AcceptedConnection) -> None:
        context = self._context()
        timeouts = {} if context is None else {"ssl_handshake_timeout": MAX_LOGIN_SECONDS, "ssl_shutdown_timeout": 1}
        try:
            await self._loop.connect_accepted_socket(lambda: connection, handle, ssl=context, **timeouts)
        except OSError as error:
            handle.close()
            self._security.connections.discard(connection)
            if not isinstance(error, ConnectionResetError | BrokenPipeError):  # health checks of ports are not logged
                LOG.warning("TLS handshake with %s failed: %s", connection.client.address, _reason(error))


async def accept(
    host: str, port: int, security: Security, create: Callable[[], AcceptedConnection], loop: asyncio.AbstractEventLoop
) -> tuple[Acceptor, int]:
    """Listen for connections of Kafka's protocol, and return their port; `create` returns the protocol of a connection.

    Raises:
        BadRequest: The address cannot be used.
    """
    accepted = AcceptedConnections(security, lambda: security.tls, create, loop)
    sockets = await listen(host, port)
    return Acceptor(sockets, accepted.start, loop), sockets[0].getsockname()[1]


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason.replace("_", " ").lower() if error.reason else "the client does not speak TLS"
    return "timeout" if isinstance(error, ConnectionAbortedError) else str(error.strerror)
