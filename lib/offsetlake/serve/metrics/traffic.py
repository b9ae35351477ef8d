"""Counters of requests by API, which cost about a microsecond per request."""

from collections.abc import Iterator
from time import perf_counter

from offsetlake.serve.metrics.durations import Histogram
from offsetlake.serve.net.answering import Answer
from offsetlake.serve.net.connection import Requests
from offsetlake.serve.protocol import wire


class ApiTraffic:
    """Requests of one API: their durations, and the bytes of requests and answers without sizes and correlation ids."""

    __slots__ = ("durations", "received", "sent")

    def __init__(self) -> None:
        self.durations = Histogram()
        self.received = self.sent = 0


class Traffic:
    """Answered requests by API."""

    def __init__(self) -> None:
        self._apis: dict[int, ApiTraffic] = {}

    def get(self, api: int) -> ApiTraffic:
        """Return the counters of an API."""
        counters = self._apis.get(api)
        if counters is None:
            counters = self._apis[api] = ApiTraffic()
        return counters

    def __iter__(self) -> Iterator[tuple[int, ApiTraffic]]:
        """Iterate over the APIs with answered requests, in the order of their keys."""
        return iter(sorted(self._apis.items()))


class MeasuredRequests:
    """Delegates the requests of one connection and counts them when they are answered."""

    def __init__(self, requests: Requests, traffic: Traffic) -> None:
        self._take, self._traffic = requests.take, traffic
        self.may_follow = requests.may_follow

    def take(self, frame: bytes, header: wire.RequestHeader, answer: Answer) -> int:
        """Handle a request as `offsetlake.serve.net.connection.Requests` does."""
        start, api, received = perf_counter(), header.api, len(frame)

        def counted_answer(body: bytes, *parts: bytes) -> None:
            traffic = self._traffic.get(api)
            traffic.durations.observe(perf_counter() - start)
            traffic.received += received
            traffic.sent += len(body) + sum(map(len, parts))
            answer(body, *parts)

        return self._take(frame, header, counted_answer)
