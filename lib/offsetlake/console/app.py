"""The ASGI application of the console: its routes, the check of the Host header, and the headers of responses."""

import re
from collections.abc import Callable
from importlib.resources import files
from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offsetlake.console.answers import Answers
from offsetlake.console.pages import render
from offsetlake.console.state import PAGE_ROWS, PageState, command_line
from offsetlake.errors import BadRequest, OffsetlakeError
from offsetlake.location.locate import LakeLocation
from offsetlake.queries.questions import STATES

_LOCAL_HOSTS = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]+)?")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STATIC = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}

_Text = Annotated[str, Query(max_length=1 << 16)]


def application(location: LakeLocation) -> ASGIApp:
    """Return the application for a lake; only requests with a local Host header reach its routes."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    answers, lake = Answers(location), str(location)

    @app.get("/")
    def groups(at: _Text = "", q: _Text = "", state: _Text = "", sort: _Text = "group_id", page: int = 1) -> Response:
        shown = PageState(at=at.strip(), q=q, state=state, sort=sort, page=page)
        rows, total = answers.groups(shown)
        command = command_line("groups", group=shown.pattern, state=state or None, as_of=shown.at or None, lake=lake)
        more = total > page * PAGE_ROWS
        return _page("groups.html", shown, command, rows=rows.to_pylist(), total=total, more=more, states=STATES)

    @app.get("/group")
    def group(group: _Text, at: _Text = "", page: int = 1) -> Response:
        shown = PageState(at=at.strip(), group=group, page=page)
        rows, total = answers.group(shown)
        command = command_line("offsets", group=group, as_of=shown.at or None, lake=lake)
        return _page("group.html", shown, command, rows=rows.to_pylist(), total=total, more=total > page * PAGE_ROWS)

    @app.get("/partition")
    def partition(group: _Text, topic: _Text, partition: int, at: _Text = "", page: int = 1) -> Response:
        shown = PageState(at=at.strip(), group=group, topic=topic, partition=partition, page=page)
        rows, more = answers.commits(shown)
        command = command_line("history", group=group, topic=topic, partition=partition, lake=lake)
        return _page("partition.html", shown, command, rows=rows.to_pylist(), more=more)

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in _STATIC:
            raise HTTPException(404)
        return Response(files(__package__).joinpath("static", name).read_bytes(), media_type=_STATIC[name])

    app.add_exception_handler(OffsetlakeError, _handle(lambda error: 400 if isinstance(error, BadRequest) else 503))
    app.add_exception_handler(RequestValidationError, _handle(lambda _error: 400))
    app.add_exception_handler(HTTPException, _handle(lambda error: getattr(error, "status_code", 500)))
    return LocalOnly(app)


class LocalOnly:
    """Passes on requests with a local Host header, and adds the security headers to every response.

    The check prevents DNS rebinding: a foreign page in a browser on this machine could otherwise read the console.
    """

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        is_local = _LOCAL_HOSTS.fullmatch(Headers(scope=scope).get("host", ""))
        await (self.app if is_local else _MISDIRECTED)(scope, receive, send_with_headers)


_MISDIRECTED = Response("The Host header must be localhost, 127.0.0.1 or [::1].\n", 421, media_type="text/plain")


def _page(template: str, state: PageState, command: str, **values: object) -> HTMLResponse:
    return HTMLResponse(render(template, state=state, command=command, **values))


def _handle(status: Callable[[Exception], int]) -> Callable[[Request, Exception], Response]:
    """Return a handler that shows the message of an error as a page."""

    def handle(request: Request, error: Exception) -> Response:
        code = status(error)
        message = str(error)
        if isinstance(error, RequestValidationError):
            message = "; ".join(f"{item['loc'][-1]}: {item['msg']}" for item in error.errors())
        elif code == 404:
            message = f"The page {request.url.path} does not exist."
        return HTMLResponse(render("error.html", state=PageState(), message=message), code)

    return handle
