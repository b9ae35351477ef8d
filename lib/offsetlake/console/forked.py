"""Child processes that are forked from one that has loaded the program once and has not used delta-rs.

A request is JSON, with the fields `folder`, the one for what queries spill, `max_seconds`, and others. An answer is
JSON; `error` in it is a sentence. A process that needs too much memory ends with the exit code of NotEnoughMemory.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

from offsetlake.errors import NotEnoughMemory, OffsetlakeError
from offsetlake.util.memory_limit import return_large_blocks

_PROCESSES = multiprocessing.get_context("forkserver")
_LOADED = "offsetlake.console.sql.child"

Target = Callable[[str, Connection], None]


def prepare() -> None:
    """Start the process from which the others are forked."""
    _PROCESSES.set_forkserver_preload([_LOADED])
    forkserver.ensure_running()


def start(target: Target, request: Mapping[str, object]) -> tuple[ForkServerProcess, Connection]:
    """Start a process that answers a request with `target`; return it, and the end of the pipe for `receive`."""
    prepare()
    receiving, sending = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=target, args=(json.dumps(request), sending), daemon=True)
    process.start()
    sending.close()
    return process, receiving


def receive(receiving: Connection) -> bytes:
    """Return the answer of a process, empty if it ends without one."""
    with receiving, contextlib.suppress(EOFError):
        return receiving.recv_bytes()
    return b""


def answer(
    compute: Callable[..., Mapping[str, Any]], request: str, sending: Connection, limit: AbstractContextManager[None]
) -> None:
    """Send what a function of the other fields of a request returns within a limit of memory, and end this process."""
    return_large_blocks()
    fields = json.loads(request)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the console, which ends this process
    signal.alarm(fields.pop("max_seconds"))  # ends this process also if the console was killed
    tempfile.tempdir = fields.pop("folder")
    with limit:
        try:
            found = compute(**fields)
        except NotEnoughMemory as error:
            os._exit(error.exit_code)
        except OffsetlakeError as error:
            found = {"error": str(error)}
        sending.send_bytes(json.dumps(found).encode())
    os._exit(0)  # without waiting for the threads of the engine
