"""The memory of connections: incomplete and unanswered requests, and responses that were not yet sent.

All connections share one limit. If it is exceeded, the address whose connections use most memory is determined, and its
largest connection is closed. Therefore a client with one large request or response is not closed because another
address fills the memory with many small ones.
"""

import logging
from collections import Counter
from typing import Protocol

from offsetlake.util.log_lines import ClientLog

LOG = ClientLog(logging.getLogger(__name__))
MAX_BYTES = 256 << 20
UNCHARGED_BYTES = 32 << 10
"""Memory up to which a connection is not charged, so that small requests need no accounting."""


class Charged(Protocol):
    """A connection that is charged for memory."""

    @property
    def address(self) -> str:
        """Host and port of its client."""

    def abort(self) -> None:
        """Close the connection immediately, and release its memory."""


class Memory:
    """Counts the bytes that connections use, and keeps their sum below a limit."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max = max_bytes
        self._used: dict[Charged, int] = {}
        self._by_host: Counter[str] = Counter()
        self.used = 0

    def charge(self, connection: Charged, used: int) -> None:
        """Record the bytes that a connection uses now; close connections until the sum is within the limit."""
        used = used if used > UNCHARGED_BYTES else 0
        before = self._used.pop(connection, 0)
        if used:
            self._used[connection] = used
        host = _host(connection)
        self._by_host[host] += used - before
        if not self._by_host[host]:
            del self._by_host[host]
        self.used += used - before
        while self.used > self._max:
            self._close_largest()

    def _close_largest(self) -> None:
        host = max(self._by_host, key=self._by_host.__getitem__)
        connections = (connection for connection in self._used if _host(connection) == host)
        largest = max(connections, key=self._used.__getitem__)
        LOG.warning(
            "Connection of %s closed: it uses %d bytes of memory, the most of its address, and all connections "
            "together use %d bytes, which exceeds the limit of %d",
            largest.address,
            self._used[largest],
            self.used,
            self._max,
        )
        self.charge(largest, 0)
        largest.abort()


def _host(connection: Charged) -> str:
    return connection.address.rpartition(":")[0]
