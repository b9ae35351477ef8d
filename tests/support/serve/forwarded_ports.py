"""Ports that test suites of other projects prescribe, from which connections are forwarded to a server."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer


class _Server(ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


@contextmanager
def forwarded(port: int, address: str) -> Iterator[None]:
    """Forward connections to a port of the loopback interface to an address."""
    host, _, target = address.rpartition(":")

    class Forwarding(BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((host, int(target))) as server:
                backwards = threading.Thread(target=_copy, args=(server, self.request))
                backwards.start()
                _copy(self.request, server)
                backwards.join()

    with _Server(("127.0.0.1", port), Forwarding) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy what one end of a connection sends until it ends."""
    with suppress(OSError):
        while received := source.recv(1 << 16):
            target.sendall(received)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
