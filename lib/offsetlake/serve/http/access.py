"""Who asks by HTTP, and whether it may: bearer tokens, and the rights that hold for Kafka's protocol."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from offsetlake.kafka.batches.writer import Headers
from offsetlake.serve.auth.principals import Client
from offsetlake.serve.http.answers import Problem
from offsetlake.serve.logs import ClientLog
from offsetlake.serve.net.security import Security

LOG = ClientLog(logging.getLogger(__name__))
_HOW_TO_LOG_IN = "send a header `Authorization: Bearer TOKEN`: `offsetlake credentials` makes tokens, for a time"


def guarded(security: Security) -> type[APIRoute]:
    """Make the routes that nobody takes who is not known: that is asked before a body is read, and not by a handler."""

    class Guarded(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            answer = super().get_route_handler()

            async def ask_first(request: Request) -> Response:
                request.state.client = _known(security, request)
                return await answer(request)

            return ask_first

    return Guarded


def _known(security: Security, request: Request) -> Client:
    client = Client()
    client.address = "unknown" if request.client is None else f"{request.client.host}:{request.client.port}"
    if security.credentials is not None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        principal = security.authenticate_token(token.strip()) if scheme.lower() == "bearer" else None
        if principal is None:
            LOG.warning("%s is not let in by HTTP: it has no token that holds", client.address)
            raise Problem("not-logged-in", _HOW_TO_LOG_IN, {"www-authenticate": "Bearer"})
        client.principal = principal
    client.access = security.access(client.principal)
    return client


def client_of(request: Request, right: int = 0, group: str = "") -> Client:
    """Tell who asks by a guarded route; raises Problem where it may not do that to the group."""
    client: Client = request.state.client
    if right and not client.may(right, group.encode()):
        raise Problem("not-allowed", f"{client.principal} has no such right on group {group!r}")
    return client


def audit_headers_of(client: Client, request: Request, what: str) -> Headers:
    """Give the headers that tell in the log who did this; for its client id a program says what it is."""
    return client.audit_headers(what, request.headers.get("user-agent", "").encode())
