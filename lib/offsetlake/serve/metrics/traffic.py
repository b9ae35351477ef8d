"""Watches the requests of connections go by, and counts them by API: about a microsecond a request."""

from collections.abc import Iterator
from time import perf_counter

from offsetlake.serve.metrics.durations import Histogram
from offsetlake.serve.net.answering import Answer
from offsetlake.serve.net.connection import Requests
from offsetlake.serve.protocol import wire


class ApiTraffic:
    """Requests of one API: how long until they were answered, and bytes without sizes and correlation ids."""

    __slots__ = ("answered", "received", "sent")

    def __init__(self) -> None:
        self.answered = Histogram()
        self.received = self.sent = 0


class Traffic:
    """Answered requests by API."""

    def __init__(self) -> None:
        self._apis: dict[int, ApiTraffic] = {}

    def of(self, api: int) -> ApiTraffic:
        """Give what is counted of an API."""
        found = self._apis.get(api)
        if found is None:
            found = self._apis[api] = ApiTraffic()
        return found

    def __iter__(self) -> Iterator[tuple[int, ApiTraffic]]:
        """Give all APIs that were asked."""
        return iter(sorted(self._apis.items()))


class Measured:
    """Answers the requests of one connection, as what it is given does, and counts them when they are answered."""

    def __init__(self, requests: Requests, traffic: Traffic) -> None:
        self._take, self._traffic = requests.take, traffic
        self.may_follow = requests.may_follow

    def take(self, frame: bytes, header: wire.RequestHeader, answer: Answer) -> int:
        """Take a request; as `offsetlake.serve.net.connection.Requests` has it."""
        began, api, received = perf_counter(), header.api, len(frame)

        def answered(body: bytes, *more: bytes) -> None:
            traffic = self._traffic.of(api)
            traffic.answered.observe(perf_counter() - began)
            traffic.received += received
            traffic.sent += len(body) + sum(map(len, more))
            answer(body, *more)

        return self._take(frame, header, answered)
