"""Consumers of several client libraries, and an ingest, read the served log: each record of its files, once."""

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition

from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import FinishedRun
from offsetlake.log.address import LogAddress
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.writer import appender as appender_module
from offsetlake.log.writer.appending import appending
from offsetlake.pipeline.compact.job import compact
from offsetlake.pipeline.ingest import log_ends
from offsetlake.pipeline.ingest.job import ingest
from support.broker.broker import free_ports
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, rows, state, upkeep
from support.lakes import new_lake
from support.oracle.encoders import group_log_partition
from support.oracle.log_reader import ABORT, LogRecord, read_log
from support.serve.job_socket_requests import batch, commit, key, value
from support.serve.serving import Serving
from support.serve.wire_client import WireClient

pytestmark = pytest.mark.slow

LOG, LOG_PARTITIONS = "__consumer_offsets", 50
BROKER_LOG = Path(__file__).parents[2] / "fixtures" / "broker-log"
SECONDS = 120

Read = dict[tuple[int, int], tuple[bytes | None, bytes | None, int]]
"""Key, value and timestamp by log partition and log offset."""


def plain(records: list[LogRecord]) -> Read:
    """Return the records that a consumer receives."""
    return {
        (record.log_partition, record.log_offset): (record.key, record.value, record.log_timestamp)
        for record in records
        if not record.is_control
    }


def committed(records: list[LogRecord]) -> Read:
    """Return the records that a read_committed consumer receives: without aborted ones, up to an open transaction."""
    open_transactions: dict[tuple[int, int], list[LogRecord]] = {}
    aborted: set[LogRecord] = set()
    for record in records:
        producer = record.log_partition, record.producer_id
        if record.is_control:
            ended = open_transactions.pop(producer, [])
            aborted |= {*ended} if record.control_type == ABORT else set()
        elif record.producer_id >= 0:
            open_transactions.setdefault(producer, []).append(record)
    stable: dict[int, int] = {}
    for (partition, _), (first, *_) in open_transactions.items():
        stable[partition] = min(first.log_offset, stable.get(partition, first.log_offset))
    visible = [
        record for record in records if record.log_offset < stable.get(record.log_partition, record.log_offset + 1)
    ]
    return plain([record for record in visible if record not in aborted])


def by_confluent(bootstrap: str, isolation_level: str) -> Read:
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False}
    settings |= {"isolation.level": isolation_level, "enable.partition.eof": True}
    read: Read = {}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(LOG, partition, 0) for partition in range(LOG_PARTITIONS)])
        at_end, until = set(), time.monotonic() + SECONDS
        while len(at_end) < LOG_PARTITIONS and time.monotonic() < until:
            for message in consumer.consume(1000, 0.5):
                if message.error() is None:
                    read[message.partition(), message.offset()] = message.key(), message.value(), message.timestamp()[1]
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF
                    at_end.add(message.partition())
    return read


def by_aiokafka(bootstrap: str, isolation_level: str) -> Read:
    async def read() -> Read:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation_level)
        await consumer.start()
        try:
            partitions = [AioTopicPartition(LOG, partition) for partition in range(LOG_PARTITIONS)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning()
            found: Read = {}
            end = consumer.last_stable_offset if isolation_level == "read_committed" else consumer.highwater
            behind = {*partitions}
            while behind:
                for messages in (await consumer.getmany(timeout_ms=100)).values():
                    found |= {
                        (message.partition, message.offset): (message.key, message.value, message.timestamp)
                        for message in messages
                    }
                behind = {each for each in behind if await consumer.position(each) != end(each)}
            return found
        finally:
            await consumer.stop()

    return asyncio.run(read())


def by_kafka_python(bootstrap: str, isolation_level: str) -> Read:
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation_level)) as consumer:
        partitions = [PythonTopicPartition(LOG, partition) for partition in range(LOG_PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        found: Read = {}
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            for messages in consumer.poll(100).values():
                found |= {
                    (message.partition, message.offset): (message.key, message.value, message.timestamp)
                    for message in messages
                }
        return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, Path]]:
    folder = tmp_path_factory.mktemp("readers")
    shutil.copytree(BROKER_LOG, folder / "log", ignore=shutil.ignore_patterns("meta.properties", "__share*"))
    with Serving(folder / "lake", folder / "log") as serving:
        yield serving, folder / "log"
        assert not [line for line in serving.said if "malformed request" in line or "Traceback" in line]


@pytest.mark.parametrize("read", [by_confluent, by_aiokafka, by_kafka_python])
def test_consumer_receives_all_records(served: tuple[Serving, Path], read: Callable[[str, str], Read]) -> None:
    serving, log = served
    records = read_log(log)
    assert read(serving.bootstrap, "read_uncommitted") == plain(records)
    assert read(serving.bootstrap, "read_committed") == committed(records)
    assert len(committed(records)) < len(plain(records)) < len(records)


def live(serving: Serving) -> LogAddress:
    return LogAddress(connection=KafkaConnection.from_settings({"bootstrap.servers": serving.bootstrap}))


def test_unknown_log_end_offsets_of_a_served_topic_are_noted_and_not_recorded(served: tuple[Serving, Path]) -> None:
    connection = live(served[0]).connection
    assert connection is not None
    answer = log_ends.ask(connection, {"orders"})
    assert (answer.rows, answer.asked_timestamp) == ([], None)
    assert "the log end offset of orders-0" in answer.notes[0]
    assert answer.notes[0].endswith("is unknown: the server does not know it")


def ingest_and_compact(lake: Lake, log: LogAddress) -> FinishedRun:
    """Ingest and compact; return the report of the ingest."""
    report = ingest(InProcess, lake, log, lambda _: None)
    compact(InProcess, lake, lambda _: None)
    return report


@pytest.mark.long
def test_ingest_by_fetch_equals_ingest_from_the_folder(served: tuple[Serving, Path], tmp_path: Path) -> None:
    serving, log = served
    by_folder, by_fetch = new_lake(tmp_path / "folder"), new_lake(tmp_path / "fetch")
    ingest_and_compact(by_folder, LogAddress(folder=log))
    report = ingest_and_compact(by_fetch, live(serving))
    tables = state(by_fetch)
    assert tables["offset_commits"]
    assert tables["transaction_markers"]
    assert tables == state(by_folder)
    assert not report.gaps


@pytest.mark.long
def test_ingest_records_deleted_segments_as_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender_module, "SEGMENT_BYTES", 1)  # each write begins a segment
    log, reader = tmp_path / "log", new_lake(tmp_path / "reader")
    log.mkdir()

    def write(*offsets: int) -> None:
        with appending(log, "test") as appender:
            for offset in offsets:
                appender.append(0, [batch((key("g", 0), value(offset)))])

    write(10, 11, 12)
    with Serving(tmp_path / "lake", log, log_partitions=1) as serving:
        assert not ingest_and_compact(reader, live(serving)).gaps
    write(13, 14, 15, 16)
    cycle(InProcess(), Lake.open(tmp_path / "lake"), log)
    with Serving(tmp_path / "lake", log, log_partitions=1) as serving:
        assert upkeep(Lake.open(tmp_path / "lake"), log).counts["segments_deleted"] == 6
        assert {partition.partition: tuple(ends) for partition, ends in live(serving).describe().ranges.items()} == {
            0: (6, 7)
        }
        gaps = ingest_and_compact(reader, live(serving)).gaps
    assert gaps == ((LOG, 0, 3, 6),)
    assert [row["committed_offset"] for row in rows(reader, "offsets")] == [16]


GROUPS = [f"follower-{number}" for number in range(6)]


@pytest.mark.long
def test_following_consumer_receives_each_record_once(tmp_path: Path) -> None:
    """While clients commit, and across a restart and a crash of the server."""
    log, (port,) = tmp_path / "log", free_ports(1)
    seen: list[tuple[int, int, bytes, bytes]] = []
    done, numbers = threading.Event(), count()

    def follow() -> None:
        settings = {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "followers", "enable.auto.commit": False}
        with closing(Consumer(settings | {"reconnect.backoff.max.ms": 100, "log_level": 0})) as consumer:
            consumer.assign([TopicPartition(LOG, partition, 0) for partition in range(3)])
            while not done.is_set():
                messages = [message for message in consumer.consume(100, 0.1) if not message.error()]
                seen.extend(
                    (message.partition(), message.offset(), message.key(), message.value()) for message in messages
                )

    def work(serving: Serving) -> None:
        with WireClient(serving.bootstrap) as client:
            for number in range(120):
                commit(client, GROUPS[number % len(GROUPS)], {0: next(numbers)})
                time.sleep(0.005)  # the follower reads between the commits

    follower = threading.Thread(target=follow)
    follower.start()
    with Serving(tmp_path / "lake", log, port=port, log_partitions=3) as serving:
        work(serving)
    with Serving(tmp_path / "lake", log, port=port, log_partitions=3) as serving:
        work(serving)
        serving.kill()
    with Serving(tmp_path / "lake", log, port=port, log_partitions=3) as serving:
        work(serving)
        written = [(record.log_partition, record.log_offset, record.key, record.value) for record in read_log(log)]
        until = time.monotonic() + SECONDS
        while len(seen) < len(written) and time.monotonic() < until:
            time.sleep(0.1)  # the interval between polls
    done.set()
    follower.join(SECONDS)
    assert {group_log_partition(group, 3) for group in GROUPS} == {0, 1, 2}
    assert len(written) == 3 * 120
    assert sorted(seen) == written
    for partition in range(3):
        offsets = [offset for log_partition, offset, *_ in seen if log_partition == partition]
        assert offsets == sorted(offsets)
