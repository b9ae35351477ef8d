"""Actions at their times, which one thread executes."""

import heapq
import itertools
import time
from collections.abc import Callable

INTERVAL_SECONDS = 0.2


class Schedule:
    """Actions that are still to be executed, in the order of their times."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)

    def at(self, due: float, action: Callable[[], None]) -> None:
        """Execute an action at a time of the monotonic clock, in seconds."""
        heapq.heappush(self._due, (due, next(self._numbers), action))

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Execute an action after a time."""
        self.at(time.monotonic() + seconds, action)

    def execute(self, between: Callable[[], object]) -> None:
        """Execute all actions, also those that these add; call `between` while the next one is not due."""
        while self._due:
            due, _, action = heapq.heappop(self._due)
            while (left := due - time.monotonic()) > 0:
                between()
                time.sleep(min(left, INTERVAL_SECONDS))
            action()
