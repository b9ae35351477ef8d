"""A connection of HTTP: counted from the moment it is accepted, and closed where its request does not come."""

import asyncio
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from offsetlake.serve.net.connections import AcceptedConnection, Connections

REQUEST_SECONDS = 20.0  # until a request is there whole, since it connected or was answered


class AcceptedHttpConnection(AcceptedConnection):
    """Counts a connection until it is behind TLS; `make` makes what goes on with it."""

    def __init__(self, connections: Connections, make: Callable[[], "HttpConnection"]) -> None:
        super().__init__()
        self._connections, self._make = connections, make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand it on."""
        connection = self._make()
        self._connections.pass_on(self, connection)
        transport.set_protocol(connection)
        connection.connection_made(transport)  # type: ignore[arg-type]


class HttpConnection(H11Protocol):
    """One client's connection; uvicorn itself waits for its first request, and for the rest of any, for ever."""

    def __init__(self, connections: Connections, *of_uvicorn: Any) -> None:
        super().__init__(*of_uvicorn)
        self._counted_by = connections
        self._too_late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        super().connection_lost(exc)
        self._counted_by.discard(self)
        self._expect_nothing()

    def data_received(self, data: bytes) -> None:
        """Take in bytes."""
        super().data_received(data)
        self._expect()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._expect_nothing()
        self._expect()

    def close(self) -> None:
        """End the connection when what was answered is sent."""
        self.transport.close()

    def is_idle(self) -> bool:
        """Tell that it may be: it has little time anyway."""
        return False

    def _expect(self) -> None:
        """Wait for a request that is not there whole, so long and no longer."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) or self.transport.is_closing():
            self._expect_nothing()
        elif self._too_late is None:
            self._too_late = self.loop.call_later(REQUEST_SECONDS, self.close)

    def _expect_nothing(self) -> None:
        if self._too_late is not None:
            self._too_late.cancel()
            self._too_late = None
