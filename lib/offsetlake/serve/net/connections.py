"""The open connections, and their limits: in total, per address, and how long one may be idle."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from offsetlake.serve.net.client import Client

LOG = logging.getLogger(__name__)
MAX_IDLE_SECONDS = 600.0
"""The interval of checks, as `connections.max.idle.ms` of a broker; a connection is idle for at most twice as long."""

REFUSAL_LOG_SECONDS = 10.0
"""Minimum time between log lines about refused connections."""


class OpenConnection(Protocol):
    """A connection, before or after login."""

    def close(self) -> None:
        """Close it after the responses that are ready were sent."""

    def is_idle(self) -> bool:
        """Check whether no bytes were received since the last call."""


class AcceptedConnection(asyncio.Protocol):
    """A connection that was accepted; another protocol may replace it later (`Connections.pass_on`)."""

    def __init__(self) -> None:
        self.client = Client()

    def close(self) -> None:
        """Close it, if it has a transport."""

    def is_idle(self) -> bool:
        """Return False: the time for the login is limited anyway."""
        return False


class Connections:
    """All open connections and their clients."""

    def __init__(self, max_connections: int, max_per_address: int) -> None:
        self._max_connections, self._max_per_address = max_connections, max_per_address
        self._clients: dict[OpenConnection, Client] = {}
        self._by_address: Counter[str] = Counter()
        self._next_line = 0.0  # when the next refusal may be logged
        self.refused = 0

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[tuple[OpenConnection, Client]]:
        return iter([*self._clients.items()])

    def admit(self, connection: OpenConnection, client: Client) -> bool:
        """Add a connection and return True; return False if a limit is reached, and log that now and then."""
        host = host_of(client)
        if len(self._clients) >= self._max_connections:
            self._refuse(client, f"the limit of {self._max_connections} connections (max_connections)")
        elif self._by_address[host] >= self._max_per_address:
            limit = f"{self._max_per_address} connections per address (max_connections_per_address)"
            self._refuse(client, f"the limit of {limit}")
        else:
            self._clients[connection] = client
            self._by_address[host] += 1
            return True
        return False

    def pass_on(self, connection: OpenConnection, successor: OpenConnection) -> None:
        """Replace the object that represents a connection."""
        self._clients[successor] = self._clients.pop(connection)

    def discard(self, connection: OpenConnection) -> None:
        """Remove a connection that was closed."""
        client = self._clients.pop(connection, None)
        if client is not None:
            host = host_of(client)
            self._by_address[host] -= 1
            if not self._by_address[host]:
                del self._by_address[host]

    def close_idle(self) -> None:
        """Close the connections from which no bytes were received since the last call."""
        for connection, _ in self:
            if connection.is_idle():
                connection.close()

    def _refuse(self, client: Client, limit: str) -> None:
        self.refused += 1
        now = time.monotonic()
        if now >= self._next_line:
            self._next_line = now + REFUSAL_LOG_SECONDS
            LOG.warning(
                "Connection of %s refused: %s is reached; %d connections were refused so far",
                client.address,
                limit,
                self.refused,
            )


def host_of(client: Client) -> str:
    """Return the address of a client without its port."""
    return client.address.rpartition(":")[0]
