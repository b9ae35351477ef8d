"""Serves the console with uvicorn until the process receives SIGINT or SIGTERM."""

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from offsetlake.console.app import application
from offsetlake.errors import BadRequest
from offsetlake.location.locate import LakeLocation

_MAX_SHUTDOWN_SECONDS = 5  # for the requests under way


def serve(location: LakeLocation, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the console of a lake; call `ready` with the address once connections are accepted.

    Raises BadRequest for an address that other machines can reach, or that cannot be used.
    """
    if not _is_loopback(host):
        raise BadRequest(f"Cannot listen on {host}: the console has no authentication, so use a loopback address.")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise BadRequest(f"Cannot listen on {host}:{port}: {error.strerror}. Choose another port.") from error
    config = uvicorn.Config(
        application(location),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_MAX_SHUTDOWN_SECONDS,
    )
    with listener:
        shown = f"[{host}]" if ":" in host else host
        address = f"{shown}:{listener.getsockname()[1]}"
        _Server(config, lambda: ready(address)).run([listener])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal and end without an error; uvicorn would raise the signal again."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        self._ready()  # the socket listens already; a signal from now on ends the process without an error
        yield


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
