"""The timers of all groups: one timer of the event loop, however many members there are."""

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

from offsetlake.coordinator.steps import Timer

_MIN_COMPACTED = 10_000  # entries of the heap, most of them obsolete, above which it is built again


class Timers:
    """Timers by name; `due` is called with each one at its time, in milliseconds of `clock`.

    A heartbeat sets a timer again. That only changes a number: the heap is corrected when the earlier time arrives.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], int], due: Callable[[Timer], None]) -> None:
        self._loop, self._clock, self._due = loop, clock, due
        self._times: dict[Timer, int] = {}
        self._heap: list[tuple[int, int, Timer]] = []  # time, sequence number, timer
        self._numbers = count()
        self._queued: dict[Timer, int] = {}  # the earliest time of each timer in the heap
        self._next: asyncio.TimerHandle | None = None
        self._next_ms = 0

    def __len__(self) -> int:
        """Return the number of timers."""
        return len(self._times)

    def change(self, timers: dict[Timer, int | None]) -> None:
        """Set timers to their times, and cancel those without one."""
        for timer, time_ms in timers.items():
            if time_ms is None:
                self._times.pop(timer, None)
                continue
            self._times[timer] = time_ms
            queued = self._queued.get(timer)
            if queued is None or time_ms < queued:
                self._push(time_ms, timer)
        self._wake()

    def _push(self, time_ms: int, timer: Timer) -> None:
        if len(self._heap) >= _MIN_COMPACTED and len(self._heap) > 2 * len(self._times):
            self._heap = [(set_ms, next(self._numbers), name) for name, set_ms in self._times.items() if name != timer]
            heapify(self._heap)
            self._queued = {name: set_ms for set_ms, _, name in self._heap}
        heappush(self._heap, (time_ms, next(self._numbers), timer))
        self._queued[timer] = time_ms

    def _wake(self) -> None:
        """Set the timer of the event loop to the first time in the heap."""
        if not self._heap:
            return
        first_ms = self._heap[0][0]
        if self._next is not None:
            if self._next_ms <= first_ms:
                return
            self._next.cancel()
        self._next_ms = first_ms
        self._next = self._loop.call_later(max(0, first_ms - self._clock()) / 1000, self._run)

    def _run(self) -> None:
        self._next = None
        now_ms = self._clock()
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, timer = heappop(self._heap)
            if self._queued.get(timer) != queued_ms:
                continue  # there is an earlier entry, which was handled, or a later one
            del self._queued[timer]
            time_ms = self._times.get(timer)
            if time_ms is None:
                continue
            if time_ms > now_ms:
                self._push(time_ms, timer)
                continue
            del self._times[timer]
            self._due(timer)
        self._wake()
