"""Traffic of real clients; each function documents the records that it causes in the offset commit log."""

import asyncio
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest
from aiokafka.structs import OffsetAndMetadata
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from support.broker.kafka_tools import java
from support.broker.requests import (
    BrokerRefusedError,
    DescribeTransactions,
    OffsetDelete,
    ask,
    await_coordinator,
    connection,
)

ANSWER_SECONDS = 120
OPEN_TRANSACTION_MS = 15 * 60 * 1000  # the most a broker allows: long enough to stay open for a whole test run
SESSION_MS = 15 * 60 * 1000
COMMIT_CONNECTIONS = 8  # a broker serves one request of a connection at a time, and lingers 5 ms over each commit

Offsets = Mapping[tuple[str, int], int]
"""Offset to commit by (topic, partition)."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction with offsets."""

    bootstrap: str
    transactional_id: str
    producer: Producer

    def commit(self) -> None:
        """Commit: a COMMIT marker, in the log when this returns."""
        self.producer.commit_transaction(ANSWER_SECONDS)
        asyncio.run(_await_marker(self.bootstrap, self.transactional_id))

    def abort(self) -> None:
        """Abort: an ABORT marker, in the log when this returns."""
        self.producer.abort_transaction(ANSWER_SECONDS)
        asyncio.run(_await_marker(self.bootstrap, self.transactional_id))


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Create a topic and wait until the broker knows it; no record.

    It may exist: a worker of pytest-xdist can set up the fixtures of a module twice, and modules can share a topic.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(ANSWER_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    while topic not in (known := admin.list_topics(timeout=ANSWER_SECONDS).topics) or known[topic].error:
        time.sleep(0.02)  # the interval between polls


def produce(bootstrap: str, topic: str, count: int) -> None:
    """Write that many small records into partition 0 of a topic; no record in the commit log."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(ANSWER_SECONDS) == 0


def member(
    bootstrap: str,
    group_id: str,
    offsets: Offsets,
    protocol: Literal["classic", "consumer"],
    pattern: str | None = None,
) -> Consumer:
    """Subscribe to the topics of `offsets`, or a `^pattern`, wait for the assignment, commit; return the member, alive.

    Classic: GroupMetadata twice (new, then stable), one OffsetCommit a partition. KIP-848 ("consumer"): one
    ConsumerGroup record of each kind (the current assignment perhaps again), one OffsetCommit a partition.
    A pattern to KIP-848: a ConsumerGroupRegularExpression too.
    `close()` leaves: a GroupMetadata without members, or tombstones of the member's records and a new epoch.
    """
    consumer = _consumer(bootstrap, group_id, {"group.protocol": protocol})
    assigned: list[TopicPartition] = []
    topics = sorted({topic for topic, _ in offsets}) if pattern is None else [pattern]
    consumer.subscribe(topics, on_assign=lambda _, given: assigned.extend(given))
    deadline = time.monotonic() + ANSWER_SECONDS
    while not {(given.topic, given.partition) for given in assigned} >= set(offsets):
        if time.monotonic() >= deadline:
            consumer.close()
            raise BrokerRefusedError(f"{group_id} was not assigned {sorted(offsets)} within {ANSWER_SECONDS} s")
        consumer.poll(0.1)
    _commit(consumer, _partitions(offsets))
    return consumer


def commit(member: Consumer, offsets: Offsets) -> None:
    """Commit by a member, of topics it need not be subscribed to: one OffsetCommit a partition."""
    _commit(member, _partitions(offsets))


def simple_commit(bootstrap: str, group_id: str, offsets: Offsets, leader_epoch: int = -1) -> None:
    """Assign and commit without membership: one OffsetCommit a partition, no group record."""
    asyncio.run(await_coordinator(bootstrap, [group_id]))  # librdkafka gives up a commit that comes sooner
    consumer = _consumer(bootstrap, group_id, {})
    partitions = _partitions(offsets, leader_epoch)
    consumer.assign(partitions)
    _commit(consumer, partitions)
    consumer.close()


def old_client_commit(bootstrap: str, group_id: str, offsets: Offsets, retention_ms: int) -> None:
    """Commit by OffsetCommit v3 with a retention time, to a group without members: one OffsetCommit a partition.

    Values of version 1 with an expire timestamp; with -1, as clients without such a wish send, values without one.
    """
    asyncio.run(_old_client_commit(bootstrap, group_id, offsets, retention_ms))


def connect_member(bootstrap: str, group_id: str) -> None:
    """Join as a worker of Kafka Connect does, whose protocol is none of a consumer's: GroupMetadata.

    The member stays for SESSION_MS without a heartbeat.
    """
    asyncio.run(_connect_member(bootstrap, group_id))


def aiokafka_member(bootstrap: str, group_id: str, offsets: Offsets, metadata: str) -> None:
    """Join by another client, commit with metadata, leave: GroupMetadata three times, one OffsetCommit a partition."""
    asyncio.run(_aiokafka_member(bootstrap, group_id, offsets, metadata))


def admin_reset(bootstrap: str, group_id: str, offsets: Offsets) -> None:
    """Reset offsets of a group without members: one OffsetCommit a partition, leader epoch unknown."""
    wanted = ConsumerGroupTopicPartitions(group_id, _partitions(offsets))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    answered = admin.alter_consumer_group_offsets([wanted])[group_id].result(ANSWER_SECONDS)
    for partition in answered.topic_partitions:
        if partition.error:
            raise BrokerRefusedError(f"{group_id} {partition.topic} {partition.partition}: {partition.error}")


def delete_group(bootstrap: str, group_id: str) -> None:
    """Delete a group without members: a tombstone for each offset, then the group's own."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_consumer_groups([group_id])[group_id].result(ANSWER_SECONDS)


def delete_offsets(bootstrap: str, group_id: str, topic: str, partitions: Sequence[int]) -> None:
    """Delete a group's offsets of a topic it is not subscribed to: one tombstone a partition that has an offset."""
    asyncio.run(_delete_offsets(bootstrap, group_id, topic, list(partitions)))


def open_transaction(bootstrap: str, transactional_id: str, group_id: str, offsets: Offsets) -> OpenTransaction:
    """Send offsets in a transaction and leave it open: one transactional batch with an OffsetCommit a partition.

    While it is unfinished the offsets stay pending, 15 minutes at most; the same transactional id used again aborts it.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": OPEN_TRANSACTION_MS,
        }
    )
    producer.init_transactions(ANSWER_SECONDS)
    producer.begin_transaction()
    consumer = _consumer(bootstrap, group_id, {})
    producer.send_offsets_to_transaction(_partitions(offsets), consumer.consumer_group_metadata(), ANSWER_SECONDS)
    consumer.close()
    return OpenTransaction(bootstrap, transactional_id, producer)


def committed_transaction(bootstrap: str, transactional_id: str, group_id: str, offsets: Offsets) -> None:
    """Commit offsets in a transaction: a transactional batch, then a COMMIT marker."""
    open_transaction(bootstrap, transactional_id, group_id, offsets).commit()


def aborted_transaction(bootstrap: str, transactional_id: str, group_id: str, offsets: Offsets) -> None:
    """Send offsets in a transaction and abort it: a transactional batch, then an ABORT marker."""
    open_transaction(bootstrap, transactional_id, group_id, offsets).abort()


def crossed_transactions(bootstrap: str, group_id: str, first: Offsets, second: Offsets) -> None:
    """Write the same keys in transactions of two producers; the one that wrote first commits last.

    Batch of `first`, batch of `second`, COMMIT of second, COMMIT of first. The offsets of `second` stay: their records
    are the later ones.
    """
    early = open_transaction(bootstrap, f"{group_id}-first", group_id, first)
    late = open_transaction(bootstrap, f"{group_id}-second", group_id, second)
    late.commit()
    early.commit()


def share_group(bootstrap: str, group_id: str, topic: str, count: int) -> None:
    """Read and accept `count` records of a topic from its start as a share group, and leave. Starts a JVM.

    The group's records (ShareGroup… types 10 to 15) with the member's tombstones at the end; in `__share_group_state` a
    snapshot for each partition when it is initialised, then updates.
    """
    resource = ConfigResource(
        ResourceType.GROUP,
        group_id,
        incremental_configs=[
            ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(ANSWER_SECONDS)
    server = ("--bootstrap-server", bootstrap, "--group", group_id, "--topic", topic)
    limits = ("--max-messages", str(count), "--timeout-ms", str(ANSWER_SECONDS * 1000))
    command = java("org.apache.kafka.tools.consumer.ConsoleShareConsumer", *server, *limits)
    read = subprocess.run(command, capture_output=True, check=True, encoding="utf-8")
    if f"Processed a total of {count} messages" not in read.stderr:
        raise BrokerRefusedError(f"{group_id} did not read {count} records:\n{read.stdout}{read.stderr}")


def bulk_commits(bootstrap: str, topic: str, groups: int, partitions: int, rounds: int) -> None:
    """Commit all partitions of a topic for groups `bulk-0`, `bulk-1`, … once a round, as fast as a broker takes them.

    groups x partitions x rounds OffsetCommit records, no group record; the offset committed is the round's number, from
    0. The topic must have the partitions.
    """
    asyncio.run(_bulk_commits(bootstrap, topic, groups, partitions, rounds))


def _consumer(bootstrap: str, group_id: str, settings: Mapping[str, str]) -> Consumer:
    fixed = {"bootstrap.servers": bootstrap, "group.id": group_id, "enable.auto.commit": False}
    fixed["max.poll.interval.ms"] = SESSION_MS  # tests do not poll members that only stay in their groups
    return Consumer(fixed | dict(settings))


def _partitions(offsets: Offsets, leader_epoch: int = -1) -> list[TopicPartition]:
    return [
        TopicPartition(topic, partition, offset, leader_epoch=leader_epoch)
        for (topic, partition), offset in offsets.items()
    ]


def _commit(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    for partition in consumer.commit(offsets=partitions, asynchronous=False):
        if partition.error:
            raise BrokerRefusedError(f"{partition.topic} {partition.partition}: {partition.error}")


async def _aiokafka_member(bootstrap: str, group_id: str, offsets: Offsets, metadata: str) -> None:
    topics = sorted({topic for topic, _ in offsets})
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, group_id=group_id, enable_auto_commit=False)
    async with consumer:
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=100)
        await consumer.commit(
            {AioTopicPartition(*key): OffsetAndMetadata(offset, metadata) for key, offset in offsets.items()}
        )


async def _old_client_commit(bootstrap: str, group_id: str, offsets: Offsets, retention_ms: int) -> None:
    await await_coordinator(bootstrap, [group_id])
    topics = [(topic, [(partition, offset, "")]) for (topic, partition), offset in offsets.items()]
    async with connection(bootstrap) as connected:
        response = await connected.send(OffsetCommitRequest(group_id, -1, "", retention_ms, topics))
    if any(error for _, answered in response.topics for _, error in answered):
        raise BrokerRefusedError(f"{group_id}: {response}")


async def _connect_member(bootstrap: str, group_id: str) -> None:
    instance = "worker"  # a member with a name of its own is let in at its first request
    async with connection(bootstrap) as connected:
        protocols = [("sessioned", b"")]
        join = JoinGroupRequest(group_id, SESSION_MS, SESSION_MS, "", instance, "connect", protocols)
        joined = await ask(connected, join)
        assignment = [(joined.member_id, b"")]
        await ask(connected, SyncGroupRequest(group_id, joined.generation_id, joined.member_id, instance, assignment))


async def _await_marker(bootstrap: str, transactional_id: str) -> None:
    """Return once the transaction is complete: the broker answers its end before the markers are written."""
    deadline = time.monotonic() + ANSWER_SECONDS
    async with connection(bootstrap) as connected:
        while time.monotonic() < deadline:
            response = await connected.send(DescribeTransactions(transactional_id))
            if response.transactions[0][2] in {"CompleteCommit", "CompleteAbort"}:
                return
            await asyncio.sleep(0.02)  # the interval between polls
    raise BrokerRefusedError(f"{transactional_id}: no marker within {ANSWER_SECONDS} s")


async def _delete_offsets(bootstrap: str, group_id: str, topic: str, partitions: list[int]) -> None:
    async with connection(bootstrap) as connected:
        response = await ask(connected, OffsetDelete(group_id, topic, partitions))
    refused = [(partition, error) for _, answered in response.topics for partition, error in answered if error]
    if refused:
        raise BrokerRefusedError(f"{group_id} {topic}: {refused}")


async def _bulk_commits(bootstrap: str, topic: str, groups: int, partitions: int, rounds: int) -> None:
    await await_coordinator(bootstrap, (f"bulk-{group}" for group in range(groups)))

    async def commit(first_group: int) -> None:
        async with connection(bootstrap) as connected:
            for offset in range(rounds):
                committed = [(partition, offset, "") for partition in range(partitions)]
                for group in range(first_group, groups, COMMIT_CONNECTIONS):
                    request = OffsetCommitRequest(f"bulk-{group}", -1, "", -1, [(topic, committed)])
                    response = await connected.send(request)
                    if any(error for _, answered in response.topics for _, error in answered):
                        raise BrokerRefusedError(f"bulk-{group}: {response}")

    await asyncio.gather(*(commit(first_group) for first_group in range(min(groups, COMMIT_CONNECTIONS))))
