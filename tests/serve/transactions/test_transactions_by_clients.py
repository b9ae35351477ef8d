"""Transactions of real clients, of a server that is killed, and of a log that moves to a broker and back."""

import asyncio
import contextlib
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import OffsetAndMetadata
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from offsetlake.kafka.records.coordinator_records import TRANSACTIONS_TOPIC
from support.broker import workload
from support.broker.broker import Broker, java
from support.broker.data_folder import copy_log, put_back
from support.serve.serving import Serving
from support.serve.transaction_comparison import PARTITIONS, TOPIC, Side

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SECONDS = 120
PROGRAM = Path(__file__).parent / "java" / "SendOffsets.java"


def by_confluent(bootstrap: str) -> Iterator[Any]:
    group, side = "by-confluent", Side(bootstrap)
    asked = {"bootstrap.servers": bootstrap, "transactional.id": group}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer, newer = Producer(asked), Producer(asked)
    producer.init_transactions(SECONDS)
    for offset, commits in ((5, True), (6, False), (7, True)):
        producer.begin_transaction()
        sent = [TopicPartition(TOPIC, 0, offset), TopicPartition(TOPIC, 3, offset)]
        producer.send_offsets_to_transaction(sent, consumer.consumer_group_metadata(), SECONDS)
        yield side.fetched(group, stable=True)
        (producer.commit_transaction if commits else producer.abort_transaction)(SECONDS)
        yield side.settled(group)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 9)], consumer.consumer_group_metadata(), SECONDS)
    newer.init_transactions(SECONDS)
    try:
        producer.commit_transaction(SECONDS)
    except KafkaException as error:
        yield error.args[0].code(), error.args[0].fatal()
    yield side.settled(group)
    consumer.close()


def by_aiokafka(bootstrap: str) -> Iterator[Any]:
    yield from asyncio.run(_by_aiokafka(bootstrap))


async def _by_aiokafka(bootstrap: str) -> list[Any]:
    group, side, said = "by-aiokafka", Side(bootstrap), []
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=group)
    await producer.start()
    for offset, commits in ((5, True), (6, False), (7, True)):
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction(
            {AioTopicPartition(TOPIC, 1): OffsetAndMetadata(offset, "said")}, group
        )
        said.append(side.fetched(group, stable=True))
        await (producer.commit_transaction() if commits else producer.abort_transaction())
        said.append(side.settled(group))
    await producer.stop()
    return said


def by_java(bootstrap: str) -> Iterator[Any]:
    group, other, side = "by-java", "by-java-too", Side(bootstrap)
    steps = [f"{group}:{TOPIC}:{at}:{offset}" for at, offset in ((0, 5), (0, 6), (1, 7), (0, 8), (2, 9))]
    steps = [f"{of}:{how}" for of, how in zip(steps, ("commit", "abort", "commit", "zombie", "commit"), strict=True)]
    yield _java(bootstrap, group, *steps[:4])
    yield side.settled(group)
    yield _java(bootstrap, group, steps[4], f"{other}:{TOPIC}:0:1:open")
    yield side.settled(group), side.fetched(other, stable=True)
    side.init(group)  # a new producer ends the open transaction
    yield side.settled(other)


def _java(bootstrap: str, *arguments: str) -> list[str]:
    command = java(str(PROGRAM), bootstrap, *arguments)
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=400).stdout.splitlines()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("by-clients")
    with Serving(folder / "lake", folder / "log", topics={TOPIC: PARTITIONS}) as serving:
        yield serving.bootstrap


@pytest.mark.long
@pytest.mark.parametrize("client", [by_confluent, by_aiokafka, by_java])
def test_producer_gets_the_same_results_as_from_a_broker(
    broker: Broker, served: str, client: Callable[[str], Iterator[Any]]
) -> None:
    workload.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    theirs, ours = list(client(broker.bootstrap)), list(client(served))
    for number, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        assert our == their, number


class Committer(threading.Thread):
    """Commits increasing offsets of two groups together until the server is killed."""

    def __init__(self, bootstrap: str, name: str, first: int) -> None:
        super().__init__()
        self._address, self._id = bootstrap, name
        self.sent = self.acknowledged = first - 1

    def run(self) -> None:
        with contextlib.suppress(EOFError, ConnectionError):
            side = Side(self._address)
            side.init(self._id)
            while True:
                self.sent += 1
                for group in groups_of(self._id):
                    assert side.commit(self._id, group, self.sent, 5) == [(0, 0)]
                assert side.end(self._id, 5, commits=True)[-1] == 0
                self.acknowledged += 1


def groups_of(name: str) -> list[str]:
    return [f"{name}-first", f"{name}-second"]


@pytest.mark.long
def test_transactions_are_atomic_if_the_server_is_killed_under_load(tmp_path: Path) -> None:
    chosen, known = random.Random(7), {f"killed-{number}": (0, 0) for number in range(4)}
    for _ in range(3):
        with Serving(tmp_path / "lake", tmp_path / "log") as serving:
            side = Side(serving.bootstrap)
            for name, (acknowledged, sent) in known.items():
                side.init(name)
                found = {max(side.settled(group)[0][0], 0) for group in groups_of(name)}
                assert len(found) == 1, f"{name} has {found}: a transaction was applied in part"
                assert acknowledged <= max(found) <= sent
                known[name] = max(found), max(found)
            committers = {name: Committer(serving.bootstrap, name, at + 1) for name, (at, _) in known.items()}
            for committer in committers.values():
                committer.start()
            while any(each.is_alive() and each.acknowledged <= known[name][1] for name, each in committers.items()):
                time.sleep(0.01)  # the interval between polls
            time.sleep(chosen.uniform(0.3, 1.0))  # the kill comes at any time of the load
            serving.kill()
            for name, committer in committers.items():
                committer.join()
                known[name] = committer.acknowledged, committer.sent
    assert all(acknowledged for acknowledged, _ in known.values())


@pytest.mark.long
def test_broker_continues_the_servers_transactions_and_the_server_the_brokers(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    lake, log, topics = tmp_path / "lake", tmp_path / "log", {TOPIC: PARTITIONS}
    with Serving(lake, log, topics=topics) as serving:
        ours = Side(serving.bootstrap)
        _begin_transactions(ours)
        offsets = _all_offsets(ours)
    with Broker(tmp_path / "broker", {"transaction.state.log.num.partitions": "50"}) as broker:
        workload.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        Side(broker.bootstrap)
        broker.stop()
        for topic in ("__consumer_offsets", TRANSACTIONS_TOPIC):
            put_back(log, broker.data_dir, topic)
        broker.start()
        theirs = Side(broker.bootstrap)
        theirs.producers = ours.producers
        assert _all_offsets(theirs) == offsets
        _end_open_transactions(theirs)
        assert theirs.settled("open-old")[0][:2] == (3, "m")
        assert theirs.settled("open-new")[1][:2] == (-1, "")
        for name in ("open-old", "open-new"):
            theirs.init(name)
            theirs.commit(name, name, 7, 5, (0, 1))
        offsets = _all_offsets(theirs)
        broker.stop()
        for topic in ("__consumer_offsets", TRANSACTIONS_TOPIC):
            copy_log(broker.data_dir, tmp_path / "back", topic)
    with Serving(tmp_path / "lake-back", tmp_path / "back", topics=topics) as serving:
        ours = Side(serving.bootstrap)
        ours.producers = theirs.producers
        assert _all_offsets(ours) == offsets
        for name in ("open-old", "open-new"):
            assert ours.end(name, 5, commits=True)[-1] == 0
            assert ours.settled(name)[0][:2] == (7, "m")


GROUPS = ("committed", "aborted", "open-old", "open-new", "plain-over")


def _begin_transactions(side: Side) -> None:
    for name in GROUPS:
        side.init(name)
        side.plain(name, 1, (2,))
    for name, commits in (("committed", True), ("aborted", False)):
        for version in (3, 5):
            side.add(name, name)
            side.commit(name, name, version, version, (0, 1))
            side.end(name, version, commits=commits)
    side.add("open-old", "open-old")
    side.commit("open-old", "open-old", 3, 3)
    side.commit("open-new", "open-new", 3, 5, (0, 1))
    side.commit("plain-over", "plain-over", 3, 5, (2, 3))
    side.plain("plain-over", 9, (2,))


def _all_offsets(side: Side) -> list[Any]:
    return [(side.fetched(name), side.fetched(name, stable=True)) for name in GROUPS]


def _end_open_transactions(side: Side) -> None:
    assert side.end("open-old", 1, commits=True)[-1] == 0
    assert side.end("open-new", 5, commits=False)[-1] == 0
    assert side.end("plain-over", 5, commits=True)[-1] == 0
    assert {at: of[0] for at, of in side.settled("plain-over").items()} == {0: -1, 1: -1, 2: 9, 3: 3}
