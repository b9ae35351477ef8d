"""The one shape of the handlers of requests, and how functions that answer at once or after a wait become handlers."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.request_tasks import RequestTasks
from offsetlake.serve.protocol.encoding import Values
from offsetlake.serve.steps import Steps, Work

Answered = Values | Steps[Values] | bytes | tuple[bytes, ...]
"""The response to a request: values that are encoded by its schema, or its encoding, also in several pieces."""

Respond = Callable[[Answered], None]
Handler = Callable[[Any, RequestContext, Respond], Work | None]
"""Handles a request that kio's schemas describe, and calls its third argument once with the response.

The work that it may return is done in steps, between those of other clients.
"""

Handlers = Mapping[int, Handler]
"""Handlers by API key."""


def at_once(answer: Callable[[Any, RequestContext], Values | Steps[Values]]) -> Handler:
    """Return the handler that responds with the result of a function."""

    def handle(request: Any, context: RequestContext, respond: Respond) -> None:
        respond(answer(request, context))

    return handle


def awaited(tasks: RequestTasks, answer: Callable[[Any, RequestContext], Coroutine[Any, Any, Answered]]) -> Handler:
    """Return the handler that responds with the result of a coroutine; if it fails, the connection is closed."""

    def handle(request: Any, context: RequestContext, respond: Respond) -> None:
        tasks.start(answer(request, context), respond, context)

    return handle
