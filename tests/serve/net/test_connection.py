"""One connection: frames that arrive in pieces or together, order of responses, limits, muting, and closing."""

import asyncio
import struct
from itertools import pairwise
from typing import Any, cast

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.serve.net.answering import Answer
from offsetlake.serve.net.client import Client
from offsetlake.serve.net.connection import Connection
from offsetlake.serve.net.frame_memory import Memory
from offsetlake.serve.net.turns import Turns
from offsetlake.serve.protocol.request_limits import REQUEST_LIMITS
from offsetlake.serve.protocol.wire import RequestHeader
from support.serve.sink import Sink

FETCH, COMMIT = 9, 8


class Echo:
    """Answers with the request: a commit in the next iteration of the event loop, other requests at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def take(self, frame: bytes, header: RequestHeader, answer: Answer) -> int:
        if header.api == COMMIT:
            self._loop.call_soon(answer, frame[header.body :])
        else:
            answer(frame[header.body :])
        return 0

    def may_follow(self, header: RequestHeader) -> bool:
        return header.api == COMMIT


class Muting(Echo):
    """Mutes the connection for an hour after each request."""

    def take(self, frame: bytes, header: RequestHeader, answer: Answer) -> int:
        super().take(frame, header, answer)
        return 3_600_000


requests = st.lists(st.tuples(st.sampled_from([FETCH, COMMIT]), st.binary(max_size=40)), min_size=1, max_size=8)


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def turns_without_time(loop: asyncio.AbstractEventLoop) -> Turns:
    """Return turns whose clock stands still, so that none ends before its work is done, however slow the machine is."""
    return Turns(loop, Memory(), clock=lambda: 0.0)


@given(sent=requests, cuts=st.lists(st.integers(0, 400)), turns=st.booleans())
def test_responses_do_not_depend_on_how_requests_are_split(
    sent: list[tuple[int, bytes]], cuts: list[int], *, turns: bool
) -> None:
    stream = b"".join(
        framed(struct.pack(">hhih", api, 0, correlation, -1) + body) for correlation, (api, body) in enumerate(sent)
    )
    loop, sink = asyncio.new_event_loop(), Sink()
    connection = Connection(Echo(loop), Client(), set(), Turns(loop, Memory()))
    connection.connection_made(cast("Any", sink))
    for start, stop in pairwise(sorted({0, *(cut for cut in cuts if cut < len(stream)), len(stream)})):
        connection.data_received(stream[start:stop])
        if turns:
            loop.run_until_complete(asyncio.sleep(0))
    for _ in range(3 * len(sent)):
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert sink.written == b"".join(
        framed(struct.pack(">i", correlation) + body) for correlation, (_, body) in enumerate(sent)
    )


def test_response_before_a_malformed_request_is_sent() -> None:
    loop, sink = asyncio.new_event_loop(), Sink()
    connection = Connection(Echo(loop), Client(), set(), turns_without_time(loop))
    connection.connection_made(cast("Any", sink))
    connection.data_received(framed(struct.pack(">hhih", FETCH, 0, 7, -1) + b"answered") + struct.pack(">i", -1))
    assert sink.closed
    assert sink.written == framed(struct.pack(">i", 7) + b"answered")
    loop.close()


def test_bytes_that_arrive_after_closing_are_discarded() -> None:
    """TLS delivers what its client sends until the shutdown is complete; no limit applies to such bytes."""
    loop, sink = asyncio.new_event_loop(), Sink()
    connection = Connection(Echo(loop), Client(), set(), Turns(loop, Memory()))
    connection.connection_made(cast("Any", sink))
    connection.close()
    for _ in range(3):
        connection.data_received(bytes(100_000))
    assert not connection._received
    loop.close()


def test_internal_error_closes_the_connection_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The request cannot be answered; earlier requests are."""
    loop, sink = asyncio.new_event_loop(), Sink()

    class Faulty(Echo):
        def take(self, frame: bytes, header: RequestHeader, answer: Answer) -> int:
            if header.api == FETCH:
                raise KeyError("an unexpected key")
            return super().take(frame, header, answer)

    connection = Connection(Faulty(loop), Client(), set(), Turns(loop, Memory()))
    connection.connection_made(cast("Any", sink))
    frames = [framed(struct.pack(">hhih", api, 0, api, -1)) for api in (COMMIT, FETCH)]
    connection.data_received(b"".join(frames))
    for _ in range(3):
        loop.run_until_complete(asyncio.sleep(0))
    assert sink.closed
    assert sink.written == framed(struct.pack(">i", COMMIT))
    assert "an unexpected key" in caplog.text
    loop.close()


def test_connection_is_idle_if_no_bytes_were_received_since_the_last_check() -> None:
    loop, sink = asyncio.new_event_loop(), Sink()
    connection = Connection(Echo(loop), Client(), set(), Turns(loop, Memory()))
    connection.connection_made(cast("Any", sink))
    assert [connection.is_idle() for _ in range(2)] == [False, True]
    connection.data_received(b"\0")
    assert [connection.is_idle() for _ in range(2)] == [False, True]
    connection.data_received(framed(struct.pack(">hhih", COMMIT, 0, 7, -1))[1:])
    assert [connection.is_idle() for _ in range(2)] == [False, False], "a request is unanswered"
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    assert connection.is_idle()
    loop.close()


def test_unanswered_requests_have_a_limit_of_bytes() -> None:
    """Requests of 1 MiB each: 16 MiB are handled, further ones only when those are answered."""
    loop, sink = asyncio.new_event_loop(), Sink()
    taken: list[Answer] = []

    class Slow(Echo):
        def take(self, frame: bytes, header: RequestHeader, answer: Answer) -> int:
            taken.append(answer)
            return 0

    connection = Connection(Slow(loop), Client(), set(), Turns(loop, Memory()))
    connection.connection_made(cast("Any", sink))
    request = framed(struct.pack(">hhih", COMMIT, 0, 7, -1) + bytes(1 << 20))
    for _ in range(40):
        connection.data_received(request)
    for number in (16, 32, 40):
        for _ in range(50):
            loop.run_until_complete(asyncio.sleep(0))
        assert len(taken) == number
        for answer in taken[-16:]:
            answer(b"")
    loop.close()


def test_too_large_request_is_refused_when_its_size_and_api_have_arrived() -> None:
    """The bytes arrive one by one; the sizes are the limit of the API, and one byte more."""
    limit = REQUEST_LIMITS[COMMIT].max_bytes
    for size, refused in ((limit, False), (limit + 1, True)):
        loop, sink = asyncio.new_event_loop(), Sink()
        connection = Connection(Echo(loop), Client(), set(), turns_without_time(loop))
        connection.connection_made(cast("Any", sink))
        start = struct.pack(">ih", size, COMMIT)
        for byte in start[:-1]:
            connection.data_received(bytes((byte,)))
        assert not sink.closed
        connection.data_received(start[-1:])
        assert sink.closed is refused
        loop.close()


@pytest.mark.parametrize("sent", [0, 1000], ids=["nothing", "requests"])
def test_muted_connection_is_released_when_its_client_closes_it(sent: int) -> None:
    """Otherwise it would count until it is unmuted, which is in an hour here."""

    class OpenConnections(set[Any]):
        def __init__(self) -> None:
            self.event = asyncio.Event()

        def discard(self, _connection: Any) -> None:
            self.event.set()

    async def close_it() -> None:
        loop, connections = asyncio.get_running_loop(), OpenConnections()
        server = await loop.create_server(
            lambda: Connection(Muting(loop), Client(), connections, Turns(loop, Memory())), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        request = framed(struct.pack(">hhih", FETCH, 0, 1, -1) + b"request")
        writer.write(request)
        await reader.readexactly(4)
        writer.write(request * (sent // len(request)))
        writer.close()
        await asyncio.wait_for(connections.event.wait(), 120)
        server.close()

    uvloop.run(close_it())


def test_muted_connection_is_read_up_to_its_limit() -> None:
    class Reading(Sink):
        reads = True

        def pause_reading(self) -> None:
            self.reads = False

        def resume_reading(self) -> None:
            self.reads = True

    loop, sink = asyncio.new_event_loop(), Reading()
    connection = Connection(Muting(loop), Client(), set(), turns_without_time(loop))
    connection.connection_made(cast("Any", sink))
    request = framed(struct.pack(">hhih", FETCH, 0, 1, -1) + bytes(1000))
    reading = []
    for _ in range(20):
        connection.data_received(request)
        reading.append(sink.reads)
    assert sink.written.count(bytes(1000)) == 1
    assert reading == [True] * 17 + [False] * 3
    connection._unmute()
    assert sink.written.count(bytes(1000)) == 2
    loop.close()
