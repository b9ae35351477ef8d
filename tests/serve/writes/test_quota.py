"""How often a group may commit, second by second; and that a connection over it is answered, then left alone."""

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from offsetlake.serve.apis.dispatch import Service
from offsetlake.serve.protocol.api_keys import ADD_OFFSETS_TO_TXN, INIT_PRODUCER_ID, TXN_OFFSET_COMMIT
from offsetlake.serve.protocol.wire import read_header
from offsetlake.serve.writes import quota
from offsetlake.serve.writes.quota import MAX_THROTTLE_MS, UNTHROTTLED, Quota, Throttle
from offsetlake.util import token_buckets
from support.serve import commands
from support.serve.in_process import InProcess, Origin, given_to
from support.serve.kio_requests import answered, request
from support.serve.serving import Serving
from support.serve.wire_client import OFFSET_COMMIT, OFFSET_FETCH, WireClient

RATE = 2.0
LOADING = 14  # COORDINATOR_LOAD_IN_PROGRESS: clients try again


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_then_as_many_as_the_rate() -> None:
    """2 a second: 20 may come at once; of more, each is written half a second after the one before."""
    clock = Clock()
    of = Quota(RATE, clock)
    assert [of.take(b"g") for _ in range(20)] == [UNTHROTTLED] * 20
    assert [of.take(b"g") for _ in range(3)] == [Throttle(0, 500), Throttle(500, 500), Throttle(1000, 500)]
    assert of.take(b"other") == UNTHROTTLED
    clock.now += 2
    assert [of.take(b"g") for _ in range(2)] == [UNTHROTTLED, Throttle(0, 500)]
    clock.now += 1000
    assert [of.take(b"g") for _ in range(21)] == [UNTHROTTLED] * 20 + [Throttle(0, 500)]
    assert of.worst(5) == [(b"g", 5)]


def test_however_many_come_no_more_are_written_than_the_rate() -> None:
    """Of 5,000 in a second, by whichever connections, 20 are written at once and as many later as have tokens."""
    clock = Clock()
    of, written, refused = Quota(RATE, clock), list[float](), 0
    for _ in range(5000):
        throttle = of.take(b"g")
        refused += throttle.refused
        if not throttle.refused:
            written.append(clock.now + throttle.delay_ms / 1000)
        assert throttle.muted_ms <= MAX_THROTTLE_MS + 1000 / RATE
        clock.now += 1 / 5000
    assert len(written) + refused == 5000
    for second in range(12):
        assert len([each for each in written if each < 1000 + second]) <= 20 + RATE * second + 1


def test_what_is_refused_takes_nothing() -> None:
    clock = Clock()
    of = Quota(RATE, clock)
    assert [of.refusal_ms(b"g") for _ in range(23)] == [0] * 20 + [500] * 3
    assert of.take(b"g") == Throttle(0, 500)
    assert of.refusal_ms(b"g") == 1000
    assert of.worst(1) == [(b"g", 5)]
    clock.now += 1
    assert [of.refusal_ms(b"g") for _ in range(2)] == [0, 500]


def test_what_it_keeps_in_mind_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_buckets, "MAX_BUCKETS", 10)
    monkeypatch.setattr(quota, "MAX_THROTTLED", 10)
    clock = Clock()
    of = Quota(RATE, clock)
    for _ in range(30):
        of.take(b"worst")
    for number in range(100):
        for name in (b"%d" % number, b"%d" % number * 10_000):
            for _ in range(22):
                of.take(name)
        assert len(of._buckets) <= 10
        assert len(of._throttled) <= 10
    assert of.worst(1) == [(b"worst", 10)]
    assert max(map(len, (*of._buckets._levels, *of._throttled))) <= token_buckets.MAX_NAME_BYTES


def test_long_names_are_told_apart() -> None:
    of = Quota(RATE, Clock())
    for _ in range(21):
        of.take(b"x" * 300)
    assert of.take(b"x" * 301) == UNTHROTTLED
    assert of.take(b"x" * 300).delay_ms == 500


@pytest.mark.parametrize("version", [2, 9])
def test_a_new_connection_brings_no_tokens(tmp_path: Path, origin: Origin, version: int) -> None:
    """The group's bucket decides when a commit is written; one that would wait too long is to be tried again."""
    served = InProcess(tmp_path, origin)
    served.load()
    clock = Clock()
    served.commits._quota = Quota(1.0, clock)
    later: list[tuple[float, Callable[[], None]]] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(served.loop, "call_later", lambda delay, call: later.append((delay, call)))
        answers: list[asyncio.Future[bytes]] = []
        muted = []
        for number in range(1, 31):
            service = Service(served.commits, served.parts.fetches, served.admin, served.client)
            rows = [{"partition_index": 0, "committed_offset": number, "committed_metadata": ""}]
            frame = request(OFFSET_COMMIT, version, {"group_id": "new", "topics": [{"name": "t", "partitions": rows}]})
            answers.append(served.loop.create_future())
            muted.append(service.take(frame, read_header(frame), answers[-1].set_result))
    assert [delay for delay, _ in later] == [float(of) for of in range(1, 11)]
    assert muted[:12] == [0] * 10 + [1000, 2000]

    def error_of(answer: asyncio.Future[bytes]) -> int:
        said = answered(OFFSET_COMMIT, version, served.wait(answer))
        code: int = said["topics"][0]["partitions"][0]["error_code"]
        return code

    assert [error_of(answer) for answer in (*answers[:11], *answers[21:])] == [0] * 11 + [LOADING] * 9
    assert commands.stored(served, "new") == {("t", 0): 11}
    for number, (_, write) in enumerate(later, start=12):
        assert not answers[number - 1].done()
        write()
        assert error_of(answers[number - 1]) == 0
        assert commands.stored(served, "new") == {("t", 0): number}
    served.close()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("quota")
    with Serving(folder / "lake", folder / "log", commits_per_second=1) as running:
        yield running


def commit(client: WireClient, version: int, group: str, offset: int) -> float:
    """Commit; gives the throttle time in seconds."""
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    of = {"generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    topics = [{"name": "t", "partitions": [partition | {"committed_leader_epoch": -1}]}]
    said = client.ask(OFFSET_COMMIT, version, of | {"group_id": group, "topics": topics})
    assert said["topics"][0]["partitions"][0]["error_code"] == 0
    seconds: float = said["throttle_time"].total_seconds()
    return seconds


def fetch(client: WireClient, group: str) -> int:
    asked = {"group_id": group, "topics": [{"name": "t", "partition_indexes": [0]}]}
    offset: int = client.ask(OFFSET_FETCH, 5, asked)["topics"][0]["partitions"][0]["committed_offset"]
    return offset


@pytest.mark.parametrize("version", [3, 5])
def test_commits_in_transactions_count_too(tmp_path: Path, origin: Origin, version: int) -> None:
    served = InProcess(tmp_path, origin, quota=0.01)  # the first may come at once
    served.load()
    begin = {"transactional_id": "t", "transaction_timeout": timedelta(minutes=1)}
    of = {name: served.ask(INIT_PRODUCER_ID, 4, **begin)[name] for name in ("producer_id", "producer_epoch")}
    of |= {"transactional_id": "t", "group_id": "g"}
    served.ask(ADD_OFFSETS_TO_TXN, 0, **of)
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    frame = request(TXN_OFFSET_COMMIT, version, of | {"topics": [{"name": "t", "partitions": [partition]}]})
    service = Service(served.commits, served.parts.fetches, served.admin, served.client)
    said: list[tuple[int, int, float]] = []
    for _ in range(3):
        body = served.loop.create_future()
        rest_ms = service.take(frame, read_header(frame), given_to(body))
        answer = answered(TXN_OFFSET_COMMIT, version, served.wait(body))
        error = answer["topics"][0]["partitions"][0]["error_code"]
        said.append((rest_ms, error, answer["throttle_time"]))
    written, refused = (10_000, 0, 10_000), (10_000, LOADING, 10_000)
    assert said == [(0, 0, 0), written, refused], "the next token would be there in 100 s"
    served.close()


@pytest.mark.slow
@pytest.mark.parametrize("version", [3, 9])
def test_a_client_over_its_quota_is_told_and_left_alone(serving: Serving, version: int) -> None:
    group = f"quick-{version}"
    with WireClient(serving.bootstrap) as client, WireClient(serving.bootstrap) as other:
        offset, rest = 0, 0.0
        while not rest:
            offset += 1
            rest = commit(client, version, group, offset)
        told = time.monotonic()
        assert offset > 10
        assert commit(other, version, f"calm-{version}", 1) == 0
        assert fetch(other, group) == offset, "it is answered, and written"
        others_done = time.monotonic() - told
        assert fetch(client, group) == offset
        assert others_done < rest - 0.05 < time.monotonic() - told
