"""HTTP connections: they are counted from the moment they are accepted, and closed if a request takes too long."""

import asyncio
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from offsetlake.serve.net.connections import AcceptedConnection, Connections

MAX_REQUEST_SECONDS = 20.0
"""From the connection, or the answer before, until the whole request was received."""


class AcceptedHttpConnection(AcceptedConnection):
    """A counted connection during the TLS handshake; `connect` creates the connection that takes over."""

    def __init__(self, connections: Connections, connect: Callable[[], "HttpConnection"]) -> None:
        super().__init__()
        self._connections, self._connect = connections, connect

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the transport over."""
        connection = self._connect()
        self._connections.pass_on(self, connection)
        transport.set_protocol(connection)
        connection.connection_made(transport)  # type: ignore[arg-type]


class HttpConnection(H11Protocol):
    """The connection of a client, with the request timeouts that uvicorn does not have."""

    def __init__(self, connections: Connections, *uvicorn_arguments: Any) -> None:
        super().__init__(*uvicorn_arguments)
        self._connections = connections
        self._request_timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of the first request."""
        super().connection_made(transport)
        self._update_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the count."""
        super().connection_lost(exc)
        self._connections.discard(self)
        self._stop_timeout()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes."""
        super().data_received(data)
        self._update_timeout()

    def on_response_complete(self) -> None:
        """Start the timeout of the next request."""
        super().on_response_complete()
        self._stop_timeout()
        self._update_timeout()

    def close(self) -> None:
        """Close the connection after the pending answers were sent."""
        self.transport.close()

    def is_idle(self) -> bool:
        """Return False: the request timeout closes idle connections."""
        return False

    def _update_timeout(self) -> None:
        """Start the timeout while a request is incomplete, and stop it otherwise."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) or self.transport.is_closing():
            self._stop_timeout()
        elif self._request_timeout is None:
            self._request_timeout = self.loop.call_later(MAX_REQUEST_SECONDS, self.close)

    def _stop_timeout(self) -> None:
        if self._request_timeout is not None:
            self._request_timeout.cancel()
            self._request_timeout = None
