"""The connection of one client: it reads frames, and writes responses in the order of the requests.

Requests are read, handled and answered in the turns of the connection (`offsetlake.serve.net.turns`). No request is
read while responses wait to be sent; therefore at most the response to one request waits for a client that does not
read.
"""

import asyncio
import logging
import struct
from collections import deque
from typing import Protocol, cast

from offsetlake.serve.net.answering import MAX_WRITE_BYTES, Answer, Answers
from offsetlake.serve.net.client import Client
from offsetlake.serve.net.frame_memory import UNCHARGED_BYTES
from offsetlake.serve.net.turns import Turns
from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.request_limits import API_KEY_BYTES, MIN_LIMIT_BYTES, check_frame_size
from offsetlake.serve.steps import Work
from offsetlake.util.log_lines import ClientLog

LOG = ClientLog(logging.getLogger(__name__))
MAX_UNANSWERED = 1000  # requests of one connection that wait for the log; further ones stay in its socket
MAX_UNANSWERED_BYTES = 16 << 20  # of these requests, counted from the last time that none was unanswered
MAX_MUTED_BYTES = 16 << 10  # that a muted connection buffers
MAX_UNREAD_BYTES = 64 << 10  # that a queued connection buffers before it stops reading its socket
_SIZE = struct.Struct(">i")


class Requests(Protocol):
    """Handles the requests of a connection."""

    def take(self, frame: bytes, header: wire.RequestHeader, answer: Answer) -> int:
        """Handle a request; `answer` is called, now or later, with the response without its correlation id.

        Long work is passed to `Client.work`.

        Returns:
            For how many ms the connection is muted because its quota is exceeded.

        Raises:
            Malformed, struct.error, IndexError, ValueError: The request is malformed; the connection must be closed.

        """

    def may_follow(self, header: wire.RequestHeader) -> bool:
        """Check whether a request may start before earlier ones are answered: it does not depend on their effects."""


class OpenConnections(Protocol):
    """All open connections."""

    def discard(self, connection: "Connection") -> None:
        """Remove a connection that was closed."""


class Connection(asyncio.Protocol):
    """Reads requests and writes responses; a malformed request closes the connection."""

    def __init__(self, requests: Requests, client: Client, connections: OpenConnections, turns: Turns) -> None:
        self._requests, self._client, self._connections, self._turns = requests, client, connections, turns
        self._received: bytes | bytearray = b""  # bytes that were not yet read as requests
        self._next: tuple[bytes, wire.RequestHeader] | None = None  # the next request, which waits for earlier ones
        self._work: deque[Work] = deque()
        self._work_bytes = 0  # memory that the current work has allocated
        self._answers = Answers(self._call_soon, turns.polling.responded)
        self._muted = self._paused = False
        self._unmuting: asyncio.TimerHandle | None = None
        self._is_active = True  # whether bytes were received since the last call of `is_idle`
        self._in_flight = 0  # size of the requests since the last time that no request was unanswered
        self._called = False  # whether it runs now, or will in the next iteration of the event loop
        self._is_charged = False  # for memory
        self._transport: asyncio.Transport | None = None
        self.queued = False
        client.close_connection, client.work = self.close, self._add_work

    @property
    def address(self) -> str:
        """Host and port of the client."""
        return self._client.address

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Attach the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=MAX_WRITE_BYTES)

    def connection_lost(self, _error: Exception | None) -> None:
        """Release the connection; its queued writes to the log are still performed."""
        self._connections.discard(self)
        if self._unmuting is not None:
            self._unmuting.cancel()
        self._release()

    def data_received(self, data: bytes) -> None:
        """Buffer bytes and run a turn; ignore bytes that arrive after the connection was closed."""
        if self._transport is None:
            return
        self._is_active = True
        self._turns.polling.received()
        if not self._received:
            self._received = data  # without a copy: it usually consists of whole requests
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
        """Stop handling requests, because the client does not read its responses."""
        self._answers.unread = True

    def resume_writing(self) -> None:
        """Resume sending responses and handling requests."""
        self._answers.unread = False
        self._continue()

    def close(self) -> None:
        """Close the connection after the responses that are ready were sent."""
        if self._transport is not None:
            self._answers.send_all(self._transport)
            self._transport.close()
            self._release()

    def abort(self) -> None:
        """Close the connection immediately, and release its memory."""
        if self._transport is not None:
            self._transport.abort()
            self._release()

    def is_idle(self) -> bool:
        """Check whether no bytes were received since the last call and no request is unanswered."""
        is_active, self._is_active = self._is_active, False
        return not (is_active or self._answers.waiting)

    def run(self, until: float) -> bool:
        """Run a turn: read and handle requests and send responses; see `offsetlake.serve.net.turns.TakesTurns`."""
        self._called = True  # the responses of this turn are sent below
        more = False
        try:
            more = self._take_requests(until)
        except (wire.Malformed, struct.error, IndexError, ValueError) as error:
            LOG.info(
                "Connection of %(address)s closed: malformed request: %(reason)s",
                {"address": self._client.address, "reason": error},
            )
            self.close()
        except Exception:
            LOG.exception(
                "Connection of %(address)s closed: a request caused an internal error",
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

    def _call_soon(self) -> None:
        """Continue in the next iteration of the event loop, unless the connection already runs or is scheduled."""
        if not self._called:
            self._called = True
            self._turns.loop.call_soon(self._continue)

    def _continue(self) -> None:
        """Send the responses that are ready, and handle the requests that waited for them."""
        self._called = False
        if self._transport is not None:
            self._answers.send(self._transport, lambda: True)
            if self._paused or self._received or self._work or self._answers.are_due():
                self._turns.serve(self)
            else:
                self._charge()

    def _pause_or_resume(self, transport: asyncio.Transport, *, queued: bool) -> None:
        # A muted connection is still read up to a limit: only reading detects that its client has closed it.
        full = len(self._received) > (MAX_MUTED_BYTES if self._muted else MAX_UNREAD_BYTES)
        pause = self._answers.unread or self._next is not None or (full and (queued or self._muted))
        if pause != self._paused:
            self._paused = pause
            (transport.pause_reading if pause else transport.resume_reading)()

    def _take_requests(self, until: float) -> bool:
        """Handle requests until the turn is over or no request can be handled; return whether work is left."""
        position, answers, clock = 0, self._answers, self._turns.clock
        more = is_over = False
        while not more:
            answers.collect()
            if answers.bytes >= MAX_WRITE_BYTES and self._transport is not None:
                answers.send(self._transport, lambda: True)
            if answers.unread or self._muted or self._transport is None:
                break
            if is_over or (answers.bytes >= MAX_WRITE_BYTES and answers.are_due()):
                more = True
            elif self._work:
                more = not self._run_work(until)
            else:
                position = self._read_frame(position) if self._next is None else position
                if self._next is None:
                    break
                frame, header = self._next
                if answers.waiting and (self._is_full() or not self._requests.may_follow(header)):
                    break
                self._take(frame, header)
            is_over = clock() >= until
        self._drop(position)
        return more

    def _take(self, frame: bytes, header: wire.RequestHeader) -> None:
        self._next = None
        self._in_flight = self._in_flight + len(frame) if self._answers.waiting else len(frame)
        self._mute(self._requests.take(frame, header, self._answers.expect(header.correlation)))

    def _add_work(self, work: Work) -> None:
        """Add work that runs in the turns of this connection; it is discarded if the connection is closed."""
        if self._transport is not None:
            self._work.append(work)
            self._call_soon()

    def _run_work(self, until: float) -> bool:
        """Run the oldest work until the turn is over; return whether it is complete."""
        work, clock = self._work[0], self._turns.clock
        try:
            while True:
                self._work_bytes += next(work)
                if clock() >= until:
                    return False
        except StopIteration as end:
            if self._work:  # empty if the work has closed the connection
                self._work.popleft()
            self._work_bytes = 0
            self._mute(end.value)
        return True

    def _drop(self, position: int) -> None:
        """Drop the bytes up to a position, which were read as requests."""
        if position == len(self._received):
            self._received = b""
        elif isinstance(self._received, bytearray):
            del self._received[:position]  # does not copy the rest
        elif position:
            self._received = bytearray(memoryview(self._received)[position:])

    def _is_full(self) -> bool:
        """Check whether the limit of unanswered requests is reached."""
        return len(self._answers.waiting) >= MAX_UNANSWERED or self._in_flight >= MAX_UNANSWERED_BYTES

    def _mute(self, muted_ms: int) -> None:
        if muted_ms:
            self._muted = True
            self._unmuting = self._turns.loop.call_later(muted_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._muted = False
        self._continue()

    def _read_frame(self, position: int) -> int:
        """Read the request at a position into `_next` if it is complete; return the position of the following one."""
        received = self._received
        begin = position + _SIZE.size
        if len(received) < begin:
            return position
        (size,) = _SIZE.unpack_from(received, position)
        if not 0 <= size <= MIN_LIMIT_BYTES:
            check_frame_size(size, received[begin : begin + API_KEY_BYTES])
        stop = begin + size
        if len(received) < stop:
            return position
        frame = bytes(received[begin:stop])
        self._next = frame, wire.read_header(frame)
        return int(stop)

    def _charge(self) -> None:
        """Charge the memory that this connection uses."""
        used = len(self._received) + self._answers.bytes + self._work_bytes
        if self._next is not None:
            used += len(self._next[0])
        if self._answers.waiting:
            used += self._in_flight
        if used > UNCHARGED_BYTES or self._is_charged:
            self._is_charged = used > UNCHARGED_BYTES
            self._turns.memory.charge(self, used)

    def _release(self) -> None:
        """Release all memory; used when the connection is closed."""
        self._transport, self._received, self._next = None, b"", None
        self._work.clear()
        self._answers.clear()
        self._work_bytes = self._in_flight = 0
        self._charge()
