"""Dispatches the requests of one listener to the handlers of their APIs, and encodes the responses."""

from collections import Counter
from collections.abc import Coroutine, Generator, Mapping
from functools import partial
from typing import Any, Protocol

from offsetlake.kafka.error_codes import UNSUPPORTED_VERSION
from offsetlake.serve.apis.named_topics import named_topics
from offsetlake.serve.net.answering import Answer
from offsetlake.serve.net.client import Client, RequestContext
from offsetlake.serve.net.handlers import Answered, Handler, Handlers
from offsetlake.serve.net.request_tasks import RequestTasks
from offsetlake.serve.protocol import schemas, wire
from offsetlake.serve.protocol.api_keys import API_VERSIONS, version_range
from offsetlake.serve.protocol.encoding import Response, Values
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.steps import Steps, Work, complete
from offsetlake.serve.writes.offset_commit import MIN_LARGE_REQUEST_BYTES


class Forwarder(Protocol):
    """Passes requests on to another node, as they are."""

    def takes(self, api: int, version: int) -> bool:
        """Check whether requests of an API are passed on."""

    def answer(self, api: int, frame: bytes, client: Client) -> Coroutine[Any, Any, bytes]:
        """Return the response to a request."""


class ApiDispatcher:
    """Dispatches requests to their handlers and answers them.

    | Field     | Description |
    |-----------|-------------|
    | handlers  | The handlers by API key |
    | versions  | The versions of the APIs that are answered, by API key |
    | errors    | Counts error codes by API key and code |
    | forwarder | Passes requests on to other nodes; None: nothing does |
    | address   | The host and port at which clients reach this listener |
    """

    address: tuple[str, int]

    def __init__(
        self, topics: Topics, tasks: RequestTasks, versions: Mapping[int, range], errors: Counter[tuple[int, int]]
    ) -> None:
        self._topics, self._tasks, self.versions, self.errors = topics, tasks, versions, errors
        self.handlers: dict[int, Handler] = {}
        self.forwarder: Forwarder | None = None

    def add(self, handlers: Handlers) -> None:
        """Add the handlers of APIs that have none yet."""
        if twice := self.handlers.keys() & handlers.keys():
            raise ValueError(f"The APIs {sorted(twice)} have two handlers.")
        self.handlers |= handlers

    def take(self, frame: bytes, header: wire.RequestHeader, answer: Answer, client: Client) -> int:
        """Handle a request of a client; see `offsetlake.serve.net.connection.Requests.take`."""
        api, version = header.api, header.version
        if self.forwarder is not None and self.forwarder.takes(api, version):  # without an answer, its connection ends
            self._tasks.start(self.forwarder.answer(api, frame, client), answer, RequestContext(0, client, None))
            return 0
        if version not in self.versions.get(api, ()):
            if api != API_VERSIONS:
                raise wire.Malformed(f"unsupported API {api}, version {version}")
            refused = {"error_code": UNSUPPORTED_VERSION, "api_keys": [version_range(api, self.versions[api])]}
            client.work(self._respond(api, 0, refused, answer))
            return 0
        work = self._take(frame, header, answer, client)
        if len(frame) < MIN_LARGE_REQUEST_BYTES:
            return complete(work)
        client.work(work)
        return 0

    def _take(self, frame: bytes, header: wire.RequestHeader, answer: Answer, client: Client) -> Work:
        """Read a request in steps, and call its handler."""
        api, version = header.api, header.version
        request = yield from schemas.read(frame, header)
        context = RequestContext(version, client, header.client_id)
        if self._topics.deferred(
            partial(named_topics, api, request), lambda: client.work(self._dispatch(api, request, context, answer))
        ):
            return 0
        return (yield from self._dispatch(api, request, context, answer))

    def _dispatch(self, api: int, request: Any, context: RequestContext, answer: Answer) -> Work:
        """Call the handler of a request that was read."""

        def respond(response: Answered) -> None:
            if isinstance(response, bytes):
                answer(response)
            elif isinstance(response, tuple):
                answer(*response)
            else:
                context.client.work(self._respond(api, context.version, response, answer))

        work = self.handlers[api](request, context, respond)
        return 0 if work is None else (yield from work)

    def _respond(self, api: int, version: int, values: Values | Steps[Values], answer: Answer) -> Work:
        """Encode a response in steps, and send it."""

        def failed(code: int) -> None:
            self.errors[api, code] += 1

        if isinstance(values, Generator):
            values = yield from values
        schema, tags = schemas.response_schema(api, version)
        response = Response(failed)
        yield from response.encode(schema, values)
        answer(tags, *response.end())
        return 0
