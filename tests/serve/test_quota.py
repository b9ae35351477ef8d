"""How often a group may commit, second by second; and that a connection over it is answered, then left alone."""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from offsetlake.serve import quota
from offsetlake.serve.admin import ADD_OFFSETS_TO_TXN, INIT_PRODUCER_ID, TXN_OFFSET_COMMIT
from offsetlake.serve.quota import Quota
from offsetlake.serve.service import Service
from offsetlake.serve.wire import read_header
from serve.asking import answered, request
from serve.in_process import InProcess, Origin
from serve.serving import Serving
from serve.wire_client import OFFSET_COMMIT, OFFSET_FETCH, WireClient

RATE = 2.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_then_as_many_as_the_rate() -> None:
    """2 a second: 20 may come at once; each one more rests half a second, until seconds have passed."""
    clock = Clock()
    of = Quota(RATE, clock)
    assert [of.take(b"g") for _ in range(20)] == [0] * 20
    assert [of.take(b"g") for _ in range(3)] == [500, 1000, 1500]
    assert of.take(b"other") == 0
    clock.now += 2
    assert [of.take(b"g") for _ in range(2)] == [0, 500]
    clock.now += 1000
    assert [of.take(b"g") for _ in range(21)] == [0] * 20 + [500]
    assert of.worst(5) == [(b"g", 5)]


def test_what_is_refused_takes_nothing() -> None:
    clock = Clock()
    of = Quota(RATE, clock)
    assert [of.take(b"g", refused=True) for _ in range(23)] == [0] * 20 + [500] * 3
    assert of.take(b"g") == 500
    assert of.take(b"g", refused=True) == 1000
    assert of.worst(1) == [(b"g", 5)]
    clock.now += 1
    assert [of.take(b"g", refused=True) for _ in range(2)] == [0, 500]


def test_no_rest_is_longer_than_clients_wait() -> None:
    of = Quota(RATE, Clock())
    assert max(of.take(b"g") for _ in range(1000)) == 10_000


def test_what_it_keeps_in_mind_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "MOST_GROUPS", 10)
    monkeypatch.setattr(quota, "MOST_THROTTLED", 10)
    clock = Clock()
    of = Quota(RATE, clock)
    for _ in range(30):
        of.take(b"worst")
    for number in range(100):
        for _ in range(22):
            of.take(b"%d" % number)
        assert len(of._buckets) <= 10
        assert len(of._throttled) <= 10
    assert of.worst(1) == [(b"worst", 10)]


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
    for _ in range(2):
        body = served.loop.create_future()
        rest_ms = service.take(frame, read_header(frame), body.set_result)
        answer = answered(TXN_OFFSET_COMMIT, version, served.wait(body))
        error = answer["topics"][0]["partitions"][0]["error_code"]
        said.append((rest_ms, error, answer["throttle_time"]))
    assert said == [(0, 0, 0), (10_000, 0, 10_000)], "it is answered, and written"
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
