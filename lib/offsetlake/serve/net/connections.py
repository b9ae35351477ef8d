"""How many connections there may be, in all and from one address, and how long one may say nothing."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from offsetlake.serve.auth.principals import Client

LOG = logging.getLogger(__name__)
MAX_IDLE = 600.0  # seconds: connections.max.idle.ms of a broker; twice as long at the most
SILENCE = 10.0  # seconds between lines about connections that were not let in


class Connected(Protocol):
    """A connection, before login or behind it."""

    def close(self) -> None:
        """End it when what was answered is sent."""

    def is_idle(self) -> bool:
        """Tell whether nothing came since this was last asked."""


class AcceptedConnection(asyncio.Protocol):
    """A connection that was just accepted; what goes on with it may be another object."""

    def __init__(self) -> None:
        self.client = Client()

    def close(self) -> None:
        """End it, where it has begun."""

    def is_idle(self) -> bool:
        """Tell that it may be: it has little time anyway."""
        return False


class Connections:
    """All that there are, with who is at their other end."""

    def __init__(self, most: int, most_per_address: int) -> None:
        self._most, self._most_per_address = most, most_per_address
        self._clients: dict[Connected, Client] = {}
        self._by_address: Counter[str] = Counter()
        self._silent_until = 0.0
        self.refused = 0

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[tuple[Connected, Client]]:
        return iter([*self._clients.items()])

    def admit(self, connection: Connected, client: Client) -> bool:
        """Take in a connection; False where there are as many as there may be: a line says so once in a while."""
        host = host_of(client)
        if len(self._clients) >= self._most:
            self._refuse(client, f"{self._most} connections, as many as there may be (max_connections)")
        elif self._by_address[host] >= self._most_per_address:
            self._refuse(client, f"{self._most_per_address} of its address (max_connections_per_address)")
        else:
            self._clients[connection] = client
            self._by_address[host] += 1
            return True
        return False

    def pass_on(self, connection: Connected, following: Connected) -> None:
        """Put another object in the place of a connection that goes on."""
        self._clients[following] = self._clients.pop(connection)

    def discard(self, connection: Connected) -> None:
        """Count a connection that has ended no more."""
        client = self._clients.pop(connection, None)
        if client is not None:
            host = host_of(client)
            self._by_address[host] -= 1
            if not self._by_address[host]:
                del self._by_address[host]

    def close_idle(self) -> None:
        """Close what has said nothing since this was last called."""
        for connection, _ in self:
            if connection.is_idle():
                connection.close()

    def _refuse(self, client: Client, why: str) -> None:
        self.refused += 1
        now = time.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + SILENCE
            LOG.warning("%s is not let in: there are %s; %d refused so far", client.address, why, self.refused)


def host_of(client: Client) -> str:
    """Return the address of a client without its port."""
    return client.address.rpartition(":")[0]
