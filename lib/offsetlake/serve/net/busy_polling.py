"""Adaptive busy polling: the event loop does not sleep between a response and a request that follows at once.

A client that sends its next request as soon as it has a response does so within a few ten microseconds. To put an idle
CPU to sleep and wake it takes as long, and the first instructions after that are slow, so that a sequential request
takes a quarter less time if the event loop polls the sockets meanwhile. It does so only while requests follow that
fast: a longer pause ends it, and traffic that is not sequential costs no more CPU time than before.
"""

import asyncio
import os
from collections.abc import Callable

MAX_POLL_SECONDS = 0.0001
"""For how long the sockets are polled after a response; also the longest pause between requests that follow at once."""


class BusyPolling:
    """Polls the sockets after responses, if the last request followed a response at once."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float], cpus: int | None = os.cpu_count()
    ) -> None:
        self._loop, self._clock = loop, clock
        self._has_other_cpu = cpus != 1  # on which the client can run meanwhile
        self._responded = float("-inf")  # when the last response was sent
        self._follows_at_once = False
        self._waiting = self._scheduled = False

    def received(self) -> None:
        """Note that a request was received."""
        if self._waiting:
            self._waiting = False
            self._follows_at_once = self._has_other_cpu and self._clock() - self._responded < MAX_POLL_SECONDS

    def responded(self) -> None:
        """Note that a response was sent, and poll the sockets for a moment if a request will probably follow."""
        self._waiting, self._responded = True, self._clock()
        if self._follows_at_once and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        if self._waiting and self._clock() - self._responded < MAX_POLL_SECONDS:
            self._loop.call_soon(self._poll)  # in the next iteration of the event loop, which polls the sockets
        else:
            self._scheduled = False
