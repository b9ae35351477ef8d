"""Kafka's own clients and tools, and those for Python, get the same results from the server as from a broker."""

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import OffsetAndMetadata as AioOffsetAndMetadata
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as PythonTopicPartition

from offsetlake.lake.lake import Lake
from offsetlake.pipeline.ingest.log_ends import record
from support.broker import workload
from support.broker.broker import Broker
from support.broker.kafka_tools import group_command
from support.long_cases import long_cases
from support.serve.serving import Serving

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC, PARTITIONS, RECORDS = "clients", 3, 60
SECONDS = 120
_TRACE = {"at", "..."}  # the first words of lines of a stack trace
_COORDINATOR = re.compile(r"127\.0\.0\.1:|\(\d+\)$")  # its address and number


@pytest.fixture(scope="module")
def bootstrap(broker: Broker) -> str:
    """A broker with a topic whose partition 0 is longer than all offsets that are committed here."""
    workload.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    workload.produce(broker.bootstrap, TOPIC, RECORDS)
    return broker.bootstrap


@pytest.fixture(
    scope="module",
    params=[pytest.param({TOPIC: PARTITIONS}, id="named"), pytest.param(None, id="any", marks=pytest.mark.long)],
)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose lake contains the log ends of the broker's topic."""
    folder = tmp_path_factory.mktemp("clients")
    with Serving(folder / "lake", folder / "log", topics=request.param) as serving:
        workload.simple_commit(serving.bootstrap, "clients-first", {(TOPIC, number): 0 for number in range(PARTITIONS)})
    ends = [[TOPIC, number, 0, RECORDS if number == 0 else 0, 1_700_000_000_000] for number in range(PARTITIONS)]
    record(Lake.open(folder / "lake"), 1, ends)
    with Serving(folder / "lake", folder / "log", topics=request.param) as serving:
        yield serving.bootstrap
        assert not [line for line in serving.said if "is no request" in line]


def by_confluent(bootstrap: str) -> Iterator[Any]:
    group, ours = "clients-confluent", [TopicPartition(TOPIC, 0, 42), TopicPartition(TOPIC, 2, 7)]
    with closing(
        Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    ) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        yield [(of.partition, of.error) for of in consumer.commit(offsets=ours, asynchronous=False)]
        asked = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        yield [(of.partition, of.offset, of.error) for of in consumer.committed(asked, timeout=SECONDS)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    yield {
        number: of.error for number, of in admin.list_topics(TOPIC, timeout=SECONDS).topics[TOPIC].partitions.items()
    }
    listed = admin.list_consumer_groups(request_timeout=SECONDS).result()
    yield [(of.group_id, of.state, of.type, of.is_simple_consumer_group) for of in listed.valid if of.group_id == group]
    yield listed.errors
    described = admin.describe_consumer_groups([group])[group].result()
    yield described.state, described.type, described.members, described.partition_assignor
    altering = ConsumerGroupTopicPartitions(group, [TopicPartition(TOPIC, 0, 3)])
    altered = admin.alter_consumer_group_offsets([altering])[group].result()
    yield [(of.partition, of.offset, of.error) for of in altered.topic_partitions]
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    yield sorted((of.topic, of.partition, of.offset) for of in offsets.topic_partitions)
    deleted = admin.delete_consumer_groups([group, "clients-nobody"])
    yield deleted[group].result()
    try:
        deleted["clients-nobody"].result()
    except KafkaException as error:
        yield error.args[0].code()


def by_kafka_python(bootstrap: str) -> Iterator[Any]:
    group, first = "clients-python", PythonTopicPartition(TOPIC, 0)
    third, missing = PythonTopicPartition(TOPIC, 2), "clients-nobody"
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    consumer.assign([first, third])
    yield consumer.commit({first: OffsetAndMetadata(42, "said", -1), third: OffsetAndMetadata(7, "", -1)})
    yield consumer.committed(first), consumer.committed(first, metadata=True), consumer.committed(third)
    consumer.close(autocommit=False)
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        listed = admin.list_groups()
        yield [of for of in listed if of["group_id"] == group]
        yield [of["group_id"] for of in admin.list_groups(states_filter=["Empty"]) if of["group_id"] == group]
        yield {name: _without_operations(described) for name, described in admin.describe_groups([group]).items()}
        yield admin.alter_group_offsets(group, {first: OffsetAndMetadata(3, "", -1)})
        yield admin.list_group_offsets({group: None})
        yield admin.delete_group_offsets(group, [third])
        yield admin.list_group_offsets({group: None})
        yield admin.delete_groups([group, missing])


def _without_operations(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "authorized_operations"}


def by_aiokafka(bootstrap: str) -> Iterator[Any]:
    yield from asyncio.run(_by_aiokafka(bootstrap))


async def _by_aiokafka(bootstrap: str) -> list[Any]:
    first, third = AioTopicPartition(TOPIC, 0), AioTopicPartition(TOPIC, 2)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id="clients-aiokafka", enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign([first, third])
        said = [await consumer.commit({first: AioOffsetAndMetadata(42, "said"), third: 7})]
        said += [await consumer.committed(of) for of in (first, third)]
    finally:
        await consumer.stop()
    return said


def by_java(bootstrap: str) -> Iterator[Any]:
    group = "clients-java"
    workload.simple_commit(bootstrap, group, {(TOPIC, 0): 42, (TOPIC, 2): 0})
    of_group, reset = ("--group", group), ("--reset-offsets", "--execute", "--group", group)
    yield [words for words in _tool(bootstrap, "--list", "--state") if words[0] == group]
    yield [words for words in _tool(bootstrap, "--list", "--type", "classic") if words[0] == group]
    yield _described(_tool(bootstrap, "--describe", *of_group))
    yield [words for words in _tool(bootstrap, "--describe", "--state", *of_group) if "coordinator" not in words]
    yield _tool(bootstrap, "--describe", "--members", *of_group)
    yield _tool(bootstrap, *reset, "--topic", f"{TOPIC}:0", "--to-offset", "50")
    yield _tool(bootstrap, *reset, "--topic", f"{TOPIC}:0", "--shift-by", "-20")
    yield _tool(bootstrap, *reset, "--all-topics", "--to-current")
    yield _described(_tool(bootstrap, "--describe", *of_group))
    yield _tool(bootstrap, "--delete-offsets", "--topic", f"{TOPIC}:2", *of_group)
    yield _tool(bootstrap, "--delete-offsets", "--topic", TOPIC, *of_group)
    yield _tool(bootstrap, "--delete", *of_group)
    yield _tool(bootstrap, "--describe", *of_group)


def _tool(bootstrap: str, *arguments: str) -> list[list[str]]:
    done = group_command(bootstrap, *arguments)
    lines = [line.split() for line in (done.out + done.err).splitlines() if line.strip()]
    told = [[word for word in words if not _COORDINATOR.match(word)] for words in lines if words[0] not in _TRACE]
    return [[str(done.code)], *sorted(told)]


def _described(lines: list[list[str]]) -> list[list[str]]:
    rows = [words for words in lines if TOPIC in words]
    assert rows
    return rows


Client = Callable[[str], Iterator[Any]]


@cache
def of_broker(client: Client, bootstrap: str) -> list[Any]:
    return list(client(bootstrap))


@pytest.mark.parametrize(
    "client",
    [by_java, *long_cases((by_confluent, by_kafka_python, by_aiokafka))],
)
def test_client_gets_the_same_results_as_from_a_broker(bootstrap: str, served: str, client: Client) -> None:
    theirs, ours = of_broker(client, bootstrap), list(client(served))
    for number, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        assert our == their, number


@pytest.mark.long
def test_reset_uses_the_log_ends_in_the_lake(tmp_path: Path) -> None:
    """A lake that was ingested from a live cluster contains the ends of topics; committed ones are served."""
    group, lake, log = "clients-known", tmp_path / "lake", tmp_path / "log"
    with Serving(lake, log) as serving:
        workload.simple_commit(serving.bootstrap, group, {(TOPIC, 0): 42})
    record(Lake.open(lake), 1, [[TOPIC, 0, 10, 60, 1_700_000_000_000]])
    reset = ("--reset-offsets", "--execute", "--group", group, "--topic", f"{TOPIC}:0")
    with Serving(lake, log) as serving:
        described = _tool(serving.bootstrap, "--describe", "--group", group)
        assert [words[3:6] for words in described if TOPIC in words] == [["42", "60", "18"]]
        for how, offset in (("--to-earliest", "10"), ("--to-latest", "60")):
            assert [words[3] for words in _tool(serving.bootstrap, *reset, how) if TOPIC in words] == [offset]
        refused = _tool(serving.bootstrap, *reset, "--to-datetime", "2026-01-01T00:00:00.000")
        assert not [words for words in refused if words[:2] == [group, TOPIC]], "a timestamp must not reset to the end"
