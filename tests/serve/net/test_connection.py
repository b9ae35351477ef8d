"""However the bytes of requests come in, in pieces or many at once, the answers are the same and in their order."""

import asyncio
import struct
from itertools import pairwise
from typing import Any, cast

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.serve.auth.principals import Client
from offsetlake.serve.net.answering import Answer
from offsetlake.serve.net.connection import Connection
from offsetlake.serve.net.frame_memory import Memory
from offsetlake.serve.net.turns import Turns
from offsetlake.serve.protocol.request_limits import REQUEST_LIMITS
from offsetlake.serve.protocol.wire import RequestHeader
from support.serve.sink import Sink

FETCH, COMMIT = 9, 8


class Echo:
    """Answers with the request, at once or, a commit, in the next turn of the loop."""

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


class Resting(Echo):
    """Mutes the connection for an hour after each request."""

    def take(self, frame: bytes, header: RequestHeader, answer: Answer) -> int:
        super().take(frame, header, answer)
        return 3_600_000


requests = st.lists(st.tuples(st.sampled_from([FETCH, COMMIT]), st.binary(max_size=40)), min_size=1, max_size=8)


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@given(made=requests, cuts=st.lists(st.integers(0, 400)), turns=st.booleans())
def test_pieces_of_requests(made: list[tuple[int, bytes]], cuts: list[int], *, turns: bool) -> None:
    stream = b"".join(framed(struct.pack(">hhih", api, 0, at, -1) + body) for at, (api, body) in enumerate(made))
    loop, sink = asyncio.new_event_loop(), Sink()
    connection = Connection(Echo(loop), Client(), set(), Turns(loop, Memory()))
    connection.connection_made(cast("Any", sink))
    for start, stop in pairwise(sorted({0, *(cut for cut in cuts if cut < len(stream)), len(stream)})):
        connection.data_received(stream[start:stop])
        if turns:
            loop.run_until_complete(asyncio.sleep(0))
    for _ in range(3 * len(made)):
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert sink.written == b"".join(framed(struct.pack(">i", at) + body) for at, (_, body) in enumerate(made))


def test_what_was_answered_before_what_is_no_request_is_sent() -> None:
    loop, sink = asyncio.new_event_loop(), Sink()
    connection = Connection(Echo(loop), Client(), set(), Turns(loop, Memory()))
    connection.connection_made(cast("Any", sink))
    connection.data_received(framed(struct.pack(">hhih", FETCH, 0, 7, -1) + b"answered") + struct.pack(">i", -1))
    assert sink.closed
    assert sink.written == framed(struct.pack(">i", 7) + b"answered")
    loop.close()


def test_bytes_that_arrive_after_a_connection_was_closed_are_not_kept() -> None:
    """TLS delivers what its client sends until the shutdown is complete; no bound applies to such bytes."""
    loop, sink = asyncio.new_event_loop(), Sink()
    connection = Connection(Echo(loop), Client(), set(), Turns(loop, Memory()))
    connection.connection_made(cast("Any", sink))
    connection.close()
    for _ in range(3):
        connection.data_received(bytes(100_000))
    assert not connection._received
    loop.close()


def test_a_fault_of_the_program_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """Its request could never be answered. What was asked before it is, and the trace is in the log."""
    loop, sink = asyncio.new_event_loop(), Sink()

    class Faulty(Echo):
        def take(self, frame: bytes, header: RequestHeader, answer: Answer) -> int:
            if header.api == FETCH:
                raise KeyError("nobody foresaw it")
            return super().take(frame, header, answer)

    connection = Connection(Faulty(loop), Client(), set(), Turns(loop, Memory()))
    connection.connection_made(cast("Any", sink))
    asked = [framed(struct.pack(">hhih", api, 0, api, -1)) for api in (COMMIT, FETCH)]
    connection.data_received(b"".join(asked))
    for _ in range(3):
        loop.run_until_complete(asyncio.sleep(0))
    assert sink.closed
    assert sink.written == framed(struct.pack(">i", COMMIT))
    assert "nobody foresaw it" in caplog.text
    loop.close()


def test_a_connection_is_idle_when_nothing_came_in_between() -> None:
    loop, sink = asyncio.new_event_loop(), Sink()
    connection = Connection(Echo(loop), Client(), set(), Turns(loop, Memory()))
    connection.connection_made(cast("Any", sink))
    assert [connection.is_idle() for _ in range(2)] == [False, True]
    connection.data_received(b"\0")
    assert [connection.is_idle() for _ in range(2)] == [False, True]
    connection.data_received(framed(struct.pack(">hhih", COMMIT, 0, 7, -1))[1:])
    assert [connection.is_idle() for _ in range(2)] == [False, False], "it waits for its answer"
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    assert connection.is_idle()
    loop.close()


def test_bytes_that_wait_for_their_answers_have_an_end() -> None:
    """Of requests of 1 MiB each, so many are taken as have 16 MiB; the others when those are answered."""
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


def test_a_request_is_refused_as_soon_as_its_size_and_api_have_arrived() -> None:
    """Of the largest size that its API allows, and of one byte more, byte by byte."""
    most = REQUEST_LIMITS[COMMIT].max_bytes
    for size, refused in ((most, False), (most + 1, True)):
        loop, sink = asyncio.new_event_loop(), Sink()
        connection = Connection(Echo(loop), Client(), set(), Turns(loop, Memory()))
        connection.connection_made(cast("Any", sink))
        start = struct.pack(">ih", size, COMMIT)
        for byte in start[:-1]:
            connection.data_received(bytes((byte,)))
        assert not sink.closed
        connection.data_received(start[-1:])
        assert sink.closed is refused
        loop.close()


@pytest.mark.parametrize("sent", [0, 1000], ids=["nothing", "requests"])
def test_a_muted_connection_that_its_client_closes_is_freed_at_once(sent: int) -> None:
    """It would be counted until it is heard again, which is in an hour here."""

    class Freed(set[Any]):
        def __init__(self) -> None:
            self.event = asyncio.Event()

        def discard(self, _connection: Any) -> None:
            self.event.set()

    async def close_it() -> None:
        loop, freed = asyncio.get_running_loop(), Freed()
        server = await loop.create_server(
            lambda: Connection(Resting(loop), Client(), freed, Turns(loop, Memory())), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        asked = framed(struct.pack(">hhih", FETCH, 0, 1, -1) + b"asked")
        writer.write(asked)
        await reader.readexactly(4)
        writer.write(asked * (sent // len(asked)))
        writer.close()
        await asyncio.wait_for(freed.event.wait(), 30)
        server.close()

    uvloop.run(close_it())


def test_of_a_muted_connection_no_more_is_read_than_its_limit() -> None:
    class Reading(Sink):
        reads = True

        def pause_reading(self) -> None:
            self.reads = False

        def resume_reading(self) -> None:
            self.reads = True

    loop, sink = asyncio.new_event_loop(), Reading()
    connection = Connection(Resting(loop), Client(), set(), Turns(loop, Memory()))
    connection.connection_made(cast("Any", sink))
    asked = framed(struct.pack(">hhih", FETCH, 0, 1, -1) + bytes(1000))
    seen = []
    for _ in range(20):
        connection.data_received(asked)
        seen.append(sink.reads)
    assert sink.written.count(bytes(1000)) == 1
    assert seen == [True] * 17 + [False] * 3
    connection._unmute()
    assert sink.written.count(bytes(1000)) == 2
    loop.close()
