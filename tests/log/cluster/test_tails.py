"""The tails of live log partitions equal those in the broker's own folder, in a few requests."""

import asyncio
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest
from confluent_kafka import Producer

from offsetlake.errors import LogUnavailable
from offsetlake.log.cluster import tails as live
from offsetlake.log.cluster.cluster import BrokerConnections
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.cluster.epoch_requests import EpochEnds, UnsupportedError
from offsetlake.log.disk import tails as disk
from offsetlake.log.positions import LogPartition
from offsetlake.log.tails import Tail, TailQuery
from support.broker.broker import Broker
from support.broker.workload import create_topic

pytestmark = pytest.mark.broker

TOPIC, PARTITIONS, BATCHES = "tails", 50, 3


@pytest.fixture(scope="module")
def connection(broker: Broker) -> KafkaConnection:
    """A broker with 50 partitions of 3 batches; every tenth partition ends with one that is larger than a response."""
    create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    for _ in range(BATCHES):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 200})
        for partition in range(PARTITIONS):
            size = 3 * live.TAIL_BYTES if partition % 10 == 0 else 100
            for _ in range(2):
                producer.produce(TOPIC, os.urandom(size), partition=partition)
        assert producer.flush(120) == 0
    return KafkaConnection(bootstrap=broker.bootstrap, request_timeout_ms=120_000)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of requests by kind."""
    counts: Counter[str] = Counter()
    send = BrokerConnections.send

    async def counted(self: BrokerConnections, address: Any, request: Any, seconds: float | None = None) -> Any:
        counts[type(request).__name__] += 1
        return await send(self, address, request, seconds)

    monkeypatch.setattr(BrokerConnections, "send", counted)
    return counts


def queries(end: int, epoch: int | None = None) -> list[TailQuery]:
    return [TailQuery(LogPartition(TOPIC, partition), end, epoch) for partition in range(PARTITIONS)]


def test_tails_are_those_in_the_folder(broker: Broker, connection: KafkaConnection, sent: Counter[str]) -> None:
    found = live.read_tails(connection, queries(2 * BATCHES, 0))
    assert found == disk.read_tails(Path(broker.data_dir), queries(2 * BATCHES, 0))
    assert all(tail.checksum is not None and tail.leader_epoch == 0 for tail in found)
    assert len({tail.checksum for tail in found}) == PARTITIONS
    assert sent == {"_TopicMetadata": 1, "FetchRequest": 1 + PARTITIONS // 10 - 1}  # the first needs no second request


def test_earlier_offsets(broker: Broker, connection: KafkaConnection) -> None:
    found = live.read_tails(connection, queries(4))
    on_disk = disk.read_tails(Path(broker.data_dir), queries(4))
    assert [replace(tail, next_epoch=0) for tail in found] == on_disk
    assert [tail.next_epoch for tail in found[:2]] == [None, 0]  # a large batch may be the only one of a response
    assert all(tail.spanning == (2, 4) and tail.checksum is None for tail in live.read_tails(connection, queries(3)))
    with pytest.raises(LogUnavailable, match="OFFSET_OUT_OF_RANGE"):
        live.read_tails(connection, queries(100))


def test_end_of_a_leader_epoch_is_asked_where_the_batch_does_not_show_it(
    connection: KafkaConnection, sent: Counter[str]
) -> None:
    ends = {tail.epoch_end for tail in live.read_tails(connection, queries(3, 0))}
    assert ends == {2 * BATCHES}
    assert sent["EpochEnds"] == 1
    assert {tail.epoch_end for tail in live.read_tails(connection, queries(3, 7))} == {0}  # there is no such epoch yet


def test_broker_without_the_request_leaves_ends_of_leader_epochs_unknown(
    connection: KafkaConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for versions in ({}, {23: (0, 1)}, {23: (4, 4)}):
        with pytest.raises(UnsupportedError):
            EpochEnds([]).prepare(versions)
    monkeypatch.setattr(live, "EpochEnds", lambda _: _Unsupported())
    assert {tail.epoch_end for tail in live.read_tails(connection, queries(3, 0))} == {None}


class _Unsupported:
    def prepare(self, _versions: dict[int, tuple[int, int]]) -> None:
        raise UnsupportedError


def test_partition_that_ends_with_nothing_has_no_tail(
    connection: KafkaConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction can remove the last batches: the broker then answers without any, even for a single partition."""
    sent_to = BrokerConnections.send

    async def emptied(self: BrokerConnections, address: Any, request: Any, seconds: float | None = None) -> Any:
        response = await sent_to(self, address, request, seconds)
        if isinstance(request, FetchRequest):
            response.topics = [
                (topic, [(*fetched[:-1], b"") for fetched in partitions]) for topic, partitions in response.topics
            ]
        return response

    monkeypatch.setattr(BrokerConnections, "send", emptied)
    assert live.read_tails(connection, queries(6, 0)[:2]) == [Tail(epoch_end=6)] * 2


def test_nothing_is_asked_without_queries(connection: KafkaConnection) -> None:
    assert asyncio.run(live._read_tails(connection, [])) == []
