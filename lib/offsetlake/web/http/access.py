"""Authentication and authorization over HTTP: bearer tokens, and the ACL that also applies to Kafka's protocol."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from offsetlake.kafka.batches.writer import Headers
from offsetlake.serve.net.client import Client
from offsetlake.serve.net.security import Security
from offsetlake.util.log_lines import ClientLog
from offsetlake.web.http.problems import Problem

LOG = ClientLog(logging.getLogger(__name__))
_AUTHENTICATION_HINT = "Send the header `Authorization: Bearer TOKEN` with a token created by `offsetlake credentials`."


def authenticated_route(security: Security) -> type[APIRoute]:
    """Return a class of routes that authenticate the client before they read the body of the request."""

    class AuthenticatedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def authenticate_and_handle(request: Request) -> Response:
                request.state.client = _authenticate(security, request)
                return await handle(request)

            return authenticate_and_handle

    return AuthenticatedRoute


def _authenticate(security: Security, request: Request) -> Client:
    client = Client()
    client.address = "unknown" if request.client is None else f"{request.client.host}:{request.client.port}"
    if security.credentials is not None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        principal = security.authenticate_token(token.strip()) if scheme.lower() == "bearer" else None
        if principal is None:
            LOG.warning("HTTP authentication of %s failed: the request has no valid token", client.address)
            raise Problem("authentication-required", _AUTHENTICATION_HINT, {"www-authenticate": "Bearer"})
        client.principal = principal
    client.access = security.access(client.principal)
    return client


def client_of(request: Request, permission: int = 0, group: str = "") -> Client:
    """Return the client of a request to an authenticated route.

    Raises:
        Problem: The client does not have the permission on the group.
    """
    client: Client = request.state.client
    if permission and not client.may(permission, group.encode()):
        raise Problem("permission-denied", f"{client.principal} does not have that permission on group {group!r}.")
    return client


def audit_headers_of(client: Client, request: Request, what: str) -> Headers:
    """Return the audit headers of a write; the client id is the user agent."""
    return client.audit_headers(what, request.headers.get("user-agent", "").encode())
