"""Runs queries of visitors in child processes, one at a time, with limits of time, rows and memory."""

import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from offsetlake.errors import BadRequest, NotEnoughMemory, OffsetlakeError
from offsetlake.location.locate import LakeLocation

MAX_SECONDS = 30
MAX_ROWS = 1_000
MAX_CSV_ROWS = 20_000
_MAX_BYTES = 400_000  # of the texts of all cells: the markup of the page is as large again
_POLL_SECONDS = 0.2
_POSITION = re.compile(r"Line: (\d+), Column: (\d+)")
_CANCELLED = "The query was cancelled."

Value = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Result:
    """The first rows of an answer, and the number of all rows; `numeric` is which columns are numbers."""

    names: list[str]
    numeric: list[bool]
    rows: list[list[Value]]
    total: int


class Queries:
    """Runs one query at a time over a lake; others wait."""

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
        request["max_seconds"] = 2 * MAX_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._running.acquire(), _POLL_SECONDS)
                break
            if await is_cancelled():
                raise BadRequest(_CANCELLED)
        try:
            with tempfile.TemporaryDirectory(prefix="offsetlake-sql-") as folder:  # of what the query spills
                return await _run(json.dumps(request).encode(), is_cancelled, os.environ | {"TMPDIR": folder})
        finally:
            self._running.release()


async def _run(request: bytes, is_cancelled: Callable[[], Awaitable[bool]], environment: Mapping[str, str]) -> Result:
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "offsetlake.console.sql.child",
        env=environment,
        stdin=pipe,
        stdout=pipe,
        stderr=asyncio.subprocess.DEVNULL,
    )
    answer = asyncio.ensure_future(child.communicate(request))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + MAX_SECONDS
    try:
        while not (await asyncio.wait([answer], timeout=_POLL_SECONDS))[0]:
            if loop.time() > deadline:
                raise BadRequest(
                    f"The query was stopped after {MAX_SECONDS} seconds. Limit it to fewer groups or rows."
                )
            if await is_cancelled():
                raise BadRequest(_CANCELLED)
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                child.kill()
        out, _ = await answer
    if child.returncode == NotEnoughMemory.exit_code:
        raise NotEnoughMemory("The query needs more than 1 GB of memory. Limit it: WHERE group_id = '…'.")
    if child.returncode:
        raise OffsetlakeError(f"The process of the query ended with code {child.returncode}. Run the query again.")
    found = json.loads(out)
    if "error" in found:
        raise BadRequest(found["error"])
    return Result(**found)


def marked_position(statement: str, message: str) -> str:
    """Return the line of a statement that an error is about, with a mark below the column; empty if it is unknown."""
    position = _POSITION.search(message)
    lines = statement.splitlines()
    if position is None or not 1 <= int(position[1]) <= len(lines):
        return ""
    return f"{lines[int(position[1]) - 1]}\n{' ' * (int(position[2]) - 1)}^"
