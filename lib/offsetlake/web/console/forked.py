"""Child processes that are forked from one that has loaded the program once and has not used delta-rs.

A request has the fields `folder`, the one for what queries spill, `max_seconds`, `niceness`, and others: the arguments
of the function that computes the answer. A process that needs too much memory ends with the exit code of
NotEnoughMemory.
"""

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any, NamedTuple

from offsetlake.errors import NotEnoughMemory, OffsetlakeError
from offsetlake.lake.data_files import naming_damage
from offsetlake.util.memory_limit import return_large_blocks
from offsetlake.util.processes import CHILD_NICENESS

_PROCESSES = multiprocessing.get_context("forkserver")
_MAX_SECONDS = 1800

Request = Mapping[str, Any]
Announce = Callable[[str], None]
"""Called with a description of each step before it starts."""
Target = Callable[[Request, Connection], None]


def prepare() -> None:
    """Start the process from which the others are forked."""
    _PROCESSES.set_forkserver_preload(["offsetlake.web.console.preloaded"])
    forkserver.ensure_running()


def start(target: Target, request: Request) -> tuple[ForkServerProcess, Connection]:
    """Start a process that answers a request with `target`; return it, and the end of the pipe for `receive`."""
    prepare()
    receiving, sending = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=target, args=(request, sending), daemon=True)
    process.start()
    sending.close()
    return process, receiving


class _Step(NamedTuple):
    """A message of a process before its answer: what it does from now on."""

    text: str


def announcing(sending: Connection) -> Announce:
    """Return a function with which a process tells the one that waits for its answer what it does."""
    return lambda text: sending.send(_Step(text))


def receive(receiving: Connection, announce: Announce = lambda _: None) -> Any:
    """Return the answer of a process, or the OffsetlakeError that it ended with; None if it ends without either."""
    with receiving, contextlib.suppress(EOFError):
        while isinstance(found := receiving.recv(), _Step):
            announce(found.text)
        return found
    return None


class _Turns:
    """Permits one process in the background at a time, so that the memory of several does not add up.

    A process for which a visitor waits ends one for which nobody does, which starts again afterwards.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._awaited, self._is_busy = 0, False
        self._unawaited: ForkServerProcess | None = None

    @contextlib.contextmanager
    def turn(self, *, is_awaited: bool) -> Iterator[None]:
        """Wait until no other process runs, and before that, unless this one is awaited, until none is awaited."""
        with self._changed:
            self._awaited += is_awaited
            if is_awaited and self._unawaited is not None:
                self._unawaited.kill()
            self._changed.wait_for(lambda: not self._is_busy and (is_awaited or not self._awaited))
            self._is_busy = True
        try:
            yield
        finally:
            with self._changed:
                self._awaited -= is_awaited
                self._is_busy, self._unawaited = False, None
                self._changed.notify_all()

    def may_end(self, process: ForkServerProcess) -> None:
        """Permit that the process whose turn it is ends for one that is awaited."""
        with self._changed:
            self._unawaited = process
            if self._awaited:
                process.kill()

    def is_needed(self) -> bool:
        """Return whether a process is awaited."""
        with self._changed:
            return self._awaited > 0


_TURNS = _Turns()


def run_in_background(
    target: Target, request: Request, too_large: str, *, is_awaited: bool, announce: Announce = lambda _: None
) -> Any:
    """Return the answer of a process that leaves the CPUs to this one; raises what `checked` raises.

    One such process runs at a time. One that no visitor awaits is started again after those that are awaited.
    """
    while True:
        with _TURNS.turn(is_awaited=is_awaited), tempfile.TemporaryDirectory(prefix="offsetlake-background-") as folder:
            fields = {"folder": folder, "max_seconds": _MAX_SECONDS, "niceness": CHILD_NICENESS}
            process, receiving = start(target, {**request, **fields})
            if not is_awaited:
                _TURNS.may_end(process)
            found = receive(receiving, announce)
            process.join()
            was_ended = not is_awaited and found is None and process.exitcode == -signal.SIGKILL and _TURNS.is_needed()
        if not was_ended:
            return checked(found, process.exitcode, too_large)


def checked(found: Any, exit_code: int | None, too_large: str) -> Any:
    """Return the answer of a process that has ended; raise its error, or NotEnoughMemory with a message."""
    if exit_code == NotEnoughMemory.exit_code:
        raise NotEnoughMemory(too_large)
    if found is None:
        raise OffsetlakeError(f"The process that computes the answer ended with code {exit_code}. Try it again.")
    if isinstance(found, OffsetlakeError):
        raise found
    return found


def answer(
    compute: Callable[..., Any], request: Request, sending: Connection, limit: AbstractContextManager[None]
) -> None:
    """Send what a function of the other fields of a request returns within a limit of memory, and end this process."""
    return_large_blocks()
    fields = dict(request)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the console, which ends this process
    signal.alarm(fields.pop("max_seconds"))  # ends this process also if the console was killed
    os.nice(fields.pop("niceness"))
    tempfile.tempdir = fields.pop("folder")
    with limit:
        try:
            with naming_damage():
                found = compute(**fields)
        except NotEnoughMemory as error:
            os._exit(error.exit_code)
        except OffsetlakeError as error:
            found = error
        sending.send(found)
    os._exit(0)  # without waiting for the threads of the engine
