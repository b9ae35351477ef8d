"""Turns: how the connections share the event loop, so that none of them waits long for another.

A connection that is not queued gets a short turn as soon as its bytes arrive. What it does not finish in that turn
waits in one of two queues that all connections share. Every iteration of the event loop works off a few milliseconds of
them, one turn per connection in rotation, and polls the sockets in between. Connections that had no turn yet come
before those that have used up one, as in flow queueing (RFC 8290, section 4.2), but in each iteration at least one of
the latter has its turn. A queued connection does not advance by sending more.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from offsetlake.serve.net.frame_memory import Memory

TURN_SECONDS = 0.0005
IMMEDIATE_SECONDS = 0.001  # in one iteration of the event loop, for turns that are given at once
BACKLOG_SECONDS = 0.002  # in one iteration of the event loop, for connections that wait in the queues


class Served(Protocol):
    """A connection that has its turns; `queued` is set while it waits for one."""

    queued: bool

    def run(self, until: float) -> bool:
        """Work until `until` or until nothing is left to do; return whether something is left that can be done now."""


class Turns:
    """Gives turns to connections; `memory` is what all of them share beside time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, memory: Memory, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.loop, self.memory, self.clock = loop, memory, clock
        self._new: deque[Served] = deque()
        self._old: deque[Served] = deque()
        self._arrivals = 0.0  # seconds used since the last iteration that looked at the queues
        self._scheduled = False

    def serve(self, connection: Served) -> None:
        """Run a turn of a connection that may have something to do, or queue it."""
        if connection.queued:
            return
        if self._arrivals >= IMMEDIATE_SECONDS:
            self._queue(self._new, connection)
            return
        began = self.clock()
        if connection.run(began + TURN_SECONDS):
            self._queue(self._old, connection)
        self._arrivals += self.clock() - began
        if self._arrivals >= TURN_SECONDS:
            self._schedule()

    def _queue(self, queue: deque[Served], connection: Served) -> None:
        connection.queued = True
        queue.append(connection)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._work_off)

    def _work_off(self) -> None:
        self._scheduled, self._arrivals = False, 0.0
        until = self.clock() + BACKLOG_SECONDS
        if self._old:
            self._turn(self._old)
        while (self._new or self._old) and self.clock() < until:
            self._turn(self._new or self._old)
        if self._new or self._old:
            self._schedule()

    def _turn(self, queue: deque[Served]) -> None:
        connection = queue.popleft()
        connection.queued = False
        if connection.run(self.clock() + TURN_SECONDS):
            self._queue(self._old, connection)
