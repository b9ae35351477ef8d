"""One client's connection: frames in, answers out in the order of the requests.

Connections take turns (`offsetlake.serve.net.turns`) in which requests are read, worked on and answered. No request is
read while responses wait to be sent, so that a client cannot have more waiting than the response to one request.
"""

import asyncio
import logging
import struct
from collections import deque
from typing import Protocol, cast

from offsetlake.serve.auth.principals import Client
from offsetlake.serve.logs import ClientLog
from offsetlake.serve.net.answering import SENT_AT_ONCE_BYTES, Answer, Answers
from offsetlake.serve.net.frame_memory import UNCHARGED_BYTES
from offsetlake.serve.net.turns import Turns
from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.request_limits import API_KEY_BYTES, MIN_LIMIT_BYTES, check_frame_size
from offsetlake.serve.steps import Work

LOG = ClientLog(logging.getLogger(__name__))
UNANSWERED = 1000  # requests of one connection that may wait for the log; more are left to its socket
BYTES_UNANSWERED = 16 << 20  # of them, since there were none
MAX_MUTED_BYTES = 16 << 10  # read from a connection that is muted, and not processed yet

MAX_UNREAD_BYTES = 64 << 10  # that a connection in a queue may receive before nothing more is read of its socket
_SIZE = struct.Struct(">i")


class Requests(Protocol):
    """What answers requests."""

    def take(self, frame: bytes, header: wire.RequestHeader, answer: Answer) -> int:
        """Take a request; `answer` is called, now or later, with the answer from behind its correlation id on.

        What may take long is given to `Client.work`. Gives for how many ms nothing more is to be taken of the
        connection: its quota is used up. Raises Malformed, struct.error, IndexError or ValueError where the connection
        must end.
        """

    def may_follow(self, header: wire.RequestHeader) -> bool:
        """Tell whether a request may begin before those before it are answered: it sees nothing of what they do."""


class Others(Protocol):
    """All connections that there are."""

    def discard(self, connection: "Connection") -> None:
        """Hear that one has ended."""


class Connection(asyncio.Protocol):
    """Reads requests and writes answers; what cannot be read as Kafka's protocol ends the connection."""

    def __init__(self, requests: Requests, client: Client, others: Others, turns: Turns) -> None:
        self._requests, self._client, self._others, self._turns = requests, client, others, turns
        self._received: bytes | bytearray = b""  # what no request was made of yet
        self._held: tuple[bytes, wire.RequestHeader] | None = (
            None  # the next request, while it waits for those before it
        )
        self._work: deque[Work] = deque()
        self._work_bytes = 0  # of memory
        self._answers = Answers(self._be_called)
        self._muted = False
        self._unmuting: asyncio.TimerHandle | None = None
        self._paused = False
        self._heard = True  # something came since `is_idle` was last asked
        self._in_flight = 0  # bytes taken since no request waited for its answer
        self._called = False  # is under way, or will be in the next iteration of the event loop
        self._is_charged = False  # for memory
        self._transport: asyncio.Transport | None = None
        self.queued = False
        client.close_connection, client.work = self.close, self._begin

    @property
    def address(self) -> str:
        """Host and port of the client."""
        return self._client.address

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=SENT_AT_ONCE_BYTES)

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the connection; what it has asked to be written is written."""
        self._others.discard(self)
        if self._unmuting is not None:
            self._unmuting.cancel()
        self._release()

    def data_received(self, data: bytes) -> None:
        """Take in bytes; ignore those that arrive after the connection was closed."""
        if self._transport is None:
            return
        self._heard = True
        if not self._received:
            self._received = data  # mostly whole requests: they are cut out of it, and nothing is left
        elif isinstance(self._received, bytearray):
            self._received += data
        else:
            self._received = bytearray(self._received + data)
        if self.queued:
            self._pause_or_resume(self._transport, queued=True)
            self._charge()
        else:
            self._turns.serve(self)

    def pause_writing(self) -> None:
        """Take no more requests of a client that does not read the answers."""
        self._answers.unread = True

    def resume_writing(self) -> None:
        """Go on."""
        self._answers.unread = False
        self._go_on()

    def close(self) -> None:
        """End the connection when what was answered is sent."""
        if self._transport is not None:
            self._answers.send_all(self._transport)
            self._transport.close()
            self._release()

    def abort(self) -> None:
        """End the connection now, and release the memory it uses."""
        if self._transport is not None:
            self._transport.abort()
            self._release()

    def is_idle(self) -> bool:
        """Tell whether nothing came since this was last asked, and nothing waits to be answered."""
        heard, self._heard = self._heard, False
        return not (heard or self._answers.waiting)

    def run(self, until: float) -> bool:
        """Take requests, work on them and send answers; as `offsetlake.serve.net.turns.Served` has it."""
        self._called = True  # what is answered at once is sent below
        more = False
        try:
            more = self._take_requests(until)
        except (wire.Malformed, struct.error, IndexError, ValueError) as error:
            LOG.info(
                "%(address)s sent what is no request of Kafka's protocol (%(reason)s): its connection is closed",
                {"address": self._client.address, "reason": error},
            )
            self.close()
        except Exception:
            LOG.exception(
                "%(address)s asked what the program has a fault with: its connection is closed",
                {"address": self._client.address},
            )
            self.close()
        self._called = False
        transport = self._transport
        if transport is None:
            return False
        self._answers.send(transport, lambda: self._turns.clock() >= until)
        more = more or self._answers.are_due()
        self._pause_or_resume(transport, queued=more)
        self._charge()
        return more

    def _be_called(self) -> None:
        """Go on in the next iteration of the event loop, unless that is under way."""
        if not self._called:
            self._called = True
            self._turns.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Send the answers whose turn has come, and take what had to wait for them."""
        self._called = False
        if self._transport is not None:
            self._answers.send(self._transport, lambda: True)
            if self._paused or self._received or self._work or self._answers.are_due():
                self._turns.serve(self)
            else:
                self._charge()

    def _pause_or_resume(self, transport: asyncio.Transport, *, queued: bool) -> None:
        # A muted connection is read on, up to a limit: that its client has closed it is only noticed by reading.
        full = len(self._received) > (MAX_MUTED_BYTES if self._muted else MAX_UNREAD_BYTES)
        waits = self._answers.unread or self._held is not None or (full and (queued or self._muted))
        if waits != self._paused:
            self._paused = waits
            (transport.pause_reading if waits else transport.resume_reading)()

    def _take_requests(self, until: float) -> bool:
        """Take requests until the time is over or none can be taken; return whether there is more to do now."""
        at, answers, clock = 0, self._answers, self._turns.clock
        more = is_over = False
        while not more:
            answers.collect()
            if answers.bytes >= SENT_AT_ONCE_BYTES and self._transport is not None:
                answers.send(self._transport, lambda: True)
            if answers.unread or self._muted or self._transport is None:
                break
            if is_over or (answers.bytes >= SENT_AT_ONCE_BYTES and answers.are_due()):
                more = True
            elif self._work:
                more = not self._work_on(until)
            else:
                at = self._next_frame(at) if self._held is None else at
                if self._held is None:
                    break
                frame, header = self._held
                if answers.waiting and (self._is_full() or not self._requests.may_follow(header)):
                    break
                self._take(frame, header)
            is_over = clock() >= until
        self._drop(at)
        return more

    def _take(self, frame: bytes, header: wire.RequestHeader) -> None:
        self._held = None
        self._in_flight = self._in_flight + len(frame) if self._answers.waiting else len(frame)
        self._mute(self._requests.take(frame, header, self._answers.expect(header.correlation)))

    def _begin(self, work: Work) -> None:
        """Do work in the turns of this connection; it is given up where the connection has ended."""
        if self._transport is not None:
            self._work.append(work)
            self._be_called()

    def _work_on(self, until: float) -> bool:
        """Work on what was begun first; return whether that is done."""
        work, clock = self._work[0], self._turns.clock
        try:
            while True:
                self._work_bytes += next(work)
                if clock() >= until:
                    return False
        except StopIteration as end:
            if self._work:  # nothing, where the work has ended the connection
                self._work.popleft()
            self._work_bytes = 0
            self._mute(end.value)
        return True

    def _drop(self, at: int) -> None:
        """Forget the bytes that requests were made of."""
        if at == len(self._received):
            self._received = b""
        elif isinstance(self._received, bytearray):
            del self._received[:at]  # moves nothing
        elif at:
            self._received = bytearray(memoryview(self._received)[at:])

    def _is_full(self) -> bool:
        """Tell whether all that waits to be answered is as much as may be."""
        return len(self._answers.waiting) >= UNANSWERED or self._in_flight >= BYTES_UNANSWERED

    def _mute(self, rest_ms: int) -> None:
        if rest_ms:
            self._muted = True
            self._unmuting = self._turns.loop.call_later(rest_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._muted = False
        self._go_on()

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

    def _charge(self) -> None:
        """Account for the memory that this connection uses."""
        used = len(self._received) + self._answers.bytes + self._work_bytes
        if self._held is not None:
            used += len(self._held[0])
        if self._answers.waiting:
            used += self._in_flight
        if used > UNCHARGED_BYTES or self._is_charged:
            self._is_charged = used > UNCHARGED_BYTES
            self._turns.memory.charge(self, used)

    def _release(self) -> None:
        """Release all memory: the connection has ended."""
        self._transport, self._received, self._held = None, b"", None
        self._work.clear()
        self._answers.clear()
        self._work_bytes = self._in_flight = 0
        self._charge()
