"""Turns: a scheduler with which the connections share the event loop, so that none waits long for another.

A connection that is not queued gets a short turn as soon as its bytes arrive. If it does not finish in that turn, it
waits in one of two queues that all connections share. Every iteration of the event loop runs turns from the queues for
a few milliseconds, one turn per connection in rotation, and then polls the sockets. Connections that had no turn yet
precede those that have used one, as in flow queueing (RFC 8290, section 4.2), but each iteration runs at least one turn
of the latter. A queued connection does not advance by sending more requests.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from offsetlake.serve.net.busy_polling import BusyPolling
from offsetlake.serve.net.frame_memory import Memory

TURN_SECONDS = 0.0005
IMMEDIATE_SECONDS = 0.001
"""Time in one iteration of the event loop for turns that run as soon as bytes arrive."""

BACKLOG_SECONDS = 0.002
"""Time in one iteration of the event loop for turns of queued connections."""


class TakesTurns(Protocol):
    """A connection that runs in turns; `queued` is set while it waits for one."""

    queued: bool

    def run(self, until: float) -> bool:
        """Run until the time `until`, or until no work is left; return whether work is left that can be done now."""


class Turns:
    """Runs the turns of all connections; they share the limit `memory` and the `polling` after responses too."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, memory: Memory, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.loop, self.memory, self.clock = loop, memory, clock
        self.polling = BusyPolling(loop, clock)
        self._new: deque[TakesTurns] = deque()
        self._old: deque[TakesTurns] = deque()
        self._immediate = 0.0  # seconds of immediate turns since the last iteration that ran queued turns
        self._scheduled = False

    def serve(self, connection: TakesTurns) -> None:
        """Run a turn of a connection that may have work, or queue it."""
        if connection.queued:
            return
        if self._immediate >= IMMEDIATE_SECONDS:
            self._queue(self._new, connection)
            return
        began = self.clock()
        if connection.run(began + TURN_SECONDS):
            self._queue(self._old, connection)
        self._immediate += self.clock() - began
        if self._immediate >= TURN_SECONDS:
            self._schedule()

    def _queue(self, queue: deque[TakesTurns], connection: TakesTurns) -> None:
        connection.queued = True
        queue.append(connection)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._run_queued)

    def _run_queued(self) -> None:
        self._scheduled, self._immediate = False, 0.0
        until = self.clock() + BACKLOG_SECONDS
        if self._old:
            self._turn(self._old)
        while (self._new or self._old) and self.clock() < until:
            self._turn(self._new or self._old)
        if self._new or self._old:
            self._schedule()

    def _turn(self, queue: deque[TakesTurns]) -> None:
        connection = queue.popleft()
        connection.queued = False
        if connection.run(self.clock() + TURN_SECONDS):
            self._queue(self._old, connection)
