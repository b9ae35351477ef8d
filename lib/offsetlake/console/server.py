"""Serves the console with uvicorn until the process receives SIGINT or SIGTERM."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from offsetlake.errors import BadRequest
from offsetlake.serve.net.security import Security

_MAX_SHUTDOWN_SECONDS = 5  # for the requests under way


def serve(app: ASGIApp, security: Security, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the application of the console; call `ready` with the URL once connections are accepted.

    Raises BadRequest for an address that cannot be used.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise BadRequest(f"Cannot listen on {host}:{port}: {error.strerror}. Choose another port.") from error
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_MAX_SHUTDOWN_SECONDS,
    )
    config.load()
    config.ssl = security.http_tls
    with listener:
        shown = f"[{host}]" if ":" in host else host
        url = f"{'http' if config.ssl is None else 'https'}://{shown}:{listener.getsockname()[1]}/"
        _Server(config, security, lambda: ready(url)).run([listener])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, security: Security, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._security, self._ready = security, ready

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
