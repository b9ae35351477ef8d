"""Processes beside the serving one: for what needs Arrow and Delta, so that they take no memory and no time of it.

A child is a module of `offsetlake.serve` that reads one request, JSON on standard input, and answers with one, JSON on
standard output: what it was asked for, or `error`, a sentence for a person, and `exit_code`.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from offsetlake.errors import OffsetlakeError
from offsetlake.util.process_exit import leave

_NO_RESOURCES = 1  # exit code
BEHIND_ANSWERS = 10  # how nice a child is to the process that serves meanwhile


class ChildFailed(OffsetlakeError):
    """A process beside the serving one ended with an error; the message is its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


async def ask(module: str, request: dict[str, Any], files: Sequence[int] = ()) -> dict[str, Any]:
    """Have a child answer, that is given some open files; it is killed where the caller is cancelled.

    Raises ChildFailed.
    """
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=files,
        )
    except OSError as error:
        raise ChildFailed(f"{module} cannot be started: {error.strerror}", _NO_RESOURCES) from error
    try:
        out, _ = await child.communicate(json.dumps(request).encode())
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            child.kill()
        await child.wait()
        raise
    if child.returncode != 0:
        raise ChildFailed(f"{module} ended with {child.returncode}", 1)
    answer: dict[str, Any] = json.loads(out)
    if "error" in answer:
        raise ChildFailed(answer["error"], answer["exit_code"])
    return answer


def answer_one(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> NoReturn:
    """Be the child: answer the request that `ask` sent, and end."""
    try:
        given = answer(json.load(sys.stdin))
    except OffsetlakeError as error:
        given = {"error": str(error), "exit_code": error.exit_code}
    json.dump(given, sys.stdout)
    leave(0)
