"""The ASGI application of the console: its routes, the check of the Host header, and the headers of responses."""

import re
from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offsetlake.console.answers import Answers
from offsetlake.console.pages import render
from offsetlake.console.routes import groups, static_files
from offsetlake.console.state import PageState
from offsetlake.errors import BadRequest, OffsetlakeError
from offsetlake.location.locate import LakeLocation

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


def application(location: LakeLocation) -> ASGIApp:
    """Return the application for a lake; only requests with a local Host header reach its routes."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    answers, lake = Answers(location), str(location)
    groups.add_routes(app, answers, lake)
    static_files.add_routes(app)
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
