"""The process of the console: it needs Arrow and Delta, takes seconds to start, and is rarely used.

It is started at the first request, and ends after an hour without one, or when this process ends. It has no address:
each request has a pair of connected sockets, one end of which is passed to it over a socket that it has inherited.
"""

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import replace

from offsetlake.serve.settings import Settings

LOG = logging.getLogger(__name__)
MAX_IDLE_SECONDS = 3600.0
MAX_WAIT_SECONDS = 1.5
"""How long a request waits until the process is ready, before the visitor is told that it starts."""

RETRY_SECONDS = 10
"""The time after which a process that could not be started is started again."""

READY = b"\0"
"""What the process sends when it receives connections; anything else is the reason why it cannot."""

_MAX_END_SECONDS = 20.0  # for the requests and the change under way
_MAX_REASON_BYTES = 1 << 16
_MODULE = "offsetlake.cli.commands.serving.served_console"
_UNKNOWN = "The console cannot be served: the log of the server contains the reason."


class ConsoleUnavailable(Exception):
    """The console cannot be used now; the message says why, and `retry_seconds` when to try again."""

    def __init__(self, message: str, retry_seconds: int = 1) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class ConsoleProcess:
    """Starts the process when it is needed, passes connections to it, and ends it."""

    def __init__(self, settings: Settings) -> None:
        self._arguments = replace(settings, cluster=None).to_json()
        self._shows_reasons = settings.credentials is None  # they contain paths, and nobody has signed in yet
        self._current: _Process | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._users = 0
        self._idle: asyncio.TimerHandle | None = None
        self._is_closed = False

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[socket.socket]:
        """Yield a new connection to the process, which is closed after the block; start the process if necessary.

        Raises ConsoleUnavailable if the process is not ready yet, or cannot be used.
        """
        self._users += 1
        if self._idle is not None:
            self._idle.cancel()
        try:
            control = await self._control()
            own, passed = socket.socketpair()
            with own:
                own.setblocking(False)
                with passed:
                    _pass_on(passed, control)
                yield own
        finally:
            self._users -= 1
            if not self._users:
                self._idle = asyncio.get_running_loop().call_later(MAX_IDLE_SECONDS, self._end)

    async def close(self) -> None:
        """End the process, and wait until it has ended."""
        self._is_closed = True
        if self._idle is not None:
            self._idle.cancel()
        self._end()
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _control(self) -> socket.socket:
        if self._is_closed:
            raise ConsoleUnavailable("The server is stopping.")
        if self._current is None or self._current.task.done():
            self._current = _Process(self._arguments, shows_reasons=self._shows_reasons)
        ready = self._current.ready
        await asyncio.wait({ready}, timeout=MAX_WAIT_SECONDS)
        if not ready.done() or ready.cancelled():
            raise ConsoleUnavailable("The console is starting.")
        return ready.result()

    def _end(self) -> None:
        process, self._current = self._current, None
        if process is not None:
            self._ending.add(process.task)
            process.task.add_done_callback(self._ending.discard)
            process.task.cancel()


class _Process:
    """One process: `task` is done when it has ended, and `ready` has the socket that receives connections."""

    def __init__(self, arguments: str, *, shows_reasons: bool) -> None:
        self._shows_reasons = shows_reasons
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[socket.socket] = loop.create_future()
        self.ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())  # that no request awaits
        self.task = loop.create_task(self._run(arguments))

    async def _run(self, arguments: str) -> None:
        """Start the process and wait until it ends; end it if this task is cancelled."""
        control, inherited = socket.socketpair()
        control.setblocking(False)
        try:
            with control:
                with inherited:
                    process = await _start(arguments, inherited)
                try:
                    await self._await_ready(control)
                    LOG.info("The console is served by process %(pid)d", {"pid": process.pid})
                    code = await process.wait()
                    LOG.warning("The process of the console ended with code %(code)d", {"code": code})
                finally:
                    control.close()
                    await _ended(process)
        except ConsoleUnavailable as error:
            LOG.warning("The console cannot be served: %(reason)s", {"reason": error})
            self.ready.set_exception(error if self._shows_reasons else ConsoleUnavailable(_UNKNOWN, RETRY_SECONDS))
            await asyncio.sleep(RETRY_SECONDS)
        finally:
            self.ready.cancel()

    async def _await_ready(self, control: socket.socket) -> None:
        answer = await asyncio.get_running_loop().sock_recv(control, _MAX_REASON_BYTES)
        if answer != READY:
            raise ConsoleUnavailable(answer.decode() or _UNKNOWN, RETRY_SECONDS)
        self.ready.set_result(control)


async def _start(arguments: str, inherited: socket.socket) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            _MODULE,
            arguments,
            str(inherited.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            pass_fds=[inherited.fileno()],
            start_new_session=True,  # Ctrl-C reaches only the parent, which ends it
        )
    except OSError as error:
        reason = f"The process of the console cannot be started: {error.strerror}."
        raise ConsoleUnavailable(reason, RETRY_SECONDS) from error


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait until a process has ended whose control socket is closed; kill it if it takes too long."""
    try:
        async with asyncio.timeout(_MAX_END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _pass_on(connection: socket.socket, control: socket.socket) -> None:
    try:
        socket.send_fds(control, [b"\0"], [connection.fileno()])
    except OSError as error:  # the process has just ended, or does not receive connections
        raise ConsoleUnavailable("The console does not answer.") from error
