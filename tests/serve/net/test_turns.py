"""Turns: no client waits long for another, requests and responses are handled in steps, and buffers have limits."""

import asyncio
import struct
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from offsetlake.kafka.batches.writer import Batch
from offsetlake.serve.net.answering import MAX_WRITE_BYTES, Answer
from offsetlake.serve.net.client import Client
from offsetlake.serve.net.connection import MAX_UNREAD_BYTES, Connection
from offsetlake.serve.net.frame_memory import UNCHARGED_BYTES, Memory
from offsetlake.serve.net.turns import BACKLOG_SECONDS, IMMEDIATE_SECONDS, TURN_SECONDS, Turns
from offsetlake.serve.protocol.request_reader import ELEMENTS_PER_STEP
from offsetlake.serve.protocol.wire import RequestHeader, read_header
from offsetlake.serve.steps import Work, complete
from offsetlake.serve.storage.memtable import VALUE
from offsetlake.serve.storage.store import key
from offsetlake.web.http.api.offsets import read_offsets
from support.serve.in_process import InProcess, Origin, given_to
from support.serve.kio_requests import answered, request
from support.serve.sink import Sink

QUICK, LONG = 9, 15
STEP = TURN_SECONDS / 5
LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 2, 3, 8, 9, 10
INIT_PRODUCER_ID, TXN_OFFSET_COMMIT, DELETE_GROUPS, OFFSET_DELETE, DESCRIBE_TOPIC_PARTITIONS = 22, 28, 42, 47, 75


class Clock:
    """A clock that advances only when work is done."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class ManualTransport(Sink):
    """A transport whose client reads only when the test calls `read`."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: Connection
        self.reads, self.waiting, self.max_waiting, self.reading = True, 0, 0, True

    def write(self, data: bytes) -> None:
        super().write(data)
        if not self.reads:
            self.waiting += len(data)
            self.max_waiting = max(self.max_waiting, self.waiting)
            if self.waiting > MAX_WRITE_BYTES:
                self.connection.pause_writing()

    def read(self) -> None:
        self.waiting = 0
        self.connection.resume_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        self.closed = True


class Rig:
    """Connections that share turns; each request takes time: a QUICK one takes one step, a LONG one 100 steps."""

    def __init__(self) -> None:
        self.loop, self.clock = asyncio.new_event_loop(), Clock()
        self.turns = Turns(self.loop, Memory(), self.clock)

    def connect(self, answer_bytes: int = 0) -> tuple[Connection, ManualTransport]:
        client, socket = Client(), ManualTransport()
        client.address = "127.0.0.1:40000"
        connection = Connection(Answering(self.clock, client, answer_bytes), client, set(), self.turns)
        socket.connection = connection
        connection.connection_made(cast("Any", socket))
        return connection, socket

    def iterate(self, times: int = 1) -> None:
        for _ in range(times):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()


class Answering:
    """Answers each request with `size` bytes."""

    def __init__(self, clock: Clock, client: Client, size: int) -> None:
        self._clock, self._client, self._size = clock, client, size

    def take(self, _frame: bytes, header: RequestHeader, answer: Answer) -> int:
        self._clock.now += STEP
        if header.api == LONG:
            self._client.work(self._work(answer))
        else:
            answer(bytes(self._size))
        return 0

    def _work(self, answer: Answer) -> Work:
        for _ in range(100):
            self._clock.now += STEP
            yield 1
        answer(bytes(self._size))
        return 0

    def may_follow(self, _header: RequestHeader) -> bool:
        return False


@pytest.fixture
def rig() -> Iterator[Rig]:
    new = Rig()
    yield new
    new.loop.close()


def frame(api: int, correlation: int) -> bytes:
    data = struct.pack(">hhih", api, 0, correlation, -1)
    return struct.pack(">i", len(data)) + data


def correlations(socket: ManualTransport) -> list[int]:
    ids, position = [], 0
    while position < len(socket.written):
        size, correlation = struct.unpack_from(">ii", socket.written, position)
        ids.append(correlation)
        position += 4 + size
    return ids


@pytest.mark.parametrize(("api", "requests"), [(QUICK, 1000), (LONG, 10)])
def test_light_client_is_answered_before_a_backlog_is_complete(rig: Rig, api: int, requests: int) -> None:
    heavy, light = [rig.connect() for _ in range(50)], rig.connect()
    for connection, _ in heavy:
        connection.data_received(b"".join(frame(api, number) for number in range(requests)))
    began = rig.clock.now
    light[0].data_received(frame(QUICK, 7))
    iterations = 0
    while not light[1].written:
        rig.iterate()
        iterations += 1
    waited = rig.clock.now - began
    # At most one turn of each other new connection, and of one old connection per iteration; a step is not interrupted.
    assert waited <= (len(heavy) + 1 + iterations) * (TURN_SECONDS + STEP)
    assert all(len(correlations(socket)) < requests for _, socket in heavy)
    while any(len(correlations(socket)) < requests for _, socket in heavy):
        rig.iterate()
    assert all(correlations(socket) == [*range(requests)] for _, socket in heavy), "in the order of the requests"


def test_iteration_of_the_event_loop_has_a_time_limit(rig: Rig) -> None:
    for _ in range(200):
        connection, _ = rig.connect()
        connection.data_received(b"".join(frame(LONG, number) for number in range(3)))
    assert rig.clock.now <= IMMEDIATE_SECONDS + TURN_SECONDS + 2 * STEP
    for _ in range(100):
        began = rig.clock.now
        rig.iterate()
        assert 0 < rig.clock.now - began <= BACKLOG_SECONDS + TURN_SECONDS + 2 * STEP


def test_no_request_is_handled_while_responses_are_not_read(rig: Rig) -> None:
    size = 100_000
    connection, socket = rig.connect(size)
    socket.reads = False
    connection.data_received(b"".join(frame(QUICK, number) for number in range(100)))
    rig.iterate(300)
    assert socket.max_waiting <= 2 * MAX_WRITE_BYTES + size
    assert not socket.reading, "nothing more is read of its socket"
    taken = rig.clock.now
    rig.iterate(10)
    assert rig.clock.now == taken
    for _ in range(100):
        socket.read()
        rig.iterate(3)
    assert socket.max_waiting <= 2 * MAX_WRITE_BYTES + size
    assert correlations(socket) == [*range(100)]
    assert socket.reading


@pytest.mark.long
def test_queued_connection_stops_reading_at_its_limit(rig: Rig) -> None:
    connection, socket = rig.connect()
    requests = 0
    while socket.reading:
        connection.data_received(b"".join(frame(LONG, number) for number in range(100)))
        requests += 100
        assert requests * len(frame(LONG, 0)) <= 2 * MAX_UNREAD_BYTES
    while len(correlations(socket)) < requests:
        rig.iterate(100)
    assert socket.reading


def test_work_of_a_lost_connection_is_discarded(rig: Rig) -> None:
    connection, socket = rig.connect()
    connection.data_received(frame(LONG, 1))
    connection.connection_lost(None)
    rig.iterate(2)
    before = rig.clock.now
    rig.iterate(100)
    assert (rig.clock.now, socket.written) == (before, b"")


@pytest.fixture
def served(tmp_path: Path, origin: Origin) -> Iterator[InProcess]:
    server = InProcess(tmp_path, origin, {b"wide": 20_000})
    server.load()
    yield server
    server.close()


def started(served: InProcess, api: int, version: int, values: dict[str, Any]) -> tuple[list[Work], Callable[[], Any]]:
    """Start a request; return the work that it adds, and a function that returns the response."""
    work: list[Work] = []
    served.client.work = work.append
    data, answer = request(api, version, values), served.loop.create_future()
    served._service.take(data, read_header(data), given_to(answer))
    return work, lambda: answered(api, version, answer.result())


def many(partitions: int, **fields: Any) -> list[dict[str, Any]]:
    """Return an array of topics with one topic."""
    return [{"name": "wide", "partitions": [{"partition_index": number} | fields for number in range(partitions)]}]


@pytest.mark.parametrize(
    ("api", "version", "values"),
    [
        (LIST_OFFSETS, 7, {"topics": many(5000, timestamp=-1, current_leader_epoch=-1)}),
        (METADATA, 12, {"topics": [{"name": f"{number}", "topic_id": None} for number in range(5000)]}),
        (FIND_COORDINATOR, 4, {"coordinator_keys": [f"{number}" for number in range(5000)]}),
        (DELETE_GROUPS, 1, {"groups_names": [f"{number}" for number in range(5000)]}),
        (OFFSET_DELETE, 0, {"group_id": "g", "topics": many(5000)}),
    ],
)
def test_large_request_is_decoded_in_steps(served: InProcess, api: int, version: int, values: dict[str, Any]) -> None:
    work, _ = started(served, api, version, values)
    assert sum(1 for _ in work[0]) >= 5000 // ELEMENTS_PER_STEP


def test_many_topics_are_described_in_steps_and_in_order(served: InProcess) -> None:
    names = [f"{7919 * number % 5000:04}" for number in range(5000)]
    values = {"topics": [{"name": name} for name in names], "response_partition_limit": 2000, "cursor": None}
    work, answer = started(served, DESCRIBE_TOPIC_PARTITIONS, 0, values)
    complete(work[0])
    assert sum(1 for _ in work[1]) >= 2 * 5000, "the names are sorted, and described"
    assert [topic["name"] for topic in answer()["topics"]] == sorted(names)


@pytest.mark.parametrize("version", [0, 1, 5, 9, 13])
def test_metadata_of_many_partitions_is_encoded_in_steps(served: InProcess, version: int) -> None:
    (work,), answer = started(served, METADATA, version, {"topics": [{"name": "wide", "topic_id": None}]})
    steps = [*work]
    assert len(steps) >= 20, "other connections have turns between the steps"
    (topic,) = answer()["topics"]
    assert [row["partition_index"] for row in topic["partitions"]] == [*range(20_000)]
    assert {(row["error_code"], row["leader_id"], *row["replica_nodes"]) for row in topic["partitions"]} == {(0, 0, 0)}


@pytest.mark.parametrize("version", [2, 5, 8])
def test_fetch_of_all_offsets_of_a_group_is_consistent(served: InProcess, version: int) -> None:
    def commit(offset: int) -> None:
        values = {key(b"wide", number): VALUE.pack(offset, -1, bytes(16)) for number in range(5000)}
        served.store.commit(b"large", values, 0)

    commit(1)
    served.store.begin_refresh()
    served.store.delete_offsets(b"large", [(b"wide", 0)], 1)
    asked = {"group_id": "large", "groups": [{"group_id": "large", "topics": None}], "topics": None}
    (work,), answer = started(served, OFFSET_FETCH, version, asked)
    steps = sum(1 for _ in zip(range(10), work, strict=False))
    commit(2)
    served.store.merge_back()
    assert steps + sum(1 for _ in work) >= 25
    found = answer()
    (topic,) = (found["groups"][0] if version >= 8 else found)["topics"]
    offsets = {row["partition_index"]: row["committed_offset"] for row in topic["partitions"]}
    assert offsets == dict.fromkeys(range(1, 5000), 1)


def test_offsets_of_a_group_are_read_in_steps_for_http(served: InProcess) -> None:
    values = {key(b"wide", number): VALUE.pack(number, -1, bytes(16)) for number in reversed(range(5000))}
    served.store.commit(b"large", values | {key(b"a", 7): VALUE.pack(8, 9, bytes(16)) + b"m"}, 0)
    steps = read_offsets(served.store.group_offsets(b"large"), None)
    assert sum(1 for _ in steps) >= 5000 // 100
    first, *others = complete(read_offsets(served.store.group_offsets(b"large"), None))
    fields = ("topic", "partition", "committed_offset", "leader_epoch", "metadata")
    assert [first[field] for field in fields] == ["a", 7, 8, 9, "m"]
    assert [row["partition"] for row in others] == [*range(5000)]
    assert complete(read_offsets(served.store.group_offsets(b"large"), "a")) == [first]


@pytest.mark.parametrize("api", [OFFSET_COMMIT, OFFSET_FETCH])
def test_topics_without_partitions_are_read_and_answered_in_steps(served: InProcess, api: int) -> None:
    group = {"group_id": "none", "generation_id_or_member_epoch": -1, "member_id": ""}
    topics = [{"name": str(number), "partitions": [], "partition_indexes": []} for number in range(5000)]
    (work,), answer = started(served, api, 7 if api == OFFSET_FETCH else 8, group | {"topics": topics})
    steps = sum(1 for _ in work)
    assert steps >= 5000 * (2 if api == OFFSET_FETCH else 1)
    assert len(answer()["topics"]) == 5000


class Holding:
    """A connection that uses memory."""

    def __init__(self, address: str) -> None:
        self.address, self.closed = address, False

    def abort(self) -> None:
        self.closed = True


def test_memory_closes_the_largest_connection_of_the_address_that_uses_most() -> None:
    mb = 1 << 20
    memory = Memory(100 * mb)
    honest, other = Holding("10.0.0.1:1"), Holding("10.0.0.1:2")
    hostile = [Holding(f"10.0.0.2:{port}") for port in range(40)]
    memory.charge(honest, 20 * mb)
    memory.charge(other, UNCHARGED_BYTES)
    for size, connection in enumerate(hostile, start=1):
        memory.charge(connection, 2 * mb + size)
        assert memory.used <= 100 * mb
    assert not honest.closed
    assert [row.closed for row in hostile] == [False] * 39 + [True], "the largest connection is closed"
    for connection in hostile:
        memory.charge(connection, 0)
    memory.charge(honest, 0)
    assert memory.used == 0


def test_incomplete_requests_have_a_memory_limit(rig: Rig) -> None:
    rig.turns.memory = Memory(1 << 20)
    sockets = []
    for _ in range(20):
        connection, socket = rig.connect()
        connection.data_received(struct.pack(">i", 1 << 20) + bytes(100_000))
        sockets.append(socket)
        assert rig.turns.memory.used <= 1 << 20
    assert [socket.closed for socket in sockets].count(True) == 20 - 10


def commit_of(partitions: int, metadata: str) -> dict[str, Any]:
    offsets = [
        {"partition_index": number, "committed_offset": number, "committed_metadata": metadata}
        for number in range(partitions)
    ]
    group = {"group_id": "large", "generation_id_or_member_epoch": -1, "member_id": ""}
    return group | {"topics": [{"name": "wide", "partitions": offsets}]}


def test_large_commit_is_read_in_steps_and_stored_completely(served: InProcess) -> None:
    (work,), answer = started(served, OFFSET_COMMIT, 8, commit_of(5000, "m"))
    assert sum(1 for _ in work) >= 2 * 5000 // 100
    assert served.store.group(b"large") is None
    served.loop.run_until_complete(served.writes.drain())
    (topic,) = answer()["topics"]
    assert {row["error_code"] for row in topic["partitions"]} == {0}
    assert len(served.store.offsets(b"large")) == 5000


def test_too_large_commit_is_refused_completely(served: InProcess) -> None:
    """Its record batch is larger than max.message.bytes: UNKNOWN_SERVER_ERROR (-1)."""
    answer = served.ask(OFFSET_COMMIT, 8, **commit_of(300, "m" * 4000))
    (topic,) = answer["topics"]
    assert {row["error_code"] for row in topic["partitions"]} == {-1}
    assert served.store.group(b"large") is None


def transactional_commit(served: InProcess, partitions: int, metadata: str) -> dict[str, Any]:
    """Start a producer; return the fields of a TxnOffsetCommit."""
    asked = {"transactional_id": "large", "transaction_timeout": timedelta(minutes=1)}
    producer = served.ask(INIT_PRODUCER_ID, 4, **asked)
    values = commit_of(partitions, metadata) | {"generation_id": -1, "transactional_id": "large"}
    return values | {field: producer[field] for field in ("producer_id", "producer_epoch")}


def test_large_transactional_commit_is_read_in_steps_and_pending_completely(served: InProcess) -> None:
    values = transactional_commit(served, 5000, "m")
    work, answer = started(served, TXN_OFFSET_COMMIT, 5, values)
    steps = sum(1 for _ in work.pop(0))
    assert steps >= 5000 // ELEMENTS_PER_STEP + 2 * 5000 // 100, "it is decoded, checked, and its record batch is built"
    assert served.store.group(b"large") is None
    for _ in range(4):
        served.loop.run_until_complete(served.writes.drain())
    complete(work.pop(0))
    (topic,) = answer()["topics"]
    assert {row["error_code"] for row in topic["partitions"]} == {0}
    assert served.store.unstable(b"large") == {(b"wide", number) for number in range(5000)}


def test_too_large_transactional_commit_is_refused_completely(served: InProcess) -> None:
    """Its record batch is larger than max.message.bytes: UNKNOWN_SERVER_ERROR (-1)."""
    (topic,) = served.ask(TXN_OFFSET_COMMIT, 5, **transactional_commit(served, 300, "m" * 4000))["topics"]
    assert {row["error_code"] for row in topic["partitions"]} == {-1}
    assert not served.store.unstable(b"large")


def test_deletion_of_many_groups_does_not_fill_the_write_queue(
    served: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued: list[int] = []
    add = served.writes.add

    def counted(*row: Any) -> None:
        add(*row)
        queued.append(len(served.writes._queue))

    monkeypatch.setattr(served.writes, "add", counted)
    served.ask(OFFSET_COMMIT, 8, **commit_of(3, ""))
    names = [f"unknown-{number}" for number in range(300)] + ["large", "large"]
    results = served.ask(DELETE_GROUPS, 2, groups_names=names)["results"]
    assert [row["group_id"] for row in results] == names
    assert [row["error_code"] for row in results] == [*[69] * 300, 0, 69]
    assert max(queued) == 1


def test_offsets_are_deleted_in_batches_of_limited_size(served: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    append = served.appender.append

    def counted(partition: Any, batches: list[Batch]) -> list[int]:
        sizes.extend(batch.records for batch in batches)
        return append(partition, batches)

    served.ask(OFFSET_COMMIT, 8, **commit_of(2600, ""))
    monkeypatch.setattr(served.appender, "append", counted)
    answer = served.ask(OFFSET_DELETE, 0, group_id="large", topics=many(2500))
    (topic,) = answer["topics"]
    assert [(row["partition_index"], row["error_code"]) for row in topic["partitions"]] == [(n, 0) for n in range(2500)]
    assert sizes == [1000, 1000, 500]
    assert {*served.store.offsets(b"large")} == {key(b"wide", number) for number in range(2500, 2600)}
