"""Runs queries of visitors in child processes, one at a time, with limits of time, rows and memory."""

import asyncio
import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from offsetlake.errors import BadRequest
from offsetlake.lake.location.locate import LakeLocation
from offsetlake.web.console import forked
from offsetlake.web.console.sql import child

MAX_SECONDS = 30
MAX_ROWS = 1_000
MAX_CSV_ROWS = 20_000
_MAX_BYTES = 400_000  # of the texts of all cells: the markup of the page is as large again
_POLL_SECONDS = 0.2
_POSITION = re.compile(r"Line: (\d+), Column: (\d+)")
_CANCELLED = "The query was cancelled."
_TOO_LARGE = (
    f"The query needs more than the {child.MAX_GROWTH_BYTES >> 20} MB of memory that the console permits. "
    "Limit it: WHERE group_id = '…'. Or run the command below."
)

Value = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Result:
    """The first rows of an answer, and the number of all rows; `numeric` is which columns are numbers."""

    names: list[str]
    numeric: list[bool]
    rows: list[list[Value]]
    total: int


class Queries:
    """Runs one query at a time over a lake; others wait. `forked.prepare` starts what the first query needs."""

    def __init__(self, location: LakeLocation) -> None:
        self._location = str(location)
        self._running = asyncio.Semaphore(1)

    async def run(self, statement: str, max_rows: int, is_cancelled: Callable[[], Awaitable[bool]]) -> Result:
        """Run a SELECT in a child process, which is killed after MAX_SECONDS or when `is_cancelled` returns True.

        Raises:
            BadRequest: The statement is invalid, takes too long, or was cancelled.
            NotEnoughMemory: It needs too much memory.
            OffsetlakeError: The lake cannot be read.

        """
        request = {"lake": self._location, "statement": statement, "max_rows": max_rows, "max_bytes": _MAX_BYTES}
        request |= {"max_seconds": 2 * MAX_SECONDS, "niceness": 0}
        await self._turn(is_cancelled)
        try:
            with tempfile.TemporaryDirectory(prefix="offsetlake-sql-") as folder:  # of what the query spills
                return await _run(request | {"folder": folder}, is_cancelled)
        finally:
            self._running.release()

    async def _turn(self, is_cancelled: Callable[[], Awaitable[bool]]) -> None:
        """Wait until the queries before this one have ended; raise BadRequest when `is_cancelled` returns True."""
        acquiring = asyncio.create_task(self._running.acquire())
        while not (await asyncio.wait([acquiring], timeout=_POLL_SECONDS))[0]:
            if await is_cancelled() and acquiring.cancel():
                raise BadRequest(_CANCELLED)


async def _run(request: Mapping[str, object], is_cancelled: Callable[[], Awaitable[bool]]) -> Result:
    process, receiving = await asyncio.to_thread(forked.start, child.answer, request)
    answering = asyncio.create_task(asyncio.to_thread(forked.receive, receiving))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + MAX_SECONDS
    try:
        while not (await asyncio.wait([answering], timeout=_POLL_SECONDS))[0]:
            if loop.time() > deadline:
                raise BadRequest(
                    f"The query was stopped after {MAX_SECONDS} seconds. Limit it to fewer groups or rows."
                )
            if await is_cancelled():
                raise BadRequest(_CANCELLED)
    finally:
        if not answering.done():
            process.kill()
        found = await answering
        await asyncio.to_thread(process.join)
    return Result(**forked.checked(found, process.exitcode, _TOO_LARGE))


def marked_position(statement: str, message: str) -> str:
    """Return the line of a statement that an error is about, with a mark below the column; empty if it is unknown."""
    position = _POSITION.search(message)
    lines = statement.splitlines()
    if position is None or not 1 <= int(position[1]) <= len(lines):
        return ""
    return f"{lines[int(position[1]) - 1]}\n{' ' * (int(position[2]) - 1)}^"
