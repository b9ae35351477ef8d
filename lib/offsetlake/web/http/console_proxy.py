"""Forwards the requests below `/console` to the process of the console, and its responses to the client.

The console authenticates its visitors itself, by cookies of its own. Each request has a connection of its own; of a
body, only what one read returned is in memory, so a slow client or a slow console stops the other side. The order of
work is that of the event loop: one read or write of at most CHUNK_BYTES at a time between the requests of consumers.
"""

import asyncio
import contextlib
import html
import socket
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import h11
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from offsetlake.serve.settings import CONSOLE_PATH
from offsetlake.web.http.console_process import ConsoleProcess, ConsoleUnavailable

MAX_REQUESTS = 64
"""Requests that are forwarded at once; further ones wait."""

MAX_SECONDS = 300.0
"""The duration of a request, with its wait and its response."""

CHUNK_BYTES = 1 << 16
MAX_HEAD_BYTES = 1 << 18  # of a response: that of the request that it may repeat

_ROUTE = SimpleNamespace(path=CONSOLE_PATH)  # the label of metrics, one for all pages
_HOP_BY_HOP = {
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
}  # fmt: skip
_NOT_FORWARDED = {b"authorization", b"expect", b"forwarded", b"content-length"}
"""Headers of requests that the console does not need, or that this process sets itself, as all of `x-forwarded-`."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
_PAGE = '<!DOCTYPE html><html lang="en"><title>offsetlake console</title><h1>offsetlake</h1><p>{}</p></html>'

Headers = Iterable[tuple[bytes, bytes]]


class ConsoleProxy:
    """The ASGI application below `/console`."""

    def __init__(self, process: ConsoleProcess) -> None:
        self._process = process
        self._slots = asyncio.Semaphore(MAX_REQUESTS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request, or answer it with a page that says why that is not possible."""
        scope["route"] = _ROUTE
        exchange = _Exchange(scope, receive, send)
        if scope["path"] == CONSOLE_PATH:
            problem: Response | None = RedirectResponse(f"{CONSOLE_PATH}/", 308)
        else:
            problem = await self._forward(exchange)
        if problem is not None and not exchange.has_begun:
            await problem(scope, receive, send)

    async def _forward(self, exchange: "_Exchange") -> Response | None:
        """Forward a request; return the page that says why that failed, or None."""
        try:
            async with asyncio.timeout(MAX_SECONDS), self._slots, self._process.connection() as connection:
                await exchange.run(connection)
        except ConsoleUnavailable as error:
            return _page(503, f"{error} This page loads itself again.", error.retry_seconds)
        except TimeoutError:
            return _page(504, f"The console has not answered within {MAX_SECONDS:.0f} s.")
        return None


def _page(status: int, text: str, retry_seconds: int | None = None) -> Response:
    headers = dict(_HEADERS)
    if retry_seconds is not None:
        headers |= {"Retry-After": str(retry_seconds), "Refresh": str(retry_seconds)}
    return HTMLResponse(_PAGE.format(html.escape(text)), status, headers)


class _Exchange:
    """One request and its response; `has_begun` is whether the client has received a part of the response."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._http = h11.Connection(h11.CLIENT, MAX_HEAD_BYTES)
        self._loop = asyncio.get_running_loop()
        self.has_begun = False

    async def run(self, connection: socket.socket) -> None:
        """Forward in both directions, until the response is complete or the client has disconnected.

        Raises ConsoleUnavailable if the process of the console ends before its response begins.
        """
        self._connection = connection
        directions = {self._loop.create_task(self._request()), self._loop.create_task(self._response())}
        try:
            done, _ = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            for direction in done:
                direction.result()
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)  # nothing may use the socket when it is closed

    async def _request(self) -> None:
        """Send the request; then wait until the client has disconnected."""
        await self._write(_request(self._scope))
        while (message := await self._receive())["type"] != "http.disconnect":
            if self._http.our_state is h11.SEND_BODY:
                await self._write(h11.Data(data=message.get("body", b"")))
                if not message.get("more_body", False):
                    await self._write(h11.EndOfMessage())

    async def _write(self, event: Any) -> None:
        with contextlib.suppress(ConnectionError):  # it has answered already; the response is what counts
            await self._loop.sock_sendall(self._connection, self._http.send(event) or b"")

    async def _response(self) -> None:
        """Send the response to the client."""
        while not isinstance(event := await self._read(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                headers = [*_end_to_end(event.headers)]
                self.has_begun = True
                await self._send({"type": "http.response.start", "status": event.status_code, "headers": headers})
            elif isinstance(event, h11.Data):
                await self._send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})

    async def _read(self) -> Any:
        """Return the next event of the response."""
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._loop.sock_recv(self._connection, CHUNK_BYTES))
        except (ConnectionError, h11.RemoteProtocolError) as error:
            raise ConsoleUnavailable("The process of the console has ended.") from error
        return event


def _request(scope: Scope) -> h11.Request:
    """Return the head of the forwarded request, which names the client as the only one that a proxy has seen."""
    given = dict(scope["headers"])
    host = b"unknown" if scope["client"] is None else scope["client"][0].encode()
    headers = [
        (name, value)
        for name, value in _end_to_end(scope["headers"])
        if name not in _NOT_FORWARDED and not name.startswith(b"x-forwarded-")
    ]
    headers += [(b"connection", b"close"), (b"x-forwarded-for", host)]
    if b"transfer-encoding" in given:
        headers.append((b"transfer-encoding", b"chunked"))
    elif b"content-length" in given:
        headers.append((b"content-length", given[b"content-length"]))
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    return h11.Request(method=scope["method"], target=scope["raw_path"] + query, headers=headers)


def _end_to_end(headers: Headers) -> Iterable[tuple[bytes, bytes]]:
    """Return the headers that are not about the connection (RFC 9110, section 7.6.1)."""
    fields = [(name.lower(), value) for name, value in headers]
    named = {part.strip().lower() for name, value in fields if name == b"connection" for part in value.split(b",")}
    return [(name, value) for name, value in fields if name not in _HOP_BY_HOP | named]
