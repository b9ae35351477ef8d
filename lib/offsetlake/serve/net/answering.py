"""The responses on one connection: sent in the order of its requests, as fast as its client reads them."""

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

MAX_WRITE_BYTES = 64 << 10
"""Size up to which responses are joined for one write to the transport; also the high-water mark of its buffer."""

_SIZE_AND_CORRELATION = struct.Struct(">ii")
_CORRELATION_BYTES, _HEADER_BYTES = 4, 8


class Answer(Protocol):
    """Accepts the response to a request, without size and correlation id, in one or more pieces."""

    def __call__(self, body: bytes, /, *more: bytes) -> None:
        """Accept the response."""


class Answers:
    """The responses that were not yet written to the transport.

    `ready` is called when a response is added, and `sent` after all of them were written.

    | Field    | Description |
    |----------|-------------|
    | waiting  | The responses from the first unanswered request on, in the order of the requests. |
    | bytes    | The size of the responses that were not yet written. |
    | unread   | Whether the buffer of the transport is full, because the client does not read its responses. |
    """

    __slots__ = ("_out", "_ready", "_sent", "bytes", "unread", "waiting")

    def __init__(self, ready: Callable[[], None], sent: Callable[[], None]) -> None:
        self._ready, self._sent = ready, sent
        self.waiting: deque[list[bytes]] = deque()
        self._out: deque[bytes] = deque()
        self.bytes = 0
        self.unread = False

    def expect(self, correlation: int) -> Answer:
        """Reserve the place of the response to a request; return the function that accepts the response."""
        slot: list[bytes] = []
        self.waiting.append(slot)
        return partial(self._take, slot, correlation)

    def collect(self) -> None:
        """Move the responses that precede the first unanswered request to those that can be written."""
        waiting = self.waiting
        while waiting and waiting[0]:
            self._out += waiting.popleft()

    def are_due(self) -> bool:
        """Check whether responses can be written to the transport."""
        return bool(self._out) and not self.unread

    def send(self, transport: asyncio.Transport, is_over: Callable[[], bool]) -> None:
        """Write responses until the buffer of the transport is full or `is_over` returns True."""
        self.collect()
        out = self._out
        while out and not self.unread:
            if self.bytes <= MAX_WRITE_BYTES:
                data = b"".join(out)
                out.clear()
            else:
                pieces, size = [], 0
                while out and size < MAX_WRITE_BYTES:
                    pieces.append(out.popleft())
                    size += len(pieces[-1])
                data = b"".join(pieces)
            self.bytes -= len(data)
            transport.write(data)
            if not (out or self.waiting):
                self._sent()
            if out and is_over():
                break

    def send_all(self, transport: asyncio.Transport) -> None:
        """Write all responses that precede the first unanswered request; used before the connection is closed."""
        self.collect()
        if self._out:
            transport.write(b"".join(self._out))

    def clear(self) -> None:
        """Discard all responses; used after the connection was closed."""
        self.waiting.clear()
        self._out.clear()
        self.bytes = 0

    def _take(self, slot: list[bytes], correlation: int, body: bytes, *more: bytes) -> None:
        size = len(body) + _CORRELATION_BYTES
        for piece in more:
            size += len(piece)
        slot += (_SIZE_AND_CORRELATION.pack(size, correlation), body, *more)
        self.bytes += size + _HEADER_BYTES - _CORRELATION_BYTES
        self._ready()
