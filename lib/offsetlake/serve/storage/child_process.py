"""Child processes for work that needs Arrow and Delta, so that it costs the serving process neither memory nor latency.

A child runs the function `handle` of a module of `offsetlake.serve` (`offsetlake.serve.storage.child_main`). It reads
one request as JSON from standard input and writes one answer as JSON to standard output: either the fields that the
module documents, or `error`, a sentence for the user, together with `exit_code`.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from offsetlake.errors import OffsetlakeError

_EXIT_CODE_FAILED = 1


class ChildFailed(OffsetlakeError):
    """The error of a child process, with the child's message and exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


async def run_child(module: str, request: dict[str, Any], files: Sequence[int] = ()) -> dict[str, Any]:
    """Run a module in a child process and return its answer; cancelling the call kills the child.

    Args:
        module: The name of the module with the function `handle`.
        request: The request, which must be serializable as JSON.
        files: File descriptors that the child inherits.

    Raises:
        ChildFailed: The child could not be started, crashed or answered with an error.
    """
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "offsetlake.serve.storage.child_main",
            module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=files,
        )
    except OSError as error:
        raise ChildFailed(f"Cannot start the child process {module}: {error.strerror}.", _EXIT_CODE_FAILED) from error
    try:
        out, _ = await child.communicate(json.dumps(request).encode())
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):  # the child has just exited
            child.kill()
        await child.wait()
        raise
    if child.returncode != 0:
        raise ChildFailed(f"The child process {module} exited with code {child.returncode}.", _EXIT_CODE_FAILED)
    answer: dict[str, Any] = json.loads(out)
    if "error" in answer:
        raise ChildFailed(answer["error"], answer["exit_code"])
    return answer
