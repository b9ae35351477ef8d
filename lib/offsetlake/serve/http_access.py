"""Who asks by HTTP, and whether it may: bearer tokens, and the rights that hold for Kafka's protocol."""

import logging

from fastapi import Request

from offsetlake.kafka.act_headers import Headers
from offsetlake.serve.client import Client
from offsetlake.serve.http_answers import Problem
from offsetlake.serve.security import Security

LOG = logging.getLogger(__name__)
_HOW_TO_LOG_IN = "send a header `Authorization: Bearer TOKEN`: `offsetlake credentials` makes tokens, for a time"


def client_of(security: Security, request: Request, right: int = 0, group: str = "") -> Client:
    """Tell who asks; raises Problem where nobody knows, or it may not do that to the group."""
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
    if right and not client.may(right, group.encode()):
        raise Problem("not-allowed", f"{client.principal} has no such right on group {group!r}")
    return client


def act_of(client: Client, request: Request, what: str) -> Headers:
    """Give the headers that tell in the log who did this; for its client id a program says what it is."""
    return client.act(what, request.headers.get("user-agent", "").encode())
