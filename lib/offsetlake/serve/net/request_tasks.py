"""Tasks that answer requests."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from offsetlake.errors import LogUnavailable
from offsetlake.serve.net.client import RequestContext
from offsetlake.util.log_lines import ClientLog

T = TypeVar("T")
LOG = ClientLog(logging.getLogger(__name__))


class RequestTasks:
    """The tasks that answer requests which wait for a disk, or for another node."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], respond: Callable[[T], None], context: RequestContext) -> None:
        """Start to answer a request; `respond` is called with the response. If it fails, the connection is closed."""

        def finish(task: "asyncio.Task[T]") -> None:
            self._tasks.discard(task)
            if task.cancelled():
                return
            try:
                respond(task.result())
            except LogUnavailable as failure:
                LOG.warning(
                    "Connection of %(address)s closed: its request could not be forwarded: %(reason)s",
                    {"address": context.client.address, "reason": failure},
                )
                context.client.close_connection()
            except Exception:
                LOG.exception(
                    "Connection of %(address)s closed: a request caused an internal error",
                    {"address": context.client.address},
                )
                context.client.close_connection()

        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(finish)

    async def close(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
