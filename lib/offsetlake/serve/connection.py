"""One client's connection: frames in, answers out in the order of the requests."""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from offsetlake.serve import wire
from offsetlake.serve.client import Client
from offsetlake.serve.request_limits import API_KEY_BYTES, MIN_LIMIT_BYTES, check_frame_size

LOG = logging.getLogger(__name__)
UNANSWERED = 1000  # requests of one connection that may wait for the log; more are left to its socket
BYTES_UNANSWERED = 16 << 20  # of them, since there were none
MAX_MUTED_BYTES = 16 << 10  # read from a connection that is muted, and not processed yet
_SIZE = struct.Struct(">i")
_SIZE_AND_CORRELATION = struct.Struct(">ii")

Answer = Callable[[bytes], None]


class Requests(Protocol):
    """What answers requests."""

    def take(self, frame: bytes, header: wire.Header, answer: Answer) -> int:
        """Take a request; `answer` is called, now or later, with the answer from behind its correlation id on.

        Gives for how many ms nothing more is to be taken of the connection: its quota is used up. Raises Malformed,
        struct.error, IndexError or ValueError where the connection must end.
        """

    def may_follow(self, header: wire.Header) -> bool:
        """Tell whether a request may begin before those before it are answered: it sees nothing of what they do."""


class Others(Protocol):
    """All connections that there are."""

    def discard(self, connection: "Connection") -> None:
        """Hear that one has ended."""


class Connection(asyncio.Protocol):
    """Reads requests and writes answers; what cannot be read as Kafka's protocol ends the connection."""

    def __init__(self, requests: Requests, client: Client, others: Others, loop: asyncio.AbstractEventLoop) -> None:
        self._requests, self._client, self._others, self._loop = requests, client, others, loop
        self._received: bytes | bytearray = b""  # what no request was made of yet
        self._held: tuple[bytes, wire.Header] | None = None  # the next request, while it waits for those before it
        self._slots: deque[list[bytes]] = deque()  # from the first request that is not answered yet
        self._out: list[bytes] = []
        self._unread = False  # the client does not read what it is sent
        self._muted = False
        self._unmuting: asyncio.TimerHandle | None = None
        self._paused = False
        self._heard = True  # something came since `is_idle` was last asked
        self._in_flight = 0  # bytes taken since no request waited for its answer
        self._scheduled = False
        self._transport: asyncio.Transport | None = None
        client.hang_up = self.close

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the connection; what it has asked to be written is written."""
        self._others.discard(self)
        self._transport = None
        if self._unmuting is not None:
            self._unmuting.cancel()

    def data_received(self, data: bytes) -> None:
        """Take in bytes."""
        self._heard = True
        if not self._received:
            self._received = data  # mostly whole requests: they are cut out of it, and nothing is left
        elif isinstance(self._received, bytearray):
            self._received += data
        else:
            self._received = bytearray(self._received + data)
        self._go_on()

    def pause_writing(self) -> None:
        """Take no more requests of a client that does not read the answers."""
        self._unread = True

    def resume_writing(self) -> None:
        """Go on."""
        self._unread = False
        self._go_on()

    def close(self) -> None:
        """End the connection when what was answered is sent."""
        if self._transport is not None:
            self._transport.close()

    def is_idle(self) -> bool:
        """Tell whether nothing came since this was last asked, and nothing waits to be answered."""
        heard, self._heard = self._heard, False
        return not (heard or self._slots)

    def _go_on(self) -> None:
        """Take requests as long as there are whole ones and none has to wait; send the answers whose turn has come."""
        transport = self._transport
        if transport is None:
            return
        self._scheduled = True  # what is answered at once is sent below
        ends = False
        try:
            self._take_requests()
        except (wire.Malformed, struct.error, IndexError, ValueError) as error:
            LOG.info(
                "%(address)s sent what is no request of Kafka's protocol (%(reason)s): its connection is closed",
                {"address": self._client.address, "reason": error},
            )
            ends = True
        except Exception:
            LOG.exception(
                "%(address)s asked what the program has a fault with: its connection is closed",
                {"address": self._client.address},
            )
            ends = True
        self._scheduled = False
        if self._out:
            transport.write(b"".join(self._out))
            self._out.clear()
        if ends:
            transport.close()
            self._transport = None
        else:
            self._pause_or_resume(transport)

    def _pause_or_resume(self, transport: asyncio.Transport) -> None:
        # A muted connection is read on, up to a limit: that its client has closed it is only noticed by reading.
        full = self._muted and len(self._received) > MAX_MUTED_BYTES
        waits = self._unread or full or self._held is not None
        if waits != self._paused:
            self._paused = waits
            (transport.pause_reading if waits else transport.resume_reading)()

    def _take_requests(self) -> None:
        at = 0
        while not self._unread:
            self._collect()
            if self._muted:
                break
            if self._held is None:
                at = self._next_frame(at)
                if self._held is None:
                    break
            frame, header = self._held
            if self._slots and (self._is_full() or not self._requests.may_follow(header)):
                break
            self._held = None
            self._in_flight = self._in_flight + len(frame) if self._slots else len(frame)
            slot: list[bytes] = []
            self._slots.append(slot)
            rest_ms = self._requests.take(frame, header, partial(self._answer, slot, header.correlation))
            if rest_ms:
                self._muted = True
                self._unmuting = self._loop.call_later(rest_ms / 1000, self._unmute)
        if at == len(self._received):
            self._received = b""
        elif isinstance(self._received, bytearray):
            del self._received[:at]  # moves nothing
        elif at:
            self._received = bytearray(memoryview(self._received)[at:])

    def _is_full(self) -> bool:
        """Tell whether all that waits to be answered is as much as may be."""
        return len(self._slots) >= UNANSWERED or self._in_flight >= BYTES_UNANSWERED

    def _unmute(self) -> None:
        self._muted = False
        self._go_on()

    def _collect(self) -> None:
        slots = self._slots
        while slots and slots[0]:
            self._out += slots.popleft()

    def _next_frame(self, at: int) -> int:
        """Hold the next request, if all of it is there; gives where the one behind it begins."""
        received = self._received
        begin = at + _SIZE.size
        if len(received) < begin:
            return at
        (size,) = _SIZE.unpack_from(received, at)
        if not 0 <= size <= MIN_LIMIT_BYTES:
            check_frame_size(size, received[begin : begin + API_KEY_BYTES])
        stop = begin + size
        if len(received) < stop:
            return at
        frame = bytes(received[begin:stop])
        self._held = frame, wire.read_header(frame)
        return int(stop)

    def _answer(self, slot: list[bytes], correlation: int, body: bytes) -> None:
        slot += (_SIZE_AND_CORRELATION.pack(len(body) + _SIZE.size, correlation), body)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._go_on)
