"""Serves the console with uvicorn until the process receives SIGINT or SIGTERM, or its parent ends."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from anyio import to_thread
from starlette.types import ASGIApp, Receive, Scope, Send

from offsetlake.auth.security_files import SecurityFiles
from offsetlake.errors import BadRequest
from offsetlake.util.memory_limit import return_large_blocks
from offsetlake.web.console.changing.workbench import await_changes

_MAX_SHUTDOWN_SECONDS = 5  # for the requests under way
MAX_PAGES_AT_ONCE = 8  # others wait: each needs memory, and each thread keeps some


def serve(app: ASGIApp, security: SecurityFiles, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the application of the console; call `ready` with the URL once connections are accepted.

    Raises BadRequest for an address that cannot be used.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise BadRequest(f"Cannot listen on {host}:{port}: {error.strerror}. Choose another port.") from error
    config = _config(app, behind_proxy=False)
    config.ssl = security.http_tls
    with listener:
        shown = f"[{host}]" if ":" in host else host
        url = f"{'http' if config.ssl is None else 'https'}://{shown}:{listener.getsockname()[1]}/"
        _Server(config, security, lambda: ready(url)).run([listener])
        await_changes()


def serve_behind(app: ASGIApp, security: SecurityFiles, control: socket.socket, ready: bytes, path: str) -> None:
    """Serve the application of the console below a path, for a parent process that forwards requests.

    Args:
        app: The application.
        security: The credentials and permissions.
        control: One end of a pair of stream sockets. The parent sends one byte with a descriptor, the other end of
            a connection, for each request; when it closes its end, the server ends.
        ready: What is sent to the parent once connections are received.
        path: The path, such as `/console`, with which the paths of all requests begin.
    """

    async def below(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "root_path": path}, receive, send)

    config = _config(below, behind_proxy=True)
    _ServerOfParent(config, security, control, ready).run([])
    await_changes()


def _config(app: ASGIApp, *, behind_proxy: bool) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=behind_proxy,
        forwarded_allow_ips="*" if behind_proxy else "",
        server_header=False,
        date_header=not behind_proxy,
        timeout_graceful_shutdown=_MAX_SHUTDOWN_SECONDS,
    )
    config.load()
    return config


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, security: SecurityFiles, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._security, self._ready = security, ready
        return_large_blocks()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        to_thread.current_default_thread_limiter().total_tokens = MAX_PAGES_AT_ONCE
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Reload changed credentials and ACLs once a second, of ten ticks."""
        if counter % 10 == 0:
            self._security.reload()
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal and end without an error; uvicorn would raise the signal again."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        self._ready()  # the socket listens already; a signal from now on ends the process without an error
        yield


class _ServerOfParent(_Server):
    """Serves connections that the parent process passes on; it has no address to which others could connect."""

    def __init__(self, config: uvicorn.Config, security: SecurityFiles, control: socket.socket, ready: bytes) -> None:
        super().__init__(config, security, self._announce)
        self._control, self._ready_message = control, ready

    def _announce(self) -> None:
        with contextlib.suppress(ConnectionError):  # the parent has ended, and so will this process
            self._control.sendall(self._ready_message)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to receive connections."""
        await super().startup(sockets)
        self._loop, self._connecting = asyncio.get_running_loop(), set[asyncio.Task[object]]()
        self._loop.add_reader(self._control, self._receive)

    def _receive(self) -> None:
        byte, descriptors, *_ = socket.recv_fds(self._control, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not byte:
            self._loop.remove_reader(self._control)
            self.should_exit = True
        for descriptor in descriptors:
            connection = socket.socket(fileno=descriptor)
            connection.setblocking(False)
            task = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, connection))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    def _protocol(self) -> asyncio.Protocol:
        protocol = self.config.http_protocol_class
        return protocol(self.config, self.server_state, self.lifespan.state)  # type: ignore[call-arg]
