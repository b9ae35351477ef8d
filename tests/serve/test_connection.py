"""However the bytes of requests come in, in pieces or many at once, the answers are the same and in their order."""

import asyncio
import struct
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.serve.client import Client
from offsetlake.serve.connection import Answer, Connection
from offsetlake.serve.request_limits import REQUEST_LIMITS
from offsetlake.serve.wire import Header
from serve.sink import Sink

FETCH, COMMIT = 9, 8


class Echo:
    """Answers with the request, at once or, a commit, in the next turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def take(self, frame: bytes, header: Header, answer: Answer) -> None:
        if header.api == COMMIT:
            self._loop.call_soon(answer, frame[header.body :])
        else:
            answer(frame[header.body :])

    def may_follow(self, header: Header) -> bool:
        return header.api == COMMIT


requests = st.lists(st.tuples(st.sampled_from([FETCH, COMMIT]), st.binary(max_size=40)), min_size=1, max_size=8)


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@given(made=requests, cuts=st.lists(st.integers(0, 400)), turns=st.booleans())
def test_pieces_of_requests(made: list[tuple[int, bytes]], cuts: list[int], *, turns: bool) -> None:
    stream = b"".join(framed(struct.pack(">hhih", api, 0, at, -1) + body) for at, (api, body) in enumerate(made))
    loop, sink = asyncio.new_event_loop(), Sink()
    connection = Connection(Echo(loop), Client(), set(), loop)
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
    connection = Connection(Echo(loop), Client(), set(), loop)
    connection.connection_made(cast("Any", sink))
    connection.data_received(framed(struct.pack(">hhih", FETCH, 0, 7, -1) + b"answered") + struct.pack(">i", -1))
    assert sink.closed
    assert sink.written == framed(struct.pack(">i", 7) + b"answered")
    loop.close()


def test_a_fault_of_the_program_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """Its request could never be answered. What was asked before it is, and the trace is in the log."""
    loop, sink = asyncio.new_event_loop(), Sink()

    class Faulty(Echo):
        def take(self, frame: bytes, header: Header, answer: Answer) -> None:
            if header.api == FETCH:
                raise KeyError("nobody foresaw it")
            super().take(frame, header, answer)

    connection = Connection(Faulty(loop), Client(), set(), loop)
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
    connection = Connection(Echo(loop), Client(), set(), loop)
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
        def take(self, frame: bytes, header: Header, answer: Answer) -> None:
            taken.append(answer)

    connection = Connection(Slow(loop), Client(), set(), loop)
    connection.connection_made(cast("Any", sink))
    request = framed(struct.pack(">hhih", COMMIT, 0, 7, -1) + bytes(1 << 20))
    for _ in range(40):
        connection.data_received(request)
    for number in (16, 32, 40):
        assert len(taken) == number
        for answer in taken[-16:]:
            answer(b"")
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_a_request_is_refused_as_soon_as_its_size_and_api_have_arrived() -> None:
    """Of the largest size that its API allows, and of one byte more, byte by byte."""
    most = REQUEST_LIMITS[COMMIT].max_bytes
    for size, refused in ((most, False), (most + 1, True)):
        loop, sink = asyncio.new_event_loop(), Sink()
        connection = Connection(Echo(loop), Client(), set(), loop)
        connection.connection_made(cast("Any", sink))
        start = struct.pack(">ih", size, COMMIT)
        for byte in start[:-1]:
            connection.data_received(bytes((byte,)))
        assert not sink.closed
        connection.data_received(start[-1:])
        assert sink.closed is refused
        loop.close()
