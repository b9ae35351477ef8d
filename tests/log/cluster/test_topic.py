"""The live log of a real broker, against the segment files on that broker's own disk."""

import struct
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import admin as kafka_admin

from offsetlake.errors import LogUnavailable
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.cluster.topic import describe
from offsetlake.log.positions import LOG_TOPICS, OFFSETS_TOPIC, LogPartition, OffsetRange
from support.broker.acls import allow
from support.broker.broker import PASSWORDS, Broker
from support.broker.workload import create_topic
from support.log.one_partition import fetch

pytestmark = pytest.mark.broker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
CONTROL = 0x20
TIMEOUT_MS = 120_000
SASL = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True)
class Batch:
    """One record batch of a segment file: its first and last offset, attributes and bytes."""

    first: int
    last: int
    attributes: int
    data: bytes


def batches(data: bytes) -> list[Batch]:
    found = []
    while data:
        first, length, attributes, delta = struct.unpack_from(">qi9xhi", data)
        found.append(Batch(first, first + delta, attributes, data[: 12 + length]))
        data = data[12 + length :]
    return found


def on_disk(broker: Broker, log_partition: LogPartition) -> bytes:
    segments = sorted(Path(broker.data_dir, str(log_partition)).glob("*.log"))
    return b"".join(segment.read_bytes() for segment in segments)


def create(broker: Broker, topic: str) -> LogPartition:
    create_topic(broker.bootstrap, topic, 1)
    return LogPartition(topic, 0)


def produce(broker: Broker, topic: str, values: Iterable[bytes], **settings: str | int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 50, **settings})
    for value in values:
        producer.produce(topic, value, key=value[:8], partition=0)
    assert producer.flush(120) == 0


def values(count: int) -> list[bytes]:
    return [b"%08d" % number + b"abcdefgh" * (number % 40) for number in range(count)]


def read(connection: KafkaConnection, log_partition: LogPartition, start: int, end: int, max_bytes: int) -> bytes:
    return b"".join(fetch(connection, log_partition, OffsetRange(start, end), max_bytes))


@pytest.fixture(scope="module")
def log(broker: Broker) -> LogPartition:
    """A partition with batches of every codec, 2,500 records in all."""
    log_partition = create(broker, "fetched-codecs")
    for codec in CODECS:
        produce(broker, log_partition.topic, values(500), **{"compression.type": codec})
    return log_partition


@pytest.fixture(scope="module")
def plain(broker: Broker) -> KafkaConnection:
    return KafkaConnection(bootstrap=broker.bootstrap, request_timeout_ms=TIMEOUT_MS)


def sasl(broker: Broker, user: str, mechanism: str = "PLAIN", bootstrap: str = "", **more: str) -> KafkaConnection:
    names = {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": PASSWORDS[user]}
    settings = {"security_protocol": "SASL_PLAINTEXT", **names, **more}
    return KafkaConnection(bootstrap=bootstrap or broker.sasl_bootstrap, request_timeout_ms=TIMEOUT_MS, **settings)


@pytest.mark.parametrize("max_bytes", [1, 10_000, 16 << 20])
def test_a_fetched_log_is_the_log_on_disk_byte_for_byte(
    broker: Broker, plain: KafkaConnection, log: LogPartition, max_bytes: int
) -> None:
    disk = on_disk(broker, log)
    pieces = list(fetch(plain, log, OffsetRange(0, 2_500), max_bytes))
    assert b"".join(pieces) == disk
    assert {CODECS[each.attributes & 7] for each in batches(disk)} == set(CODECS)
    assert len(pieces) == {1: len(batches(disk)), 16 << 20: 1}.get(max_bytes, len(pieces))
    for piece in pieces:
        whole = batches(piece)
        assert b"".join(each.data for each in whole) == piece
        assert len(whole) == 1 or len(piece) <= max_bytes


@pytest.mark.parametrize("max_bytes", [3_000, 16 << 20])
@pytest.mark.parametrize(("start", "end"), [(0, 1), (17, 18), (75, 1_333), (499, 501), (1_001, 2_500), (2_499, 2_500)])
def test_offsets_inside_batches_bring_those_batches(
    broker: Broker, plain: KafkaConnection, log: LogPartition, start: int, end: int, max_bytes: int
) -> None:
    expected = [each.data for each in batches(on_disk(broker, log)) if each.last >= start and each.first < end]
    assert read(plain, log, start, end, max_bytes) == b"".join(expected)


def test_ranges_side_by_side_are_the_whole(broker: Broker, plain: KafkaConnection, log: LogPartition) -> None:
    disk = on_disk(broker, log)
    borders = [0, 1, 49, 50, 51, 333, 1_000, 1_777, 2_499, 2_500]
    parts = [read(plain, log, start, end, 5_000) for start, end in pairwise(borders)]
    found = {each.first: each.data for part in parts for each in batches(part)}
    assert b"".join(found[first] for first in sorted(found)) == disk
    at_batches = [*(each.first for each in batches(disk)[::7]), 2_500]
    assert b"".join(read(plain, log, start, end, 5_000) for start, end in pairwise(at_batches)) == disk


def test_segments_follow_one_another(broker: Broker, plain: KafkaConnection) -> None:
    admin = kafka_admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = kafka_admin.NewTopic("fetched-segments", 1, 1, config={"segment.bytes": str(1 << 20)})
    admin.create_topics([topic])["fetched-segments"].result()
    log_partition = LogPartition("fetched-segments", 0)
    produce(broker, log_partition.topic, [bytes(2_000)] * 2_000)
    assert len(list(Path(broker.data_dir, str(log_partition)).glob("*.log"))) > 2
    assert read(plain, log_partition, 0, 2_000, 300_000) == on_disk(broker, log_partition)


def test_open_aborted_and_committed_transactions_and_their_markers_are_there(
    broker: Broker, plain: KafkaConnection
) -> None:
    log_partition = create(broker, "fetched-transactions")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "fetched-transactions"})
    producer.init_transactions(120)
    for end in (producer.commit_transaction, producer.abort_transaction, None):
        producer.begin_transaction()
        for value in values(20):
            producer.produce(log_partition.topic, value)
        producer.flush(120)
        if end:
            end(120)
    assert describe(plain, [log_partition.topic]).ranges == {log_partition: OffsetRange(0, 62)}
    disk = on_disk(broker, log_partition)
    assert read(plain, log_partition, 0, 62, 16 << 20) == disk
    assert [each.first for each in batches(disk) if each.attributes & CONTROL] == [20, 41]
    producer.abort_transaction(120)


def test_offset_commits_are_described_and_fetched_as_they_are(broker: Broker, plain: KafkaConnection) -> None:
    subject = create(broker, "fetched-commits")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "fetched-commits"})
    commit(consumer, TopicPartition(subject.topic, 0, 7))
    before = watermarks(consumer)
    extent = describe(plain, LOG_TOPICS)
    after = watermarks(consumer)
    assert extent.identity == broker.cluster_id
    commits = {where: offsets for where, offsets in extent.ranges.items() if where.topic == OFFSETS_TOPIC}
    assert list(commits) == list(before)
    for where, (start, end) in commits.items():
        assert before[where].start <= start <= after[where].start
        assert before[where].end <= end <= after[where].end  # other tests' groups may commit meanwhile
    consumer.close()
    assert any(offsets.end > offsets.start for offsets in commits.values())
    for where, offsets in commits.items():
        fetched = batches(read(plain, where, *offsets, 16 << 20))
        assert fetched == [each for each in batches(on_disk(broker, where)) if each.first < offsets.end]


def commit(consumer: Consumer, offset: TopicPartition) -> None:
    while True:
        try:
            consumer.commit(offsets=[offset], asynchronous=False)
        except KafkaException as refused:
            if refused.args[0].code() not in {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}:
                raise
            time.sleep(0.05)  # the first commit of all makes the topic, and its partitions' coordinators start
        else:
            return


def watermarks(consumer: Consumer) -> dict[LogPartition, OffsetRange]:
    ends = [consumer.get_watermark_offsets(TopicPartition(OFFSETS_TOPIC, number), timeout=120) for number in range(50)]
    return {LogPartition(OFFSETS_TOPIC, number): OffsetRange(*offsets) for number, offsets in enumerate(ends)}


def test_missing_topics_are_omitted(plain: KafkaConnection, log: LogPartition) -> None:
    assert describe(plain, [log.topic, "fetched-nowhere"]).ranges == {log: OffsetRange(0, 2_500)}
    for missing in (LogPartition("fetched-nowhere", 0), LogPartition(log.topic, 5)):
        with pytest.raises(LogUnavailable, match=f"no partition {missing}"):
            list(fetch(plain, missing, OffsetRange(0, 1)))


def test_deleted_records_are_reported(broker: Broker, plain: KafkaConnection) -> None:
    log_partition = create(broker, "fetched-deleted")
    produce(broker, log_partition.topic, values(100))
    admin = kafka_admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    before = TopicPartition(log_partition.topic, 0, 60)
    admin.delete_records([before])[before].result()
    assert describe(plain, [log_partition.topic]).ranges == {log_partition: OffsetRange(60, 100)}
    with pytest.raises(LogUnavailable, match="does not contain offset 59, only 60 to 100"):
        list(fetch(plain, log_partition, OffsetRange(59, 100)))
    assert batches(read(plain, log_partition, 60, 100, 16 << 20))[-1].last == 99


@pytest.mark.parametrize("mechanism", SASL)
@pytest.mark.parametrize("tls", [False, True])
def test_sasl_authentication_with_and_without_tls(
    broker: Broker, log: LogPartition, mechanism: str, tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    more = {"security_protocol": "SASL_SSL", "ssl_ca": str(broker.certificate)} if tls else {}
    connection = sasl(broker, "admin", mechanism, broker.sasl_ssl_bootstrap if tls else broker.sasl_bootstrap, **more)
    assert describe(connection, [log.topic]).ranges == {log: OffsetRange(0, 2_500)}
    assert read(connection, log, 0, 2_500, 20_000) == on_disk(broker, log)
    assert caplog.records == []


def test_tls_alone(broker: Broker, log: LogPartition) -> None:
    authority = str(broker.certificate)
    connection = KafkaConnection(
        bootstrap=broker.ssl_bootstrap, security_protocol="SSL", ssl_ca=authority, request_timeout_ms=TIMEOUT_MS
    )
    assert read(connection, log, 0, 2_500, 20_000) == on_disk(broker, log)
    with pytest.raises(
        LogUnavailable, match=r"certificate of the broker is not trusted .*local issuer.*ssl\.ca\.location"
    ):
        describe(KafkaConnection(bootstrap=broker.ssl_bootstrap, security_protocol="SSL"), [log.topic])


@pytest.mark.parametrize("mechanism", SASL)
def test_wrong_password_is_reported(broker: Broker, log: LogPartition, mechanism: str) -> None:
    wrong = sasl(broker, "admin", mechanism, sasl_password="hush")  # noqa: S106 - made up
    for attempt in (lambda: describe(wrong, [log.topic]), lambda: list(fetch(wrong, log, OffsetRange(0, 1)))):
        with pytest.raises(LogUnavailable, match=rf"sasl\.password is wrong for {mechanism}") as failed:
            attempt()
        assert "hush" not in str(failed.value)


def test_wrong_security_protocol_is_reported(broker: Broker, log: LogPartition) -> None:
    def failure(bootstrap: str, protocol: str) -> str:
        user = {"sasl_mechanism": "PLAIN", "sasl_username": "admin", "sasl_password": "s"} if "SASL" in protocol else {}
        connection = KafkaConnection(
            bootstrap=bootstrap, security_protocol=protocol, request_timeout_ms=TIMEOUT_MS, **user
        )
        with pytest.raises(LogUnavailable) as failed:
            describe(connection, [log.topic])
        return str(failed.value)

    assert "may not use PLAINTEXT" in failure(broker.ssl_bootstrap, "PLAINTEXT")
    assert "may not use PLAINTEXT" in failure(broker.sasl_bootstrap, "PLAINTEXT")
    assert "does not use SASL" in failure(broker.bootstrap, "SASL_PLAINTEXT")
    assert "security.protocol" in failure(broker.bootstrap, "SSL")


def test_missing_acl_is_reported(broker: Broker) -> None:
    log_partition = create(broker, "fetched-rights")
    produce(broker, log_partition.topic, values(5))
    reader = sasl(broker, "reader")
    denied = "user reader is not authorized to read topic fetched-rights: .*READ and DESCRIBE"
    with pytest.raises(LogUnavailable, match=denied):
        describe(reader, [log_partition.topic])
    with pytest.raises(LogUnavailable, match=denied):
        list(fetch(reader, log_partition, OffsetRange(0, 5)))

    allow(broker.bootstrap, kafka_admin.ResourceType.TOPIC, log_partition.topic, kafka_admin.AclOperation.DESCRIBE)
    assert describe(reader, [log_partition.topic]).ranges == {log_partition: OffsetRange(0, 5)}
    with pytest.raises(LogUnavailable, match=denied):
        list(fetch(reader, log_partition, OffsetRange(0, 5)))

    allow(broker.bootstrap, kafka_admin.ResourceType.TOPIC, log_partition.topic, kafka_admin.AclOperation.READ)
    assert read(reader, log_partition, 0, 5, 16 << 20) == on_disk(broker, log_partition)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_closing_midway_ends_the_thread(broker: Broker, log: LogPartition, protocol: str) -> None:
    encrypted = {"security_protocol": "SSL", "bootstrap": broker.ssl_bootstrap, "ssl_ca": str(broker.certificate)}
    connection = KafkaConnection(**encrypted if protocol == "SSL" else {"bootstrap": broker.bootstrap})
    pieces = fetch(connection, log, OffsetRange(0, 2_500), 1_000)
    assert next(pieces) == batches(on_disk(broker, log))[0].data
    assert "offsetlake-kafka" in [each.name for each in threading.enumerate()]
    pieces.close()
    assert "offsetlake-kafka" not in [each.name for each in threading.enumerate()]
