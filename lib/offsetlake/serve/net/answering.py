"""The answers of one connection: in the order of its requests, and sent as fast as its client reads them."""

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

SENT_AT_ONCE_BYTES = 64 << 10
"""Of answers that are joined and written to the transport; it may have as many that the socket does not take."""

_SIZE_AND_CORRELATION = struct.Struct(">ii")
_CORRELATION_BYTES, _HEADER_BYTES = 4, 8


class Answer(Protocol):
    """Takes the answer to a request, from behind its correlation id on, in one or more pieces."""

    def __call__(self, body: bytes, /, *more: bytes) -> None:
        """Take it."""


class Answers:
    """Answers that were not written to the transport yet; `ready` is called when one comes that may be.

    | field    | is |
    |----------|----|
    | waiting  | from the first request that is not answered yet, the answers of all |
    | bytes    | of answers that were not written |
    | unread   | the transport takes no more: the client does not read what it is sent |
    """

    __slots__ = ("_out", "_ready", "bytes", "unread", "waiting")

    def __init__(self, ready: Callable[[], None]) -> None:
        self._ready = ready
        self.waiting: deque[list[bytes]] = deque()
        self._out: deque[bytes] = deque()
        self.bytes = 0
        self.unread = False

    def expect(self, correlation: int) -> Answer:
        """Begin to wait for the answer to a request; return what takes it."""
        slot: list[bytes] = []
        self.waiting.append(slot)
        return partial(self._take, slot, correlation)

    def collect(self) -> None:
        """Find the answers whose turn has come."""
        waiting = self.waiting
        while waiting and waiting[0]:
            self._out += waiting.popleft()

    def are_due(self) -> bool:
        """Check whether answers can be written to the transport."""
        return bool(self._out) and not self.unread

    def send(self, transport: asyncio.Transport, is_over: Callable[[], bool]) -> None:
        """Write the answers whose turn has come, until the transport takes no more or the time is over."""
        self.collect()
        out = self._out
        while out and not self.unread:
            if self.bytes <= SENT_AT_ONCE_BYTES:
                data = b"".join(out)
                out.clear()
            else:
                pieces, size = [], 0
                while out and size < SENT_AT_ONCE_BYTES:
                    pieces.append(out.popleft())
                    size += len(pieces[-1])
                data = b"".join(pieces)
            self.bytes -= len(data)
            transport.write(data)
            if out and is_over():
                break

    def send_all(self, transport: asyncio.Transport) -> None:
        """Write all answers whose turn has come: the connection is about to end."""
        self.collect()
        if self._out:
            transport.write(b"".join(self._out))

    def clear(self) -> None:
        """Forget all answers: the connection has ended."""
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
