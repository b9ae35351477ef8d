"""The HTTP server: uvicorn serves the routes of `offsetlake.web.http.api` in the event loop of the process."""

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
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offsetlake.errors import BadRequest
from offsetlake.serve.core import Core
from offsetlake.serve.metrics.durations import SECONDS
from offsetlake.serve.net.accept import AcceptedConnections
from offsetlake.serve.net.acceptor import Acceptor
from offsetlake.serve.net.security import Security
from offsetlake.serve.settings import CONSOLE_PATH
from offsetlake.util.log_lines import ClientLog
from offsetlake.web.http.api.response_models import PartitionOffset
from offsetlake.web.http.api.routes import Api
from offsetlake.web.http.connection import AcceptedHttpConnection, HttpConnection
from offsetlake.web.http.console_process import ConsoleProcess
from offsetlake.web.http.console_proxy import ConsoleProxy
from offsetlake.web.http.json_response import VisibleJSONResponse
from offsetlake.web.http.problems import PROBLEM_SCHEMA, Problem
from offsetlake.web.http.prometheus import registry

_CLIENT_LOG = ClientLog(logging.getLogger(__name__))
logging.getLogger("uvicorn.error").addFilter(lambda record: _CLIENT_LOG.allows(str(record.msg)))

MAX_BODY_BYTES = 1 << 20
_MAX_HEAD_BYTES = 1 << 18  # fits the longest group and topic, percent-encoded
_BACKLOG = 128
_MAX_SHUTDOWN_SECONDS = 5  # for the requests under way
_MAX_REPORTED_ERRORS = 10  # of one request
_LOCAL_HOSTS = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]+)?")
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


class HttpServer:
    """Serves HTTP until it is closed."""

    def __init__(self, core: Core, host: str, port: int) -> None:
        """Listen; raise BadRequest if the address cannot be used."""
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise BadRequest(f"Cannot listen for HTTP on {host}:{port}: {error.strerror}.") from error
        settings = core.settings
        self._console = None if settings.console is None else ConsoleProcess(settings)
        self._uvicorn = _Uvicorn(
            core.security,
            uvicorn.Config(
                application(core, self._console),
                http="h11",
                h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=_MAX_SHUTDOWN_SECONDS,
            ),
        )
        self._served = asyncio.create_task(self._uvicorn.serve([self._listener]))

    @property
    def port(self) -> int:
        """The port of the listening socket."""
        return int(self._listener.getsockname()[1])

    async def close(self) -> None:
        """Finish the requests under way and stop."""
        self._uvicorn.should_exit = True
        if self._console is not None:
            await self._console.close()
        await self._served


class _Uvicorn(uvicorn.Server):
    def __init__(self, security: Security, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._security = security
        self._acceptor: Acceptor

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen as the Kafka port does, so that each connection is counted before anything is read from it."""
        loop, security = asyncio.get_running_loop(), self._security

        def accepted() -> AcceptedHttpConnection:
            connections = security.connections
            arguments = self.config, self.server_state, self.lifespan.state, loop
            return AcceptedHttpConnection(connections, lambda: HttpConnection(connections, *arguments))

        accepted_connections = AcceptedConnections(security, lambda: security.http_tls, accepted, loop)
        self._acceptor = Acceptor(sockets or (), accepted_connections.start, loop)
        self.servers, self.started = [], True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and finish the requests under way."""
        self._acceptor.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not handle signals: the serving process does."""
        yield


def application(core: Core, console: ConsoleProcess | None = None) -> ASGIApp:
    """Return the ASGI application, with its OpenAPI description at `/openapi.json`, and the console if there is one."""
    metrics = registry(core)
    app = FastAPI(
        title="offsetlake serve", version="1", docs_url=None, redoc_url=None, default_response_class=VisibleJSONResponse
    )
    app.router.redirect_slashes = False
    app.include_router(Api(core, metrics).router())
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    app.add_exception_handler(Exception, _handle_internal_error)
    description = get_openapi(title=app.title, version=app.version, routes=app.routes)
    partition_offset = PartitionOffset.model_json_schema()
    description.setdefault("components", {}).setdefault("schemas", {}).update(
        Problem=PROBLEM_SCHEMA, PartitionOffset=partition_offset
    )
    app.openapi_schema = description
    proxy = _NO_CONSOLE if console is None else ConsoleProxy(console)
    app.router.routes += [Route(CONSOLE_PATH, proxy), Mount(CONSOLE_PATH, proxy)]
    settings = core.settings
    accepts_any_host = settings.credentials is not None or settings.open_to_anyone
    return _MeasuredApp(app, metrics, None if accepts_any_host else _LOCAL_HOSTS)


class _MeasuredApp:
    """Limits the bodies of requests, checks their Host header, and measures them by route and status.

    `hosts` are the accepted values of the header, None for all. Without authentication, the check prevents DNS
    rebinding: a foreign page in a browser on this machine could otherwise send requests to this server.
    """

    def __init__(self, app: ASGIApp, metrics: CollectorRegistry, hosts: re.Pattern[str] | None) -> None:
        self._app, self._hosts = app, hosts
        self._durations = Histogram(
            "offsetlake_http_request_duration_seconds",
            "Duration of HTTP requests, from the request to its answer.",
            ["method", "route", "status"],
            registry=metrics,
            buckets=SECONDS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, size, status, is_measured = perf_counter(), 0, 500, False

        def measure() -> None:
            nonlocal is_measured
            if not is_measured:
                route = getattr(scope.get("route"), "path", "none")  # one label for all unknown paths, of any number
                method = scope["method"] if scope["method"] in _METHODS else "other"
                self._durations.labels(method, route, status).observe(perf_counter() - start)
            is_measured = True

        async def limited_receive() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MAX_BODY_BYTES:
                raise Problem("too-large", f"A body must not exceed {MAX_BODY_BYTES} bytes. Split the request.")
            return message

        async def observed_send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                measure()  # before the client has the response, and can request the metrics
            await send(message)

        is_accepted = self._hosts is None or self._hosts.fullmatch(Headers(scope=scope).get("host", ""))
        app = self._app if is_accepted else _MISDIRECTED
        try:
            await app(scope, limited_receive, observed_send)
        finally:
            measure()


_NO_CONSOLE = Problem("not-found", "This server has no console: docs/operating.md has the setting console.").response()
_MISDIRECTED = Problem(
    "misdirected",
    "The Host header must be localhost, 127.0.0.1 or [::1], as this server does not require authentication.",
).response()


def _handle_http_error(request: Request, error: Exception) -> JSONResponse:
    """Return the response for an error that a route or the framework raised."""
    if isinstance(error, Problem):
        return error.response()
    status = error.status_code if isinstance(error, HTTPException) else 500
    where = f"{request.method} {request.url.path}"
    if status == 405:
        headers = dict(getattr(error, "headers", None) or {})
        return Problem(
            "method-not-allowed", f"{where} is not supported. Allowed methods: {headers.get('Allow')}.", headers
        ).response()
    if status == 404:
        return Problem("not-found", f"{where} does not exist. /openapi.json describes the existing paths.").response()
    return Problem("invalid-json", f"The body of {where} cannot be parsed: {getattr(error, 'detail', '')}.").response()


def _handle_invalid_request(_request: Request, error: Exception) -> JSONResponse:
    """Return the response for a request that failed validation, without repeating its values."""
    errors: list[dict[str, Any]] = [*error.errors()] if isinstance(error, RequestValidationError) else []
    if errors and errors[0]["type"] == "json_invalid":
        reason = errors[0]["ctx"]["error"]
        position = errors[0]["loc"][-1]
        return Problem("invalid-json", f"The body is not valid JSON at character {position}: {reason}.").response()
    if errors and errors[0]["loc"] == ("body",) and isinstance(errors[0].get("input"), bytes):
        return Problem("invalid-request", "The body must be JSON with `Content-Type: application/json`.").response()
    fields = [{"where": ".".join(map(str, item["loc"])), "what": item["msg"]} for item in errors[:_MAX_REPORTED_ERRORS]]
    detail = "; ".join("{where}: {what}".format(**field) for field in fields)
    return Problem("invalid-request", detail, errors=fields).response()


def _handle_internal_error(_request: Request, _error: Exception) -> JSONResponse:
    """Return the response for an unexpected error, which uvicorn logs."""
    return Problem(
        "internal", "An internal error occurred. The server's log contains the details; please report it."
    ).response()
