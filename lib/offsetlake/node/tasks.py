"""Tasks whose result is passed to a callback."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

LOG = logging.getLogger(__name__)
UNEXPECTED = -1  # UNKNOWN_SERVER_ERROR


class Tasks:
    """Runs coroutines that return an error code."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[int]] = set()

    def start(self, work: Coroutine[Any, Any, int], done: Callable[[int], None]) -> None:
        """Start a coroutine; `done` is called with its result, or UNKNOWN_SERVER_ERROR (-1) if it fails."""

        def finish(task: "asyncio.Task[int]") -> None:
            self._tasks.discard(task)
            if task.cancelled():
                return
            if task.exception() is not None:
                LOG.error("A request to the cluster failed", exc_info=task.exception())
            done(UNEXPECTED if task.exception() is not None else task.result())

        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(finish)

    def close(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()
