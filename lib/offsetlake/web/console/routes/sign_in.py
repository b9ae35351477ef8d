"""Signing in with a token, and signing out."""

import logging
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from offsetlake.auth.login_attempts import TooManyAttempts
from offsetlake.util.log_lines import ClientLog
from offsetlake.web.console.access import PUBLIC, form_fields, gate_of
from offsetlake.web.console.pages import render
from offsetlake.web.console.routes.parameters import Text
from offsetlake.web.console.sessions import MAX_SESSION_SECONDS
from offsetlake.web.console.state import PageState, at_base

LOG = ClientLog(logging.getLogger(__name__))
_UNKNOWN = "The token is unknown or has expired. `offsetlake credentials token NAME` creates one."


def add_routes(app: FastAPI) -> None:
    """Add the routes to an application."""

    @app.get("/sign-in", dependencies=[PUBLIC])
    def show(request: Request, to: Text = "") -> Response:
        is_signed_in = gate_of(request).session(request) is not None
        return RedirectResponse(_local(to), 303) if is_signed_in else _page(to)

    @app.post("/sign-in", dependencies=[PUBLIC])
    async def sign_in(request: Request) -> Response:
        fields, gate = await form_fields(request), gate_of(request)
        to, token = (fields.get(name, [""])[0].strip() for name in ("to", "token"))
        address = "unknown" if request.client is None else request.client.host
        try:
            gate.security.attempts.admit(address)
        except TooManyAttempts as error:
            LOG.warning("Sign-in from %s was refused: %s", address, error)
            raise HTTPException(429, "Too many failed attempts to sign in. Try again in a few seconds.") from error
        principal = gate.security.authenticate_token(token)
        if principal is None:
            gate.security.attempts.failed(address)
            LOG.warning("Sign-in from %s failed: the token is unknown or has expired", address)
            return _page(to, _UNKNOWN, 403)
        cookie = gate.cookie(request)
        gate.sessions.end(request.cookies.get(cookie, ""))
        response = RedirectResponse(_local(to), 303)
        response.set_cookie(
            cookie,
            gate.sessions.begin(principal, token),
            max_age=int(MAX_SESSION_SECONDS),
            path=gate.cookie_path(request),
            secure=gate.is_encrypted(request),
            httponly=True,
            samesite="strict",
        )
        return response

    @app.post("/sign-out", dependencies=[PUBLIC])
    async def sign_out(request: Request) -> Response:
        gate = gate_of(request)
        cookie = gate.cookie(request)
        gate.sessions.end(request.cookies.get(cookie, ""))
        response = RedirectResponse(at_base("/sign-in"), 303)
        path, secure = gate.cookie_path(request), gate.is_encrypted(request)
        response.delete_cookie(cookie, path, secure=secure, httponly=True, samesite="strict")
        return response


def _page(to: str, message: str = "", status: int = 200) -> Response:
    return HTMLResponse(render("sign_in.html", state=PageState(), to=_local(to), message=message), status)


def _local(to: str) -> str:
    """Return an address of this console: what was requested, or the first page if that is elsewhere."""
    first = at_base("/")
    parts = urlsplit(to)
    is_local = to.startswith(first) and not to.startswith(("//", "/\\")) and not parts.netloc and to.isprintable()
    return to if is_local else first
