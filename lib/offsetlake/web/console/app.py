"""The ASGI application of the console: its routes, the check of the Host header, and the headers of responses."""

from collections.abc import Callable, Sequence
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offsetlake.errors import BadRequest, NotInLake, OffsetlakeError
from offsetlake.lake.data_files import FILE_ERRORS, damage_behind
from offsetlake.lake.location.locate import LakeLocation
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.web.console.access import Gate, SignInRequired, is_same_origin
from offsetlake.web.console.answers import PageAnswers
from offsetlake.web.console.changing.workbench import Workbench
from offsetlake.web.console.dashboard import DASHBOARD
from offsetlake.web.console.hosts import is_local
from offsetlake.web.console.page_lake import OPENED
from offsetlake.web.console.page_notes import PageNotes
from offsetlake.web.console.pages import NOT_COMPRESSED, NOTES, PATH, as_sentence, no_notes, render
from offsetlake.web.console.routes import (
    changes,
    groups,
    lake_pages,
    live,
    review,
    search,
    share,
    sign_in,
    sql,
    static_files,
    steps,
    what_if,
)
from offsetlake.web.console.routes.parameters import RelativeTime
from offsetlake.web.console.state import BASE, PageState, at_base

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def application(
    location: LakeLocation,
    gate: Gate,
    policy: RetentionPolicy,
    bench: Workbench | None = None,
    source: Sequence[str] = (),
    dashboard: str = "",
) -> ASGIApp:
    """Return the application for a lake, for the visitors that the gate permits.

    Args:
        location: The lake.
        gate: Authenticates visitors.
        policy: The configured retention, with which others are compared.
        bench: Makes changes; None if the console only reads.
        source: The options with the lake, the log and the settings, for commands that depend on them.
        dashboard: The address of the dashboard to which pages link (`web.console.dashboard`); empty for none.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    answers, lake = PageAnswers(location), str(location)
    app.state.answers = answers
    groups.add_routes(app, answers, lake, policy)
    steps.add_routes(app, answers, lake, source)
    search.add_routes(app, answers, lake)
    changes.add_routes(app, answers, bench, source)
    what_if.add_routes(app, answers, lake, policy, source)
    lake_pages.add_routes(app, answers, lake)
    review.add_routes(app, answers, lake, bench)
    share.add_routes(app, answers, lake)
    live.add_routes(app, answers, lake, policy)
    sql.add_routes(app, location)
    sign_in.add_routes(app)
    static_files.add_routes(app)
    return checked(app, gate, dashboard, PageNotes(answers).about)


def checked(app: FastAPI, gate: Gate, dashboard: str = "", notes: Callable[[str], Sequence[str]] = no_notes) -> ASGIApp:
    """Return an application with the checks of all requests, and with pages for errors.

    Its pages begin with the sentences that `notes` returns for the group of the page, which may be empty.
    """
    app.state.gate = gate
    app.add_exception_handler(SignInRequired, _to_sign_in)
    app.add_exception_handler(RelativeTime, lambda _request, error: RedirectResponse(str(error), 303))
    app.add_exception_handler(OffsetlakeError, _handle(_status))
    for kind in FILE_ERRORS:
        app.add_exception_handler(kind, _handle_damage)
    app.add_exception_handler(RequestValidationError, _handle(lambda _error: 400))
    app.add_exception_handler(HTTPException, _handle(lambda error: getattr(error, "status_code", 500)))
    return CheckedRequests(app, dashboard, notes, only_local=gate.security.credentials is None)


class CheckedRequests:
    """Passes on requests to this host from pages of this host; compresses responses, and adds missing security headers.

    Without credentials the Host header must be local, which prevents DNS rebinding: a foreign page in a browser on this
    machine could otherwise read the console. With credentials, such a page has no session.
    """

    def __init__(
        self, app: FastAPI, dashboard: str, notes: Callable[[str], Sequence[str]] = no_notes, *, only_local: bool
    ) -> None:
        self.app, self._dashboard, self._notes, self._only_local = app, dashboard, notes, only_local
        self._compressed = GZipMiddleware(app, _MIN_COMPRESSED_BYTES, _COMPRESSION)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if headers.get("content-encoding") == NOT_COMPRESSED:
                    del headers["content-encoding"]
            await send(message)

        requested, app = Headers(scope=scope), self._compressed
        BASE.set(scope.get("root_path", ""))
        PATH.set(scope["path"].removeprefix(scope.get("root_path", "")))
        DASHBOARD.set(self._dashboard)
        NOTES.set(self._notes)
        OPENED.set({} if scope["method"] in _SAFE_METHODS else None)
        if self._only_local and not is_local(requested.get("host", "")):
            await _MISDIRECTED(scope, receive, send_with_headers)
        elif scope["method"] not in _SAFE_METHODS and not is_same_origin(requested):
            await _CROSS_ORIGIN(scope, receive, send_with_headers)
        else:  # the server omits the body of the response to HEAD
            await app({**scope, "method": "GET"} if scope["method"] == "HEAD" else scope, receive, send_with_headers)


_MIN_COMPRESSED_BYTES, _COMPRESSION = 1000, 4
_SAFE_METHODS = {"GET", "HEAD"}
_MISDIRECTED = Response("The Host header must be localhost, 127.0.0.1 or [::1].\n", 421, media_type="text/plain")
_CROSS_ORIGIN = Response("Forms of other sites are refused.\n", 403, media_type="text/plain")


def _to_sign_in(request: Request, _error: Exception) -> Response:
    """Return a redirection to the form that returns to the page, or 401 if the browser does not show the response."""
    if request.method != "GET" or request.headers.get("sec-fetch-mode", "navigate") != "navigate":
        page = render("error.html", state=PageState(), message="Your session has ended: sign in again.")
        return HTMLResponse(page, 401)
    path = _path_and_query(request)
    form = at_base("/sign-in" if path == "/" else f"/sign-in?to={quote(path, safe='')}")
    if request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}:  # browsers omit the cookie after a link
        page = render("error.html", state=PageState(), message="The console checks whether you are signed in.")
        return HTMLResponse(page, 401, {"Refresh": f"0; url={form}"})
    return RedirectResponse(form, 303)


def _path_and_query(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _handle_damage(request: Request, error: Exception) -> Response:
    """Show which file of the lake is damaged; raise other errors."""
    if (found := damage_behind(error)) is None:
        raise error
    return _handle(lambda _error: 503)(request, found)


def _status(error: Exception) -> int:
    """Return the status of an error that the user can act on."""
    if isinstance(error, NotInLake):
        return 404
    return 400 if isinstance(error, BadRequest) else 503


def _handle(status: Callable[[Exception], int]) -> Callable[[Request, Exception], Response]:
    """Return a handler that shows the message of an error as a page."""

    def handle(request: Request, error: Exception) -> Response:
        code = status(error)
        message = error.detail if isinstance(error, HTTPException) else str(error)
        if isinstance(error, RequestValidationError):
            message = "; ".join(f"Invalid parameter {item['loc'][-1]}: {item['msg']}" for item in error.errors())
        elif isinstance(error, HTTPException) and code == 404:
            message = f"The page {_path_and_query(request)} does not exist."
        return HTMLResponse(render("error.html", state=PageState(), message=as_sentence(message)), code)

    return handle
