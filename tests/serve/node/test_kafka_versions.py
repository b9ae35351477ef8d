"""A node of a cluster of each minor version of Kafka: registration, transactions, groups and the return."""

import asyncio
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from offsetlake.kafka import error_codes
from offsetlake.serve.protocol import api_keys as apis
from support.broker.api_versions import recorded, stated
from support.broker.kafka_tools import GROUP_COMMAND, IN_FRONT_OF, compile_java, java
from support.broker.workload import create_topic, member, simple_commit
from support.serve.adopted import Adopted, committed, until
from support.serve.kio_requests import ask

pytestmark = pytest.mark.long  # a broker of each version

TOPIC, SECONDS = "versions", 120
PROGRAM = Path(__file__).parents[1] / "transactions" / "java" / "SendOffsets.java"
FIRST_CORDONING = "4.3"
BY_ID_SINCE = 10  # version of Metadata with the ids of topics
_NOT_READY = {
    error_codes.CONCURRENT_TRANSACTIONS,
    error_codes.COORDINATOR_LOAD_IN_PROGRESS,
    error_codes.COORDINATOR_NOT_AVAILABLE,
    error_codes.NOT_COORDINATOR,
}


@pytest.mark.parametrize("version", IN_FRONT_OF)
def test_transactions_and_groups_in_front_of_each_version(version: str, tmp_path: Path) -> None:
    """Several transactions in a row of an older and of a newer client; members that stay after the return."""
    adopted = Adopted(tmp_path, version=version, features=(), **{"auto.create.topics.enable": "true"})
    with adopted.broker as broker:
        assert stated(broker) == recorded(version)
        create_topic(broker.bootstrap, TOPIC, 1)
        simple_commit(broker.bootstrap, "before", {(TOPIC, 0): 1})
        code, output = adopted.adopt("--execute")
        assert code == 0, output
        with adopted.serving():
            new_topics_are_led_by_the_broker(broker.bootstrap, version)
            topics_are_created_for_clients_that_allow_it(adopted)
            by_librdkafka(broker.bootstrap)
            by_transaction_version_2(adopted)
            by_java(adopted, version, tmp_path)
            members = [member(broker.bootstrap, kind, {(TOPIC, 0): 3}, kind) for kind in ("classic", "consumer")]
            expected = committed(broker.bootstrap, ["before", "librdkafka", "version-2", "java", "classic", "consumer"])
        code, output = adopted.move("return", "--execute")
        assert code == 0, output
        until(lambda: committed(broker.bootstrap, [*expected]), expected)
        for each in members:
            each.close()
        broker.stop()
        log = (broker.folder / "broker.log").read_text(encoding="utf-8").splitlines()
    assert [line for line in log if "ERROR" in line and "Coordinator" in line] == []
    assert {group: offsets[TOPIC, 0] for group, offsets in expected.items()} == {
        "before": 1, "librdkafka": 7, "version-2": 7, "java": 7, "classic": 3, "consumer": 3,
    }  # fmt: skip


def new_topics_are_led_by_the_broker(bootstrap: str, version: str) -> None:
    """Since Kafka 4.3 at once, because the node is cordoned (KIP-1066); before, after they were moved."""
    names = [f"placed-{number}" for number in range(4)]
    for name in names:
        create_topic(bootstrap, name, 4)

    def replicas() -> set[tuple[int, ...]]:
        named = [{"topic_id": None, "name": name} for name in names]
        topics = ask(bootstrap, apis.METADATA, 12, topics=named, allow_auto_topic_creation=False)["topics"]
        return {tuple(partition["replica_nodes"]) for topic in topics for partition in topic["partitions"]}

    if version >= FIRST_CORDONING:
        assert replicas() == {(1,)}
    until(replicas, {(1,)})


def topics_are_created_for_clients_that_allow_it(adopted: Adopted) -> None:
    """As by a broker with `auto.create.topics.enable`, in versions of Metadata with and without the field for it."""

    def known(version: int, name: str, **values: Any) -> bool:
        topics = [{"topic_id": None, "name": name} if version >= BY_ID_SINCE else {"name": name}]
        (topic,) = ask(f"127.0.0.1:{adopted.port}", apis.METADATA, version, topics=topics, **values)["topics"]
        return bool(topic["error_code"] == error_codes.NONE)

    assert not known(12, "not-allowed", allow_auto_topic_creation=False)
    until(lambda: known(12, "allowed", allow_auto_topic_creation=True), expected=True)
    until(lambda: known(1, "always-allowed"), expected=True)
    assert not known(12, "not-allowed", allow_auto_topic_creation=False)


def by_librdkafka(bootstrap: str) -> None:
    """Commit, abort and commit offsets in transactions whose client adds the group, and does not change its epoch."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "librdkafka"})
    producer.init_transactions(SECONDS)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "librdkafka"})
    for offset, commits in ((5, True), (6, False), (7, True)):
        producer.begin_transaction()
        offsets = [TopicPartition(TOPIC, 0, offset)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)
        (producer.commit_transaction if commits else producer.abort_transaction)(SECONDS)
    consumer.close()


def by_transaction_version_2(adopted: Adopted) -> None:
    """Commit, abort and commit as clients of Kafka 4 do: each end of a transaction increments the epoch."""
    bootstrap, name = adopted.broker.bootstrap, "version-2"
    settled(bootstrap, apis.FIND_COORDINATOR, 3, key=name, key_type=1)
    new = {"transactional_id": name, "transaction_timeout": timedelta(minutes=1)}
    producer = settled(bootstrap, apis.INIT_PRODUCER_ID, 5, **new, producer_id=-1, producer_epoch=-1)
    for offset, commits in ((5, True), (6, False), (7, True)):
        identity = {"transactional_id": name, **{key: producer[key] for key in ("producer_id", "producer_epoch")}}
        partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": None}]
        values = {"group_id": name, "generation_id": -1, "topics": [{"name": TOPIC, "partitions": partitions}]}
        until(lambda: offset_error(adopted, **identity, **values), error_codes.NONE)  # noqa: B023
        producer = settled(bootstrap, apis.END_TXN, 5, committed=commits, **identity)
    until(lambda: committed(bootstrap, [name]), {name: {(TOPIC, 0): 7}})


def by_java(adopted: Adopted, version: str, folder: Path) -> None:
    """Commit, abort and commit by the producer of this version of Kafka, and delete a group by its tool."""
    bootstrap = adopted.broker.bootstrap
    compile_java(PROGRAM, folder, version)
    ends = [f"java:{TOPIC}:0:{offset}:{end}" for offset, end in ((5, "commit"), (6, "abort"), (7, "commit"))]
    command = java("SendOffsets", bootstrap, "java", *ends, version=version, classes=folder, log_level="OFF")
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["commit", "abort", "commit"]), done.stderr
    until(lambda: committed(bootstrap, ["java"]), {"java": {(TOPIC, 0): 7}})
    simple_commit(f"127.0.0.1:{adopted.port}", "deleted", {(TOPIC, 0): 1})
    arguments = ["--bootstrap-server", bootstrap, "--delete", "--group", "deleted"]
    command = java(GROUP_COMMAND, *arguments, version=version, log_level="OFF")
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, "was successful" in done.stdout) == (0, True), done.stdout + done.stderr


def offset_error(adopted: Adopted, **values: Any) -> int:
    answer = ask(f"127.0.0.1:{adopted.port}", apis.TXN_OFFSET_COMMIT, 5, **values)
    return int(answer["topics"][0]["partitions"][0]["error_code"])


def settled(bootstrap: str, api: int, version: int, **values: Any) -> dict[str, Any]:
    """Repeat a request until the coordinator is available and the transaction before it is complete."""
    for _ in range(10 * SECONDS):
        answer = ask(bootstrap, api, version, **values)
        if answer["error_code"] not in _NOT_READY:
            assert answer["error_code"] == error_codes.NONE
            return answer
        asyncio.run(asyncio.sleep(0.1))  # the interval between polls
    raise AssertionError(answer)
