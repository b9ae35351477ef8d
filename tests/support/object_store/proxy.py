"""A proxy before an object store that records requests, and fails or holds some of them."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Fault(Enum):
    """What happens to a request."""

    NONE = auto()
    CONNECTION_LOST_BEFORE = auto()
    CONNECTION_LOST_AFTER = auto()
    """The store does what was requested, but the client gets no answer."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer of S3 that refuses a request."""

    status: int
    code: str
    message: str = "No."

    @property
    def content(self) -> bytes:
        return f"<Error><Code>{self.code}</Code><Message>{self.message}</Message></Error>".encode()


SLOW_DOWN, INTERNAL_ERROR = Refusal(503, "SlowDown"), Refusal(500, "InternalError")
EVERY_FAULT = (SLOW_DOWN, INTERNAL_ERROR, Fault.CONNECTION_LOST_BEFORE, Fault.CONNECTION_LOST_AFTER)


@dataclass(frozen=True, slots=True)
class Request:
    """A request by its number, from 1."""

    number: int
    method: str
    path: str


@dataclass
class Proxy:
    """The recorded requests, and what decides about the next ones; it may block."""

    endpoint: str = ""
    requests: list[Request] = field(default_factory=list)
    fault: Callable[[Request], Fault | Refusal] = lambda _: Fault.NONE
    lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, method: str, path: str) -> Request:
        with self.lock:
            request = Request(len(self.requests) + 1, method, path)
            self.requests.append(request)
            return request


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # answers are sent at once
    server: "_Server"

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.proxy.fault(self.server.proxy.record(self.command, self.path))
        if isinstance(fault, Refusal):
            self._refuse(fault)
        elif fault is Fault.CONNECTION_LOST_BEFORE:
            self.close_connection = True
        else:
            self._pass_on(body, answered=fault is Fault.NONE)

    def _pass_on(self, body: bytes, *, answered: bool) -> None:
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=120)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            response = upstream.getresponse()
            content = response.read()
        finally:
            upstream.close()
        if not answered:
            self.close_connection = True
            return
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = response.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(content)

    def _refuse(self, refusal: Refusal) -> None:
        self.send_response_only(refusal.status)
        self.send_header("Content-Length", str(len(refusal.content)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else refusal.content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward  # noqa: N815 - names of http.server

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: Proxy, upstream: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy, self.upstream = proxy, upstream

    def handle_error(self, *_: Any) -> None:
        """Ignore the errors of connections to clients that were killed."""


@contextmanager
def proxy_before(port: int) -> Iterator[Proxy]:
    """Run a proxy before the store at a port of loopback."""
    proxy = Proxy()
    with _Server(proxy, port) as server:
        proxy.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()
