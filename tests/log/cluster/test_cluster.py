"""The live log against brokers that misbehave; against a real one it is test_topic.py."""

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest_v11
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.offset import OffsetRequest_v3

from offsetlake.errors import CorruptBatch, LogUnavailable
from offsetlake.log.cluster import topic
from offsetlake.log.cluster.cluster import BrokerConnections, TryAgainError
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.cluster.topic import describe
from offsetlake.log.positions import LogExtent, LogPartition, OffsetRange
from support.broker.broker import free_ports
from support.log.one_partition import fetch
from support.log.scripted_broker import CLUSTER_ID, TOPIC, Fetched, ScriptedBroker

PARTITION = LogPartition(TOPIC, 0)
NOT_LEADER, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC, CORRUPT_MESSAGE = 6, 29, 3, 2

pytestmark = pytest.mark.timeout(300)  # what must end by itself fails rather than hangs


def batch(first: int, last: int, magic: int = 2, size: int = 100) -> bytes:
    body = struct.pack(">iBIhi", -1, magic, 0, 0, last - first) + bytes(size)
    return struct.pack(">qi", first, len(body)) + body


def connect(*brokers: ScriptedBroker, timeout_ms: int = 20_000) -> KafkaConnection:
    return KafkaConnection(bootstrap=",".join(each.bootstrap for each in brokers), request_timeout_ms=timeout_ms)


def fetch_all(broker: ScriptedBroker, start: int, end: int, timeout_ms: int = 20_000) -> list[bytes]:
    return list(fetch(connect(broker, timeout_ms=timeout_ms), PARTITION, OffsetRange(start, end)))


def asked_offsets(broker: ScriptedBroker) -> list[int]:
    return [request.topics[0][1][0][2] for request in broker.sent(FetchRequest_v11)]


@pytest.fixture(autouse=True)
def leaves_nothing(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No thread stays, and nothing is printed or logged."""
    yield
    assert [each.name for each in threading.enumerate() if each.name == "offsetlake-kafka"] == []
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.get_records("call") if record.name != "asyncio" or record.levelno > 10] == []


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of one that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield "{}:{}".format(*listener.getsockname())


@pytest.fixture
def closed() -> tuple[str, int]:
    """An address nobody listens on."""
    return "127.0.0.1", free_ports(1)[0]


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> Callable[[ScriptedBroker], None]:
    """Return a function that lets the timeout of a client expire when it sends requests to a broker again."""
    ahead, new_event_loop = 0.0, asyncio.new_event_loop

    def new_loop() -> asyncio.AbstractEventLoop:
        loop = new_event_loop()
        time = loop.time
        loop.time = lambda: time() + ahead  # type: ignore[method-assign]
        return loop

    def expire() -> None:
        nonlocal ahead
        ahead += 1_000

    def hurry(broker: ScriptedBroker) -> None:
        broker.retried = expire

    monkeypatch.setattr(asyncio, "new_event_loop", new_loop)
    return hurry


def test_truncated_batch_is_fetched_again() -> None:
    one, two, three = batch(0, 9), batch(10, 19), batch(25, 29)
    with ScriptedBroker(Fetched(one + two[:70]), Fetched(two + three[:5]), Fetched(three)) as broker:
        assert fetch_all(broker, 0, 30) == [one, two, three]
    assert asked_offsets(broker) == [0, 10, 20]


@pytest.mark.parametrize(("end", "count"), [(1, 1), (10, 1), (11, 2), (20, 2), (23, 2), (25, 2), (26, 3), (30, 3)])
def test_batches_after_end_of_range_are_omitted(end: int, count: int) -> None:
    batches = [batch(0, 9), batch(10, 19), batch(25, 29), batch(30, 31)]
    with ScriptedBroker(Fetched(b"".join(batches) + batches[0][:30])) as broker:
        assert fetch_all(broker, 0, end) == [b"".join(batches[:count])]
    assert asked_offsets(broker) == [0]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("end", "count"), [(3, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_old_batches_that_state_only_their_last_offset_are_all_there(magic: int, end: int, count: int) -> None:
    batches = [batch(last, last, magic, size=0)[:26] for last in (9, 19, 29)]
    batches = [each[:8] + struct.pack(">i", 14) + each[12:] for each in batches]
    assert {len(each) for each in batches} == {26}  # the smallest message there is
    with ScriptedBroker(Fetched(b"".join(batches))) as broker:
        assert fetch_all(broker, 0, end) == [b"".join(batches[:count])]


def test_offsets_that_compaction_removed_at_the_end_are_not_waited_for() -> None:
    with ScriptedBroker(Fetched(batch(0, 9)), Fetched(high_watermark=30)) as broker:
        assert fetch_all(broker, 0, 30) == [batch(0, 9)]
    with ScriptedBroker(Fetched(batch(0, 9)), Fetched(batch(40, 49))) as broker:
        assert fetch_all(broker, 0, 30) == [batch(0, 9)]


def test_an_end_the_log_does_not_reach_is_an_error(hurry: Callable[[ScriptedBroker], None]) -> None:
    with ScriptedBroker(Fetched(batch(0, 9)), Fetched(high_watermark=10)) as broker:
        hurry(broker)
        with pytest.raises(LogUnavailable, match=f"{TOPIC}-0 ends at offset 10, before 30; gave up"):
            fetch_all(broker, 0, 30)


def test_empty_range_sends_no_request() -> None:
    assert list(fetch(KafkaConnection(bootstrap="127.0.0.1:1"), PARTITION, OffsetRange(5, 5))) == []


@pytest.mark.parametrize(
    "nonsense", [b"\x00" * 200, batch(5, 9)[:-1], batch(0, 4), batch(5, 1), batch(5, 9, magic=7), b"x"]
)
def test_response_without_requested_batch_is_corrupt(nonsense: bytes) -> None:
    with (
        ScriptedBroker(Fetched(nonsense)) as broker,
        pytest.raises(CorruptBatch, match=f"{TOPIC}-0: .*offset 5"),
    ):
        fetch_all(broker, 5, 30)


def test_a_new_leader_is_followed() -> None:
    with ScriptedBroker(Fetched(error=NOT_LEADER)) as old, ScriptedBroker(Fetched(batch(10, 19))) as new:
        old.fetches.appendleft(Fetched(batch(0, 9)))
        old.leaders.append(new.address)
        new.leaders = old.leaders
        assert fetch_all(old, 0, 20) == [batch(0, 9), batch(10, 19)]
    assert (asked_offsets(old), asked_offsets(new)) == ([0, 10], [10])


def test_a_leader_that_died_is_replaced(closed: tuple[str, int]) -> None:
    with ScriptedBroker(Fetched(batch(0, 9))) as broker:
        broker.leaders.appendleft(closed)
        assert fetch_all(broker, 0, 10) == [batch(0, 9)]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (Fetched(error=NOT_LEADER), "NOT_LEADER.* .6.*gave up after request.timeout.ms = 20000"),
        (Fetched(throttle_ms=20), "quota.*gave up after"),
        (Fetched(error=CORRUPT_MESSAGE), f"{TOPIC}-0: the broker returned CORRUPT_MESSAGE .2."),
        (Fetched(error=TOPIC_AUTHORIZATION_FAILED), f"is not authorized to read topic {TOPIC}: .*READ and DESCRIBE"),
        (Fetched(error=1), f"{TOPIC}-0 does not contain offset 5, only 7 to 90"),
    ],
)
def test_failed_fetch_is_explained(script: Fetched, says: str, hurry: Callable[[ScriptedBroker], None]) -> None:
    with ScriptedBroker(script) as broker:
        broker.range = (7, 90)
        hurry(broker)
        with pytest.raises(LogUnavailable, match=says):
            fetch_all(broker, 5, 30)


def test_timeout_at_the_moment_of_a_failure_is_explained_by_the_failure() -> None:
    async def attempt() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:  # `wait_for` of Python 3.11 ignores it if its result has just arrived
            raise TryAgainError("no leader") from None

    cluster = BrokerConnections(KafkaConnection(bootstrap="127.0.0.1:1", request_timeout_ms=10))
    with pytest.raises(LogUnavailable, match=r"no leader; gave up after request\.timeout\.ms = 10"):
        asyncio.run(cluster.within_timeout(attempt))


def test_a_quota_is_waited_out() -> None:
    with ScriptedBroker(Fetched(throttle_ms=3_000), Fetched(batch(0, 9))) as broker:
        assert fetch_all(broker, 0, 10, timeout_ms=2_500) == [batch(0, 9)]


def test_a_cluster_that_is_gone_for_a_moment_is_waited_for() -> None:
    (port,) = free_ports(1)
    with ScriptedBroker(Fetched(batch(0, 9)), None, port=port) as broker:
        pieces = fetch(connect(broker), PARTITION, OffsetRange(0, 20))
        assert next(pieces) == batch(0, 9)
    time.sleep(0.3)  # tried in vain meanwhile
    with ScriptedBroker(Fetched(batch(10, 19)), port=port):
        assert list(pieces) == [batch(10, 19)]


def test_one_response_is_fetched_ahead_and_no_more() -> None:
    with ScriptedBroker(*(Fetched(batch(i, i)) for i in range(10))) as broker:
        pieces = fetch(connect(broker), PARTITION, OffsetRange(0, 10))
        for taken in (1, 2, 3):
            assert next(pieces) == batch(taken - 1, taken - 1)
            with broker.seen:
                came = broker.seen.wait_for(lambda count=taken + 1: len(broker.requests) - 1 >= count, timeout=120)
                assert came
                assert not broker.seen.wait_for(lambda count=taken + 1: len(broker.requests) - 1 > count, timeout=0.1)
        pieces.close()


def test_closing_while_a_response_is_on_its_way_leaves_nothing_open() -> None:
    with ScriptedBroker(Fetched(batch(0, 9)), Fetched(batch(10, 19, size=50_000_000))) as broker:
        pieces = fetch(connect(broker), PARTITION, OffsetRange(0, 20))
        next(pieces)
        pieces.close()
        assert list(pieces) == []


def test_stretches_come_one_after_the_other_over_one_connection() -> None:
    wanted = [(PARTITION, offsets) for offsets in (OffsetRange(3, 3), OffsetRange(0, 20), OffsetRange(30, 40))]
    with ScriptedBroker(*(Fetched(batch(first, first + 9)) for first in (0, 10, 30))) as broker:
        found = list(topic.fetch(connect(broker), [*wanted, (PARTITION, OffsetRange(50, 50))]))
        assert found == [(1, batch(0, 9)), (1, batch(10, 19)), (2, batch(30, 39))]
        assert len(broker.sent(MetadataRequest_v5)) == 1


def test_a_caller_inside_an_event_loop_is_served() -> None:
    async def inside(broker: ScriptedBroker) -> tuple[LogExtent, list[bytes]]:
        return describe(connect(broker), [TOPIC]), fetch_all(broker, 0, 10)

    with ScriptedBroker(Fetched(batch(0, 9))) as broker:
        extent, pieces = asyncio.run(inside(broker))
    assert extent == LogExtent(CLUSTER_ID, {PARTITION: OffsetRange(0, 1_000)})
    assert pieces == [batch(0, 9)]


def test_describing_creates_no_topic_and_sees_open_transactions() -> None:
    with ScriptedBroker() as broker:
        describe(connect(broker), [TOPIC])
    assert [request.allow_auto_topic_creation for request in broker.sent(MetadataRequest_v5)] == [False]
    assert [(each.replica_id, each.isolation_level) for each in broker.sent(OffsetRequest_v3)] == [(-1, 0)] * 2


def test_a_topic_that_is_missing() -> None:
    with ScriptedBroker() as broker:
        broker.error = UNKNOWN_TOPIC
        assert describe(connect(broker), ["__share_group_state"]) == LogExtent(CLUSTER_ID, {})
        with pytest.raises(LogUnavailable, match=f"{CLUSTER_ID} has no topic {TOPIC}. No group.*bootstrap.servers"):
            describe(connect(broker), [TOPIC, "__share_group_state"])
        with pytest.raises(LogUnavailable, match=f"no partition {TOPIC}-0"):
            fetch_all(broker, 0, 10)


def test_missing_leader_is_waited_for(hurry: Callable[[ScriptedBroker], None]) -> None:
    with ScriptedBroker() as broker:
        broker.leaders.appendleft(None)
        assert describe(connect(broker), [TOPIC]).ranges == {PARTITION: OffsetRange(0, 1_000)}
        broker.leaders.appendleft(None)
        broker.leaders.pop()
        broker.requests.clear()
        hurry(broker)
        with pytest.raises(LogUnavailable, match=f"{TOPIC}-0 has no leader.*gave up"):
            describe(connect(broker), [TOPIC])


def test_one_bootstrap_server_that_answers_is_enough(silent: str, closed: tuple[str, int]) -> None:
    with ScriptedBroker() as broker:
        again = silent.replace("127.0.0.1", "localhost")
        servers = f"{silent},{again},{closed[0]}:{closed[1]},{broker.bootstrap}"
        assert describe(KafkaConnection(bootstrap=servers, request_timeout_ms=6_000), [TOPIC]).identity == CLUSTER_ID


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_brokers_not_reached_are_named_with_the_cause(
    silent: str, closed: tuple[str, int], protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def resolved(host: str, *more: Any, **options: Any) -> Any:
        if host == "no-such-host.invalid":  # a name server may take longer to say so than the request timeout
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    bootstrap = f"{silent},{closed[0]}:{closed[1]},no-such-host.invalid:9092"
    connection = KafkaConnection(bootstrap=bootstrap, security_protocol=protocol, request_timeout_ms=4_000)
    for attempt in (
        lambda: describe(connection, [TOPIC]),
        lambda: list(fetch(connection, PARTITION, OffsetRange(0, 1))),
    ):
        with pytest.raises(LogUnavailable) as failed:
            attempt()
        said = str(failed.value)
        assert f"Kafka at {bootstrap} by {protocol}" in said
        assert f"{silent}: no response in time" in said
        assert f"{closed[1]}: connection refused" in said
        assert "no-such-host.invalid:9092: the host name cannot be resolved" in said


def test_an_address_given_by_the_cluster_that_leads_nowhere_is_said_to_be_one(
    closed: tuple[str, int], hurry: Callable[[ScriptedBroker], None]
) -> None:
    with ScriptedBroker() as broker:
        broker.leaders = type(broker.leaders)([closed])
        hurry(broker)
        with pytest.raises(
            LogUnavailable, match=f"127.0.0.1:{closed[1]} .an advertised listener of the cluster.*refused"
        ):
            describe(connect(broker), [TOPIC])


def test_a_broker_that_could_create_topics_when_asked_about_them_is_not_asked() -> None:
    with ScriptedBroker() as broker:
        broker.versions[MetadataRequest_v5.API_KEY] = 3
        with pytest.raises(LogUnavailable, match=r"Kafka 0\.11 or later"):
            describe(connect(broker), [TOPIC])
    assert broker.requests == []


def test_other_protocol_on_port_is_reported() -> None:
    def greet(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            accepted, _ = listener.accept()
            with accepted:
                accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        greeter = threading.Thread(target=greet, args=(listener,))
        greeter.start()
        bootstrap = "{}:{}".format(*listener.getsockname())
        with pytest.raises(LogUnavailable, match=r"closed the connection; check security\.protocol"):
            describe(KafkaConnection(bootstrap=bootstrap), [TOPIC])
        greeter.join()
