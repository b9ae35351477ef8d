"""The memory of connections: unfinished and unanswered requests, and answers that were not sent yet.

All connections share one bound. Where it is exceeded, the connection that uses most is closed, of the address whose
connections together use most: a client that sends or receives something large is not closed because another address
fills the memory with many small things.
"""

import logging
from collections import Counter
from typing import Protocol

from offsetlake.serve.logs import ClientLog

LOG = ClientLog(logging.getLogger(__name__))
MAX_BYTES = 256 << 20
UNCHARGED_BYTES = 32 << 10
"""What a connection may use without being charged for it, so that small requests cost nothing."""


class Charged(Protocol):
    """A connection that is charged for memory."""

    @property
    def address(self) -> str:
        """Host and port of its client."""

    def abort(self) -> None:
        """Close the connection now, and release its memory."""


class Memory:
    """Counts the bytes that connections use, and keeps their sum below a bound."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max = max_bytes
        self._used: dict[Charged, int] = {}
        self._by_host: Counter[str] = Counter()
        self.used = 0

    def charge(self, connection: Charged, used: int) -> None:
        """Take note of the bytes that a connection uses now; close connections until the sum is within the bound."""
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
        host = max(self._by_host, key=lambda each: self._by_host[each])
        largest = max((each for each in self._used if _host(each) == host), key=lambda each: self._used[each])
        LOG.warning(
            "%s: connection closed: it uses %d bytes of memory, most of its address, and all connections together "
            "use %d, more than the bound of %d",
            largest.address,
            self._used[largest],
            self.used,
            self._max,
        )
        self.charge(largest, 0)
        largest.abort()


def _host(connection: Charged) -> str:
    return connection.address.rpartition(":")[0]
