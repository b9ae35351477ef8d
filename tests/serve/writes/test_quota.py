"""The quota of commits per group: throttle times, delays, refusals and muted connections."""

import asyncio
import struct
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from offsetlake.serve.apis.dispatch import Service
from offsetlake.serve.net.client import Client
from offsetlake.serve.net.connection import Connection
from offsetlake.serve.net.frame_memory import Memory
from offsetlake.serve.net.turns import Turns
from offsetlake.serve.protocol.api_keys import (
    ADD_OFFSETS_TO_TXN,
    INIT_PRODUCER_ID,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
)
from offsetlake.serve.protocol.wire import read_header
from offsetlake.serve.writes import quota
from offsetlake.serve.writes.quota import MAX_THROTTLE_MS, UNTHROTTLED, Quota, Throttle
from offsetlake.util import token_buckets
from support.serve import commands
from support.serve.in_process import InProcess, Origin, given_to
from support.serve.kio_requests import answered, request
from support.serve.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Callable

RATE = 2.0
LOADING = 14  # COORDINATOR_LOAD_IN_PROGRESS, which clients retry


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_burst_is_accepted_and_then_commits_are_delayed_to_the_rate() -> None:
    """At 2 per second a burst of 20 is accepted; each further commit is written half a second after the one before."""
    clock = Clock()
    limits = Quota(RATE, clock)
    assert [limits.take(b"g") for _ in range(20)] == [UNTHROTTLED] * 20
    assert [limits.take(b"g") for _ in range(3)] == [Throttle(0, 500), Throttle(500, 500), Throttle(1000, 500)]
    assert limits.take(b"other") == UNTHROTTLED
    clock.now += 2
    assert [limits.take(b"g") for _ in range(2)] == [UNTHROTTLED, Throttle(0, 500)]
    clock.now += 1000
    assert [limits.take(b"g") for _ in range(21)] == [UNTHROTTLED] * 20 + [Throttle(0, 500)]
    assert limits.most_throttled(5) == [(b"g", 5)]


def test_no_more_commits_are_written_than_the_rate_allows() -> None:
    """Of 5,000 commits in a second, 20 are written at once, and later as many as there are tokens."""
    clock = Clock()
    limits, written, refused = Quota(RATE, clock), list[float](), 0
    for _ in range(5000):
        throttle = limits.take(b"g")
        refused += throttle.refused
        if not throttle.refused:
            written.append(clock.now + throttle.delay_ms / 1000)
        assert throttle.muted_ms <= MAX_THROTTLE_MS + 1000 / RATE
        clock.now += 1 / 5000
    assert len(written) + refused == 5000
    for second in range(12):
        assert len([each for each in written if each < 1000 + second]) <= 20 + RATE * second + 1


def test_refused_commit_takes_no_token() -> None:
    clock = Clock()
    limits = Quota(RATE, clock)
    assert [limits.refusal_ms(b"g") for _ in range(23)] == [0] * 20 + [500] * 3
    assert limits.take(b"g") == Throttle(0, 500)
    assert limits.refusal_ms(b"g") == 1000
    assert limits.most_throttled(1) == [(b"g", 5)]
    clock.now += 1
    assert [limits.refusal_ms(b"g") for _ in range(2)] == [0, 500]


def test_memory_for_names_and_counts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_buckets, "MAX_BUCKETS", 10)
    monkeypatch.setattr(quota, "MAX_COUNTED_GROUPS", 10)
    clock = Clock()
    limits = Quota(RATE, clock)
    for _ in range(30):
        limits.take(b"worst")
    for number in range(100):
        for name in (b"%d" % number, b"%d" % number * 10_000):
            for _ in range(22):
                limits.take(name)
        assert len(limits._buckets) <= 10
        assert len(limits._throttled) <= 10
    assert limits.most_throttled(1) == [(b"worst", 10)]
    assert max(map(len, (*limits._buckets._levels, *limits._throttled))) <= token_buckets.MAX_NAME_BYTES


def test_long_names_have_buckets_of_their_own() -> None:
    limits = Quota(RATE, Clock())
    for _ in range(21):
        limits.take(b"x" * 300)
    assert limits.take(b"x" * 301) == UNTHROTTLED
    assert limits.take(b"x" * 300).delay_ms == 500


@pytest.mark.parametrize("version", [2, 9])
def test_new_connection_gives_no_new_tokens(tmp_path: Path, origin: Origin, version: int) -> None:
    """The group's bucket decides when a commit is written; one that would be delayed too long is refused."""
    served = InProcess(tmp_path, origin)
    served.load()
    clock = Clock()
    served.commits._quota = Quota(1.0, clock)
    delayed: list[tuple[float, Callable[[], None]]] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(served.loop, "call_later", lambda delay, call: delayed.append((delay, call)))
        answers: list[asyncio.Future[bytes]] = []
        muted = []
        for number in range(1, 31):
            service = Service(served.commits, served.parts.fetches, served.admin, served.client)
            rows = [{"partition_index": 0, "committed_offset": number, "committed_metadata": ""}]
            frame = request(OFFSET_COMMIT, version, {"group_id": "new", "topics": [{"name": "t", "partitions": rows}]})
            answers.append(served.loop.create_future())
            muted.append(service.take(frame, read_header(frame), answers[-1].set_result))
    assert [delay for delay, _ in delayed] == [float(seconds) for seconds in range(1, 11)]
    assert muted[:12] == [0] * 10 + [1000, 2000]

    def error_of(answer: asyncio.Future[bytes]) -> int:
        body = answered(OFFSET_COMMIT, version, served.wait(answer))
        code: int = body["topics"][0]["partitions"][0]["error_code"]
        return code

    assert [error_of(answer) for answer in (*answers[:11], *answers[21:])] == [0] * 11 + [LOADING] * 9
    assert commands.stored(served, "new") == {("t", 0): 11}
    for number, (_, write) in enumerate(delayed, start=12):
        assert not answers[number - 1].done()
        write()
        assert error_of(answers[number - 1]) == 0
        assert commands.stored(served, "new") == {("t", 0): number}
    served.close()


@pytest.mark.parametrize("version", [3, 5])
def test_limitsincludes_commits_in_transactions(tmp_path: Path, origin: Origin, version: int) -> None:
    served = InProcess(tmp_path, origin, quota=0.01)  # only the first commit has a token
    served.load()
    begin = {"transactional_id": "t", "transaction_timeout": timedelta(minutes=1)}
    fields = {name: served.ask(INIT_PRODUCER_ID, 4, **begin)[name] for name in ("producer_id", "producer_epoch")}
    fields |= {"transactional_id": "t", "group_id": "g"}
    served.ask(ADD_OFFSETS_TO_TXN, 0, **fields)
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    frame = request(TXN_OFFSET_COMMIT, version, fields | {"topics": [{"name": "t", "partitions": [partition]}]})
    service = Service(served.commits, served.parts.fetches, served.admin, served.client)
    results: list[tuple[int, int, float]] = []
    for _ in range(3):
        body = served.loop.create_future()
        muted_ms = service.take(frame, read_header(frame), given_to(body))
        answer = answered(TXN_OFFSET_COMMIT, version, served.wait(body))
        error = answer["topics"][0]["partitions"][0]["error_code"]
        results.append((muted_ms, error, answer["throttle_time"]))
    written, refused = (10_000, 0, 10_000), (10_000, LOADING, 10_000)
    assert results == [(0, 0, 0), written, refused], "the next token would be available after 100 s"
    served.close()


class Peer:
    """A client with a connection of its own."""

    def __init__(self, served: InProcess, turns: Turns) -> None:
        self._served, self._sink, client = served, Sink(), Client()
        service = Service(served.commits, served.parts.fetches, served.admin, client)
        self._connection = Connection(service, client, set(), turns)
        self._connection.connection_made(cast("Any", self._sink))

    def send(self, api: int, version: int, values: dict[str, Any]) -> None:
        """Send a request, and complete all writes and responses that do not wait for a time."""
        data = request(api, version, values)
        self._connection.data_received(struct.pack(">i", len(data)) + data)
        self.run()

    def run(self) -> None:
        for _ in range(4):
            self._served.loop.run_until_complete(self._served.writes.drain())
            self._served.loop.run_until_complete(asyncio.sleep(0))

    def answer(self, api: int, version: int) -> dict[str, Any] | None:
        """Return the response to the last request, None if there is none yet."""
        written, self._sink.written = self._sink.written, b""
        return answered(api, version, written[8:]) if written else None

    def commit(self, version: int, group: str, offset: int) -> float:
        """Commit an offset; return the throttle time in seconds."""
        rows = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        self.send(OFFSET_COMMIT, version, {"group_id": group, "topics": [{"name": "t", "partitions": rows}]})
        answer = self.answer(OFFSET_COMMIT, version)
        assert answer is not None
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0
        return float(answer["throttle_time"]) / 1000

    def send_fetch(self, group: str) -> None:
        self.send(OFFSET_FETCH, 5, {"group_id": group, "topics": [{"name": "t", "partition_indexes": [0]}]})

    def fetched(self) -> int | None:
        """Return the offset in the response to `send_fetch`, None if there is none yet."""
        answer = self.answer(OFFSET_FETCH, 5)
        return None if answer is None else int(answer["topics"][0]["partitions"][0]["committed_offset"])


@pytest.mark.parametrize("version", [3, 9])
def test_client_over_its_limits_gets_a_throttle_time_and_is_muted(served: InProcess, version: int) -> None:
    clock = Clock()
    served.commits._quota = Quota(RATE, clock)
    served.loop.time = clock  # type: ignore[method-assign]
    turns = Turns(served.loop, Memory())
    quick, other = Peer(served, turns), Peer(served, turns)
    times = [quick.commit(version, "quick", offset) for offset in range(21)]
    assert times == [0.0] * 20 + [0.5]
    quick.send_fetch("quick")
    assert quick.fetched() is None, "the connection is muted"
    assert other.commit(version, "calm", 1) == 0
    other.send_fetch("quick")
    assert other.fetched() == 20, "the throttled commit is written"
    assert quick.fetched() is None
    clock.now += 0.5
    quick.run()
    assert quick.fetched() == 20
