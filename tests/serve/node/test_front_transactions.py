"""Transactions of the cluster that contain offsets: committed, aborted, timed out, fenced and interrupted ones."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from offsetlake.kafka import error_codes
from offsetlake.serve.protocol import api_keys as apis
from support.broker.workload import create_topic, simple_commit
from support.serve.adopted import Adopted, committed, until
from support.serve.kio_requests import ask

pytestmark = pytest.mark.long  # one broker of its own, whose groups are adopted

SOURCE, RESULT, SECONDS = "eos-source", "eos-result", 120
RECORDS, BATCH = 200, 20


@pytest.fixture(scope="module")
def adopted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adopted]:
    cluster = Adopted(
        tmp_path_factory.mktemp("eos"), **{"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    )
    with cluster.broker as broker:
        for topic in (SOURCE, RESULT):
            create_topic(broker.bootstrap, topic, 1)
        source = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(RECORDS):
            source.produce(SOURCE, str(number))
        assert source.flush(SECONDS) == 0
        simple_commit(broker.bootstrap, "creates-the-topic", {(SOURCE, 0): 0})
        code, output = cluster.adopt("--execute")
        assert code == 0, output
        yield cluster


def producer_of(adopted: Adopted, name: str, timeout_ms: int = 60_000) -> Producer:
    settings = {"transactional.id": name, "transaction.timeout.ms": timeout_ms}
    producer = Producer({"bootstrap.servers": adopted.broker.bootstrap} | settings)
    producer.init_transactions(SECONDS)
    return producer


def consumer_of(adopted: Adopted, group: str, topic: str = SOURCE, **more: Any) -> Consumer:
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": adopted.broker.bootstrap, "group.id": group} | settings | more)
    consumer.subscribe([topic])
    return consumer


def member_of(adopted: Adopted, group: str) -> Consumer:
    """Return a consumer that has joined its group, and stays a member while the process is restarted."""
    consumer = consumer_of(adopted, group, **{"session.timeout.ms": 300_000})
    while (message := consumer.poll(SECONDS)) is not None and message.error():
        pass
    assert message is not None
    return consumer


def consumed(consumer: Consumer) -> list[Message]:
    """Return the next records.

    Raises:
        KafkaException: Consuming has failed.
    """
    messages = consumer.consume(BATCH, 10)
    for error in (message.error() for message in messages):
        if error is not None:
            raise KafkaException(error)
    return messages


def send(producer: Producer, consumer: Consumer, offset: int) -> None:
    """Add an offset to the transaction, as a consume-transform-produce loop does."""
    offsets = [TopicPartition(SOURCE, 0, offset)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)


def offset_of(adopted: Adopted, group: str) -> int | None:
    return committed(adopted.broker.bootstrap, [group])[group].get((SOURCE, 0))


def stable_error(adopted: Adopted, group: str) -> int:
    """Return the error of a fetch of the offset of a group that requires stable offsets."""
    topics = [{"name": SOURCE, "partition_indexes": [0]}]
    groups = [{"group_id": group, "topics": topics, "member_id": None, "member_epoch": -1}]
    answer = ask(f"127.0.0.1:{adopted.port}", apis.OFFSET_FETCH, 8, require_stable=True, groups=groups)
    return int(answer["groups"][0]["topics"][0]["partitions"][0]["error_code"])


def test_committed_and_aborted_offsets(adopted: Adopted) -> None:
    with adopted.serving():
        consumer, producer = member_of(adopted, "outcomes"), producer_of(adopted, "outcomes")
        for offset, commits, expected in ((5, True, 5), (7, False, 5), (9, True, 9)):
            producer.begin_transaction()
            send(producer, consumer, offset)
            assert offset_of(adopted, "outcomes") != offset
            assert stable_error(adopted, "outcomes") == error_codes.UNSTABLE_OFFSET_COMMIT
            (producer.commit_transaction if commits else producer.abort_transaction)(SECONDS)
            until(lambda: offset_of(adopted, "outcomes"), expected)
        consumer.close()


def test_transactions_that_time_out_and_producers_that_are_fenced(adopted: Adopted) -> None:
    with adopted.serving():
        consumer = member_of(adopted, "fenced")
        slow = producer_of(adopted, "slow", timeout_ms=5_000)
        slow.begin_transaction()
        send(slow, consumer, 3)
        until(lambda: stable_error(adopted, "fenced"), error_codes.NONE)  # the coordinator has aborted the transaction
        assert offset_of(adopted, "fenced") is None
        with pytest.raises(KafkaException):
            slow.commit_transaction(SECONDS)
        first = producer_of(adopted, "twice")
        first.begin_transaction()
        send(first, consumer, 4)
        second = producer_of(adopted, "twice")  # aborts the transaction of the first
        second.begin_transaction()
        send(second, consumer, 6)
        with pytest.raises(KafkaException):
            first.commit_transaction(SECONDS)
        second.commit_transaction(SECONDS)
        until(lambda: offset_of(adopted, "fenced"), 6)
        consumer.close()


def test_new_transactions_add_the_group_and_old_ones_have_to(adopted: Adopted) -> None:
    """TxnOffsetCommit 5 adds the partition of the group to the transaction; versions before are refused without it."""
    with adopted.serving():
        bootstrap, name = adopted.broker.bootstrap, "versions"

        def settled(api: int, version: int, **values: Any) -> dict[str, Any]:
            """Repeat a request until the coordinator is available and the transaction before it is complete."""
            for _ in range(10 * SECONDS):
                answer = ask(bootstrap, api, version, **values)
                if answer["error_code"] not in {
                    error_codes.CONCURRENT_TRANSACTIONS,
                    error_codes.COORDINATOR_LOAD_IN_PROGRESS,
                    error_codes.COORDINATOR_NOT_AVAILABLE,
                    error_codes.NOT_COORDINATOR,
                }:
                    return answer
                asyncio.run(asyncio.sleep(0.1))  # the interval between polls
            raise AssertionError(answer)

        settled(apis.FIND_COORDINATOR, 3, key=name, key_type=1)
        started = settled(
            apis.INIT_PRODUCER_ID, 5, transactional_id=name, transaction_timeout=timedelta(minutes=1),
            producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        producer = {"producer_id": started["producer_id"], "producer_epoch": started["producer_epoch"]}
        partitions = [{"partition_index": 0, "committed_offset": 8, "committed_metadata": None}]
        values = {"group_id": "versions", "transactional_id": name, "generation_id": -1} | producer
        codes = [
            ask(f"127.0.0.1:{adopted.port}", apis.TXN_OFFSET_COMMIT, version, **values,
                topics=[{"name": SOURCE, "partitions": partitions}])["topics"][0]["partitions"][0]["error_code"]
            for version in (3, 4, 5)
        ]  # fmt: skip
        assert codes == [error_codes.INVALID_TXN_STATE, error_codes.TRANSACTION_ABORTABLE, error_codes.NONE]
        assert offset_of(adopted, "versions") is None
        settled(apis.END_TXN, 5, transactional_id=name, committed=True, **producer)
        until(lambda: offset_of(adopted, "versions"), 8)


def test_markers_of_an_older_coordinator_or_for_other_partitions_are_refused(adopted: Adopted) -> None:
    with adopted.serving() as serving:

        def write(
            producer_id: int, coordinator_epoch: int, topic: str = "__consumer_offsets", partition: int = 0
        ) -> int:
            topics = [{"name": topic, "partition_indexes": [partition]}]
            marker = {"producer_id": producer_id, "producer_epoch": 0, "transaction_result": False, "topics": topics}
            marker |= {"coordinator_epoch": coordinator_epoch}
            answer = ask(serving.bootstrap, apis.WRITE_TXN_MARKERS, 1, markers=[marker])
            return int(answer["markers"][0]["topics"][0]["partitions"][0]["error_code"])

        fenced, unknown = error_codes.TRANSACTION_COORDINATOR_FENCED, error_codes.UNKNOWN_TOPIC_OR_PARTITION
        assert [write(10**9, epoch) for epoch in (3, 3, 2, 4)] == [0, 0, fenced, 0]
        assert (write(10**9, 4, SOURCE), write(10**9, 4, partition=99)) == (unknown, unknown)


def test_restarts_while_transactions_are_open(adopted: Adopted) -> None:
    """Killed before the end of a transaction, the process gets the marker after its restart."""
    for killed, commits in ((False, False), (True, True)):
        group = f"restart-{killed}-{commits}"
        with adopted.serving() as serving:
            consumer, producer = member_of(adopted, group), producer_of(adopted, group)
            producer.begin_transaction()
            send(producer, consumer, 11)
            if killed:
                serving.kill()
            else:
                serving.stop()
        (producer.commit_transaction if commits else producer.abort_transaction)(SECONDS)
        with adopted.serving():
            until(lambda: offset_of(adopted, group), 11 if commits else None)  # noqa: B023
            # A producer of librdkafka does not reconnect to a group coordinator that Metadata lacked for a while.
            producer = producer_of(adopted, group)
            producer.begin_transaction()
            send(producer, consumer, 12)
            producer.commit_transaction(SECONDS)
            until(lambda: offset_of(adopted, group), 12)  # noqa: B023
            consumer.close()


def test_each_result_is_produced_once_while_the_process_is_killed(adopted: Adopted, tmp_path: Path) -> None:
    """A pipeline that starts again after each error produces each record exactly once."""
    serving = adopted.serving()
    serving.__enter__()
    kills, done = iter(range(1, RECORDS // BATCH, 3)), 0
    kill_at = next(kills)
    consumer, producer = consumer_of(adopted, "once"), producer_of(adopted, "once")
    try:
        for _ in range(20 * RECORDS // BATCH):
            try:
                messages = consumed(consumer)
                if not messages and offset_of(adopted, "once") == RECORDS:
                    break
                producer.begin_transaction()
                for message in messages:
                    producer.produce(RESULT, message.value())
                producer.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), SECONDS
                )
                done += 1
                restarted = done == kill_at
                if restarted:
                    serving.kill()
                    serving = adopted.serving()
                    serving.__enter__()
                    kill_at = next(kills, -1)
                producer.commit_transaction(SECONDS)
                if restarted:  # as in the test of restarts
                    producer = producer_of(adopted, "once")
            except KafkaException:  # begin again from the committed offsets
                consumer.close()
                consumer, producer = consumer_of(adopted, "once"), producer_of(adopted, "once")
    finally:
        consumer.close()
        serving.stop()
    with adopted.serving():
        assert sorted(results_of(adopted)) == [*range(RECORDS)]
    assert kill_at == -1


def results_of(adopted: Adopted) -> list[int]:
    """Return the committed results: all up to the first end of the topic after at least RECORDS of them.

    The last transaction can be incomplete for a moment after it was committed.
    """
    consumer, values = consumer_of(adopted, "results", RESULT, **{"enable.partition.eof": True}), list[int]()
    while (message := consumer.poll(SECONDS)) is not None:
        error = message.error()
        if error is None:
            values.append(int(message.value() or b""))
        elif error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        elif len(values) >= RECORDS:
            break
    consumer.close()
    return values
