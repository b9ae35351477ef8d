"""A broker with scripted responses, for what a real broker does rarely or only in a cluster."""

import io
import socketserver
import struct
import threading
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from aiokafka.protocol.admin import ApiVersionRequest_v0
from aiokafka.protocol.api import RequestHeader_v1
from aiokafka.protocol.fetch import FetchRequest_v11
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.offset import OffsetRequest_v3

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "__consumer_offsets"
CLUSTER_ID = "scripted"
REQUESTS = {
    each.API_KEY: each for each in (ApiVersionRequest_v0, FetchRequest_v11, MetadataRequest_v5, OffsetRequest_v3)
}


@dataclass(frozen=True, slots=True)
class Fetched:
    """The response to a Fetch request; without the partition if `throttle_ms` is set."""

    records: bytes = b""
    error: int = 0
    high_watermark: int = 1_000
    throttle_ms: int = 0


class ScriptedBroker(socketserver.ThreadingTCPServer):
    """Answers from `fetches` one by one, the last one for ever; None breaks the connection off.

    | attribute   | is |
    |-------------|----|
    | `leaders`   | by Metadata request, the last one for ever: the broker said to lead the one partition, None = none |
    | `error`     | what Metadata says of the topic |
    | `range`     | what ListOffsets says: log start offset and high watermark |
    | `versions`  | newest version of each request |
    | `requests`  | what was asked, version requests left out; `seen` is notified of each |
    | `retried`   | called when a request for metadata is received that is not the first one |
    """

    allow_reuse_address = True

    def __init__(self, *fetches: Fetched | None, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.address: tuple[str, int] = ("127.0.0.1", self.server_address[1])
        self.fetches = deque(fetches)
        self.leaders: deque[tuple[str, int] | None] = deque([self.address])
        self.error = 0
        self.range = (0, 1_000)
        self.versions = {kind.API_KEY: kind.API_VERSION for kind in REQUESTS.values()}
        self.requests: list[Any] = []
        self.seen = threading.Condition()
        self.retried: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self.address)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()  # waits for the connections to end: a client that keeps one hangs the test

    def sent(self, kind: type) -> list[Any]:
        with self.seen:
            return [request for request in self.requests if isinstance(request, kind)]

    def answer(self, request: Any) -> Any:
        with self.seen:
            if not isinstance(request, ApiVersionRequest_v0):
                self.requests.append(request)
                self.seen.notify_all()
            if [type(each) for each in self.requests].count(MetadataRequest_v5) > 1:
                self.retried()
            return request.RESPONSE_TYPE(*self._fields(request))

    def _fields(self, request: Any) -> tuple[Any, ...]:
        match request:
            case ApiVersionRequest_v0():
                return 0, [(key, 0, newest) for key, newest in self.versions.items()]
            case MetadataRequest_v5():
                leader = _next(self.leaders)
                brokers = [(1, *self.address, None)] + ([(2, *leader, None)] if leader else [])
                partitions = [(0, 0, 2 if leader else -1, [2], [2], [])]
                return 0, brokers, CLUSTER_ID, 1, [(self.error, t, True, partitions) for t in request.topics]
            case OffsetRequest_v3():
                [(topic, [(partition, timestamp)])] = request.topics
                offset = self.range[0] if timestamp == -2 else self.range[1]
                return 0, [(topic, [(partition, 0, -1, offset)])]
        said = _next(self.fetches)
        if said is None:
            raise ConnectionAbortedError
        [(topic, [(partition, *_)])] = request.topics
        fetched = (partition, said.error, said.high_watermark, -1, -1, None, -1, said.records)
        return said.throttle_ms, 0, 0, [] if said.throttle_ms else [(topic, [fetched])]


class _Handler(socketserver.StreamRequestHandler):
    server: ScriptedBroker

    def handle(self) -> None:
        while size := self.rfile.read(4):
            request = io.BytesIO(self.rfile.read(struct.unpack(">i", size)[0]))
            key, _version, correlation, _client = (field.decode(request) for field in RequestHeader_v1.SCHEMA.fields)
            try:
                body = self.server.answer(REQUESTS[key].decode(request)).encode()
                self.wfile.write(struct.pack(">ii", len(body) + 4, correlation) + body)
            except ConnectionError:
                return  # broken off by the script, or given up by the client


def _next(script: deque[Any]) -> Any:
    return script.popleft() if len(script) > 1 else script[0]
