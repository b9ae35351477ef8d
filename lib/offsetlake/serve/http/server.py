"""The HTTP port: the routes of `offsetlake.serve.http.api`, served by uvicorn in the serving process's event loop."""

import asyncio
import contextlib
import logging
import re
import socket
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from prometheus_client import CollectorRegistry, Histogram
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offsetlake.errors import BadRequest
from offsetlake.serve.components import ServerComponents
from offsetlake.serve.http.answers import PROBLEM_SCHEMA, PartitionOffset, Problem, VisibleJSONResponse
from offsetlake.serve.http.api import Api
from offsetlake.serve.http.connection import AcceptedHttpConnection, HttpConnection
from offsetlake.serve.http.prometheus import registry
from offsetlake.serve.logs import ClientLog
from offsetlake.serve.metrics.durations import SECONDS
from offsetlake.serve.net.accept import AcceptedConnections
from offsetlake.serve.net.acceptor import Acceptor
from offsetlake.serve.net.security import Security

_CLIENT_LOG = ClientLog(logging.getLogger(__name__))
logging.getLogger("uvicorn.error").addFilter(lambda record: _CLIENT_LOG.allows(str(record.msg)))

LARGEST_BODY = 1 << 20
_LARGEST_HEAD = 1 << 18  # the longest group and topic there can be, percent-encoded, fit in
_BACKLOG = 128
_LAST_SECONDS = 5  # for requests that are under way when the process is to end
_MOST_ERRORS = 10  # told of one request
_OURS = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]+)?")
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


class HttpServer:
    """Listens for HTTP until it is closed."""

    def __init__(self, parts: ServerComponents, host: str, port: int) -> None:
        """Listen; BadRequest where it cannot."""
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise BadRequest(f"cannot listen for HTTP on {host}:{port}: {error.strerror}") from error
        self._uvicorn = _Uvicorn(
            parts.security,
            uvicorn.Config(
                application(parts),
                http="h11",
                h11_max_incomplete_event_size=_LARGEST_HEAD,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=_LAST_SECONDS,
            ),
        )
        self._served = asyncio.create_task(self._uvicorn.serve([self._listener]))

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    async def close(self) -> None:
        """Finish what was asked, and end."""
        self._uvicorn.should_exit = True
        await self._served


class _Uvicorn(uvicorn.Server):
    def __init__(self, security: Security, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._security = security
        self._acceptor: Acceptor

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, as the port of Kafka's protocol does: each connection is counted before anything is read of it."""
        loop, security = asyncio.get_running_loop(), self._security

        def arriving() -> AcceptedHttpConnection:
            connections = security.connections
            of_uvicorn = self.config, self.server_state, self.lifespan.state, loop
            return AcceptedHttpConnection(connections, lambda: HttpConnection(connections, *of_uvicorn))

        accepted = AcceptedConnections(security, lambda: security.http_tls, arriving, loop)
        self._acceptor = Acceptor(sockets or (), accepted.start, loop)
        self.servers, self.started = [], True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and finish the requests under way."""
        self._acceptor.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the serving process."""
        yield


def application(parts: ServerComponents) -> ASGIApp:
    """Make the application, with the description of itself at `/openapi.json`."""
    metrics = registry(parts)
    app = FastAPI(
        title="offsetlake serve", version="1", docs_url=None, redoc_url=None, default_response_class=VisibleJSONResponse
    )
    app.router.redirect_slashes = False
    app.include_router(Api(parts, metrics).router())
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _fault)
    described = get_openapi(title=app.title, version=app.version, routes=app.routes)
    partition_offset = PartitionOffset.model_json_schema()
    described.setdefault("components", {}).setdefault("schemas", {}).update(
        Problem=PROBLEM_SCHEMA, PartitionOffset=partition_offset
    )
    app.openapi_schema = described
    settings = parts.settings
    is_open = settings.credentials is not None or settings.open_to_anyone
    return _Watched(app, metrics, None if is_open else _OURS)


class _Watched:
    """Limits the bodies of requests, and counts them by route and status.

    A page of anybody's in a browser on this machine can have its own name lead here; where nobody has to say who it is,
    it is told by that name: `hosts` are those that may be named.
    """

    def __init__(self, app: ASGIApp, metrics: CollectorRegistry, hosts: re.Pattern[str] | None) -> None:
        self._app, self._hosts = app, hosts
        self._durations = Histogram(
            "offsetlake_http_request_duration_seconds",
            "Time from a request of HTTP being read to its answer.",
            ["method", "route", "status"],
            registry=metrics,
            buckets=SECONDS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, size, status = perf_counter(), 0, 500

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > LARGEST_BODY:
                raise Problem("too-large", f"a body has at most {LARGEST_BODY} bytes: send less at a time")
            return message

        async def told(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        is_ours = self._hosts is None or self._hosts.fullmatch(Headers(scope=scope).get("host", ""))
        app = self._app if is_ours else _MISDIRECTED
        try:
            await app(scope, limited, told)
        finally:
            route = getattr(scope.get("route"), "path", "none")  # a path that is not there: anybody can make them up
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._durations.labels(method, route, status).observe(perf_counter() - began)


_MISDIRECTED = Problem(
    "misdirected", "only requests to this machine by localhost, 127.0.0.1 or [::1] are answered: name it so"
).response()


def _http_problem(request: Request, error: Exception) -> JSONResponse:
    """Answer what the routes or the framework refuse."""
    if isinstance(error, Problem):
        return error.response()
    status = error.status_code if isinstance(error, HTTPException) else 500
    where = f"{request.method} {request.url.path}"
    if status == 405:
        headers = dict(getattr(error, "headers", None) or {})
        return Problem("method-not-allowed", f"{where}: it takes {headers.get('Allow', 'others')}", headers).response()
    if status == 404:
        return Problem("not-found", f"{where}: /openapi.json tells which paths there are").response()
    return Problem("no-json", f"{where}: the body cannot be read ({getattr(error, 'detail', '')})").response()


def _invalid(_request: Request, error: Exception) -> JSONResponse:
    """Answer a request that says what cannot be; what it said is not repeated."""
    found: list[dict[str, Any]] = [*error.errors()] if isinstance(error, RequestValidationError) else []
    if found and found[0]["type"] == "json_invalid":
        why = found[0]["ctx"]["error"]
        return Problem("no-json", f"at character {found[0]['loc'][-1]} of the body: {why}").response()
    if found and found[0]["loc"] == ("body",) and isinstance(found[0].get("input"), bytes):
        return Problem("makes-no-sense", "a body is JSON: send a header `Content-Type: application/json`").response()
    told = [{"where": ".".join(map(str, of["loc"])), "what": of["msg"]} for of in found[:_MOST_ERRORS]]
    return Problem("makes-no-sense", "; ".join("{where}: {what}".format(**of) for of in told), errors=told).response()


def _fault(_request: Request, _error: Exception) -> JSONResponse:
    """Answer where the program is wrong; uvicorn logs why."""
    return Problem("internal", "the server's log says what happened: please report it").response()
