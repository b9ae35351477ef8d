"""Who sees and changes what: each route has one of the dependencies in CHECKS, and a test fails for one without.

People sign in with a bearer token of `offsetlake credentials`; the ACL determines the groups that they see. Without
credentials everyone on this machine is `User:ANONYMOUS`.
"""

import hmac
import secrets
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from offsetlake.auth.acl import ADMIN, ANONYMOUS, Access
from offsetlake.auth.security_files import SecurityFiles
from offsetlake.web.console.hosts import is_local
from offsetlake.web.console.sessions import Session, Sessions

MAX_FORM_BYTES = 1 << 20
_MAX_FORM_FIELDS = 10_000
_FORM = "application/x-www-form-urlencoded"


class SignInRequired(Exception):
    """The request has no valid session."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """The person who sent a request.

    | Field        | Description |
    |--------------|-------------|
    | principal    | As in Kafka, `User:NAME`. |
    | access       | The permissions. |
    | form_token   | The secret that each form must contain. |
    | is_signed_in | Whether there is a session. |
    | may_change   | Whether this console makes changes at all. |
    """

    principal: str
    access: Access
    form_token: str = field(repr=False)
    is_signed_in: bool
    may_change: bool

    def sees(self, group: str) -> bool:
        """Check whether the visitor may read a group."""
        return self.access.sees(group.encode())

    def administers(self, group: str) -> bool:
        """Check whether the visitor may change a group in this console."""
        return self.may_change and self.access.may(ADMIN, group.encode())

    def visible(self, rows: pa.Table) -> pa.Table:
        """Return the rows whose column `group_id` is a group that the visitor may read."""
        if self.access.sees_all():
            return rows
        return rows.filter(pa.array([self.sees(name) for name in rows["group_id"].to_pylist()], pa.bool_()))


VISITOR: ContextVar[Visitor | None] = ContextVar("visitor", default=None)
"""The visitor of the request that is being handled, for the parts that all pages have."""


@dataclass(slots=True)
class Gate:
    """Authenticates visitors.

    | Field    | Description |
    |----------|-------------|
    | security | The credentials and permissions. |
    | allows_changes | Whether changes can be made. |
    | path     | The path of the console; without TLS, browsers send the cookie only below it. |
    | sessions | The sessions. |
    """

    security: SecurityFiles
    allows_changes: bool = False
    path: str = "/"
    sessions: Sessions = field(default_factory=Sessions)
    _form_token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def visitor(self, request: Request) -> Visitor:
        """Return the visitor of a request; raise SignInRequired if it has no valid session."""
        if self.security.credentials is None:
            return Visitor(ANONYMOUS, self.security.access(ANONYMOUS), self._form_token, False, self.allows_changes)
        session = self.session(request)
        if session is None:
            raise SignInRequired
        access = self.security.access(session.principal)
        return Visitor(session.principal, access, session.form_token, True, self.allows_changes)

    def session(self, request: Request) -> Session | None:
        """Return the session of a request; None if there is none, or if its token was revoked or has expired."""
        session = self.sessions.find(request.cookies.get(self.cookie(request), ""))
        if session is None or self.security.authenticate_token(session.token) != session.principal:
            return None
        return session

    def is_encrypted(self, request: Request) -> bool:
        """Check whether the browser uses TLS: here, or at a proxy, which is assumed if the host is another machine."""
        return self.security.http_tls is not None or not is_local(request.headers.get("host", ""))

    def cookie(self, request: Request) -> str:
        """Return the name of the cookie; with TLS, one that no other server of the domain can set."""
        name = f"offsetlake{self.path}".rstrip("/").replace("/", "-")  # browsers send cookies to all ports of a host
        return f"__Host-{name}" if self.is_encrypted(request) else name

    def cookie_path(self, request: Request) -> str:
        """Return the path below which browsers send the cookie; with TLS, the name of the cookie requires `/`."""
        return "/" if self.is_encrypted(request) else self.path


def gate_of(request: Request) -> Gate:
    """Return the gate of the application."""
    gate: Gate = request.app.state.gate
    return gate


async def public() -> None:
    """Permit everyone: for routes that show nothing of a lake."""


async def reader(request: Request) -> Visitor:
    """Return the visitor; the route itself omits groups that the visitor may not read."""
    visitor = gate_of(request).visitor(request)
    VISITOR.set(visitor)
    return visitor


async def reader_of_all(request: Request) -> Visitor:
    """Return a visitor who may read all groups."""
    visitor = await reader(request)
    if not visitor.access.sees_all():
        raise HTTPException(403, "This page is about all groups: it requires the permission read on the group *.")
    return visitor


@dataclass(frozen=True, slots=True)
class Submission:
    """A form that a visitor has submitted; each field has a list of values."""

    visitor: Visitor
    fields: Mapping[str, list[str]]

    def text(self, name: str) -> str:
        """Return the value of a field, empty if the form has none."""
        return self.fields.get(name, [""])[0].strip()


async def changer(request: Request) -> Submission:
    """Return the form of a visitor; the route itself checks the permission on each group that it changes."""
    visitor = await reader(request)
    if not visitor.may_change:
        raise HTTPException(403, "This console only reads: see docs/console.md for the option --allow-changes.")
    fields = await form_fields(request)
    if not hmac.compare_digest(fields.get("form_token", [""])[0].encode(), visitor.form_token.encode()):
        raise HTTPException(403, "The form is not one of this session. Open the page again, and repeat the change.")
    return Submission(visitor, fields)


async def form_fields(request: Request) -> dict[str, list[str]]:
    """Return the fields of a submitted form; raise HTTPException if it is too large or is not one."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise HTTPException(415, f"The body must be a form: {_FORM}.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM_BYTES:
            raise HTTPException(413, f"A form must not exceed {MAX_FORM_BYTES:,} bytes. Select less at once.")
    try:
        return parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FORM_FIELDS)
    except ValueError as error:  # also UnicodeDecodeError
        raise HTTPException(400, "The form cannot be parsed, or has too many fields.") from error


def is_same_origin(headers: Headers) -> bool:
    """Check whether a page of this console sent a request: browsers send Origin with each form and each script."""
    fetch_site, origin = headers.get("sec-fetch-site", "same-origin"), urlsplit(headers.get("origin", ""))
    is_own = origin.scheme in {"http", "https"} and origin.netloc == headers.get("host", "")
    return is_own and fetch_site == "same-origin"


Reader = Annotated[Visitor, Depends(reader)]
ReaderOfAll = Annotated[Visitor, Depends(reader_of_all)]
Change = Annotated[Submission, Depends(changer)]
PUBLIC = Depends(public)

CHECKS = (public, reader, reader_of_all, changer)
"""The permission checks; every route depends on one of them."""
