"""A serving process as a broker of a real cluster: metadata, coordinators, groups, records, and new topics."""

import asyncio
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from kafka import KafkaConsumer

from offsetlake.kafka import error_codes
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.protocol import api_keys as apis
from support.broker.broker import Broker
from support.broker.kafka_tools import group_command, java
from support.broker.workload import aborted_transaction, create_topic, simple_commit
from support.serve.adopted import NODE, Adopted, until
from support.serve.adopted import committed as committed_offsets
from support.serve.http_client import ask as http
from support.serve.kio_requests import ask
from support.serve.serving import Serving

pytestmark = pytest.mark.long  # one broker of its own, whose groups are adopted

SECONDS = 120
TOPIC, PARTITIONS, RECORDS = "front-records", 3, 30
GROUPS = [f"adopted-{number}" for number in range(6)]
OFFSETS = {group: {(TOPIC, number % 3): number, (TOPIC, 2): 7} for number, group in enumerate(GROUPS)}


@pytest.fixture(scope="module")
def adopted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adopted]:
    """A broker with groups, which were adopted."""
    cluster = Adopted(tmp_path_factory.mktemp("front"))
    with cluster.broker as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        for group, offsets in OFFSETS.items():
            simple_commit(broker.bootstrap, group, offsets)
        aborted_transaction(broker.bootstrap, "before", GROUPS[0], {(TOPIC, 1): 99})
        code, output = cluster.adopt()
        assert (code, "Nothing was changed" in output) == (0, True), output
        code, output = cluster.adopt("--execute")
        assert code == 0, output
        yield cluster


@pytest.fixture(scope="module")
def broker(adopted: Adopted) -> Broker:
    return adopted.broker


@pytest.fixture(scope="module")
def front(adopted: Adopted) -> Iterator[Serving]:
    """A process that reads the metadata anew every second."""
    with adopted.serving() as serving:
        yield serving


@pytest.fixture(scope="module")
def records(front: Serving) -> None:
    """Records that a producer wrote which knows the address of the front only."""
    producer = Producer({"bootstrap.servers": front.bootstrap})
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


def metadata(bootstrap: str, *topics: str) -> dict[str, Any]:
    named = [{"topic_id": None, "name": name} for name in topics] or None
    return ask(bootstrap, apis.METADATA, 13, topics=named, allow_auto_topic_creation=False)


def test_offsets_are_those_before_the_adoption(broker: Broker, front: Serving) -> None:
    for bootstrap in (broker.bootstrap, front.bootstrap):
        assert committed_offsets(bootstrap, GROUPS) == OFFSETS
    shown = group_command(broker.bootstrap, "--describe", "--group", GROUPS[4]).out
    rows = sorted(line.split()[1:4] for line in shown.splitlines()[2:] if line)
    assert rows == [[TOPIC, "1", "4"], [TOPIC, "2", "7"]]


def log_leaders(broker: Broker) -> set[int]:
    """Return the leaders of the partitions of `__consumer_offsets` according to the broker."""
    topic = metadata(broker.bootstrap, "__consumer_offsets")["topics"][0]
    return {partition["leader_id"] for partition in topic["partitions"]}


def test_metadata_is_that_of_the_cluster(broker: Broker, front: Serving) -> None:
    def plain(answer: dict[str, Any]) -> dict[str, Any]:
        topics = {topic["name"]: topic for topic in answer["topics"]}
        for topic in topics.values():
            topic["partitions"].sort(key=lambda partition: partition["partition_index"])
        brokers = sorted(answer["brokers"], key=lambda node: int(node["node_id"]))
        return answer | {"topics": topics, "brokers": brokers, "controller_id": None}

    host, port = front.bootstrap.split(":")
    until(lambda: log_leaders(broker), {NODE})
    theirs = plain(metadata(broker.bootstrap, TOPIC, "__consumer_offsets"))
    until(lambda: plain(metadata(front.bootstrap, TOPIC, "__consumer_offsets")), theirs)
    assert theirs["brokers"][1] == {"node_id": NODE, "host": host, "port": int(port), "rack": None}
    described = ask(front.bootstrap, apis.DESCRIBE_CLUSTER, 2)
    assert described["cluster_id"] == broker.cluster_id
    assert [node["broker_id"] for node in described["brokers"]] == [1, NODE]
    page = {"topics": [{"name": TOPIC}], "response_partition_limit": 10, "cursor": None}
    our_page, their_page = (
        ask(bootstrap, apis.DESCRIBE_TOPIC_PARTITIONS, 0, **page) for bootstrap in (front.bootstrap, broker.bootstrap)
    )
    for answer in (our_page, their_page):
        answer["topics"][0]["topic_authorized_operations"] = 0
        for partition in answer["topics"][0]["partitions"]:
            partition |= {"eligible_leader_replicas": [], "last_known_elr": []}
    assert our_page == their_page


def test_coordinator_of_groups_is_the_front_and_of_transactions_a_broker(broker: Broker, front: Serving) -> None:
    def coordinator(bootstrap: str, kind: int, version: int = 4) -> tuple[int, int, str]:
        keys = {"key": "k"} if version < 4 else {"coordinator_keys": ["k"]}
        answer = ask(bootstrap, apis.FIND_COORDINATOR, version, key_type=kind, **keys)
        answer = answer if version < 4 else answer["coordinators"][0]
        return answer["error_code"], answer["node_id"], f"{answer['host']}:{answer['port']}"

    for version in (3, 4):
        for bootstrap in (front.bootstrap, broker.bootstrap):
            until(lambda: coordinator(bootstrap, 0, version), (error_codes.NONE, NODE, front.bootstrap))  # noqa: B023
        until(lambda: coordinator(front.bootstrap, 1, version), (error_codes.NONE, 1, broker.bootstrap))  # noqa: B023


def test_requests_for_partitions_are_refused_as_by_a_node_that_does_not_lead_them(front: Serving) -> None:
    refused = error_codes.NOT_LEADER_OR_FOLLOWER
    numbers = {"timestamp": -1, "partition_max_bytes": 1, "fetch_offset": 0, "records": None}
    named = [numbers | dict.fromkeys(("partition_index", "partition", "index"), each) for each in (0, PARTITIONS)]
    ends = ask(front.bootstrap, apis.LIST_OFFSETS, 5, topics=[{"name": TOPIC, "partitions": named}])
    codes = [partition["error_code"] for partition in ends["topics"][0]["partitions"]]
    assert codes == [refused, error_codes.UNKNOWN_TOPIC_OR_PARTITION]
    for topic, error in ((TOPIC, refused), ("__consumer_offsets", error_codes.NONE)):
        wanted = [{"topic": topic, "partitions": named[:1]}]
        fetched = ask(front.bootstrap, apis.FETCH, 11, topics=wanted, **FETCH)
        assert fetched["responses"][0]["partitions"][0]["error_code"] == error
    data = [{"name": TOPIC, "partition_data": named[:1]}]
    produced = ask(front.bootstrap, apis.PRODUCE, 8, topic_data=data, acks=1, transactional_id=None)
    assert produced["responses"][0]["partition_responses"][0]["error_code"] == refused


FETCH: dict[str, Any] = {
    "min_bytes": 1, "max_bytes": 1, "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
}  # fmt: skip


def test_transactions_belong_to_the_cluster(front: Serving) -> None:
    """A producer without transactions gets its id from the cluster; all others are sent to their coordinator."""
    producer = {"producer_id": 1, "producer_epoch": 0, "transactional_id": "t", "group_id": "front-txn"}
    for version in (1, 4):
        without = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
        until(lambda: ask(front.bootstrap, apis.INIT_PRODUCER_ID, version, **without)["error_code"], 0)  # noqa: B023
        assert ask(front.bootstrap, apis.INIT_PRODUCER_ID, version, **without)["producer_id"] >= 0
    refused = error_codes.NOT_COORDINATOR
    assert ask(front.bootstrap, apis.INIT_PRODUCER_ID, 4, **producer)["error_code"] == refused
    assert ask(front.bootstrap, apis.ADD_OFFSETS_TO_TXN, 3, **producer)["error_code"] == refused
    assert ask(front.bootstrap, apis.END_TXN, 3, **producer, committed=True)["error_code"] == refused
    topics = [{"name": TOPIC, "partitions": [0]}]
    added = ask(
        front.bootstrap,
        apis.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )
    assert added["results_by_topic_v3_and_below"][0]["results_by_partition"][0]["partition_error_code"] == refused


def committed(front: Serving, topic: str | bytes, partition: int, offset: int = 7) -> int:
    """Commit an offset, of a topic by name or by id; return the error code."""
    version, field = (9, {"name": topic}) if isinstance(topic, str) else (10, {"topic_id": uuid.UUID(bytes=topic)})
    offsets = [{"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}]
    topics = [field | {"partitions": offsets}]
    answer = ask(front.bootstrap, apis.OFFSET_COMMIT, version, group_id="front-commits", topics=topics)
    return int(answer["topics"][0]["partitions"][0]["error_code"])


def test_topics_are_created_extended_deleted_and_created_again(broker: Broker, front: Serving) -> None:
    topic, admin = "front-topics", AdminClient({"bootstrap.servers": broker.bootstrap})

    def described() -> tuple[int, int, bytes]:
        answer = metadata(front.bootstrap, topic)["topics"][0]
        return answer["error_code"], len(answer["partitions"]), answer["topic_id"] or ZERO_UUID

    def in_cluster() -> tuple[int, int, bytes]:
        answer = metadata(broker.bootstrap, topic)["topics"][0]
        return answer["error_code"], len(answer["partitions"]), answer["topic_id"] or ZERO_UUID

    unknown = error_codes.UNKNOWN_TOPIC_OR_PARTITION
    assert committed(front, topic, 0) == unknown
    create_topic(broker.bootstrap, topic, 2)
    until(described, in_cluster())
    first = described()[2]
    assert [committed(front, topic, 1), committed(front, first, 1), committed(front, topic, 2)] == [0, 0, unknown]
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(SECONDS)
    until(lambda: described()[:2], (error_codes.NONE, 3))
    assert committed(front, topic, 2) == error_codes.NONE
    admin.delete_topics([topic])[topic].result(SECONDS)
    until(described, (unknown, 0, ZERO_UUID))
    assert [committed(front, topic, 1), committed(front, first, 1)] == [unknown, error_codes.UNKNOWN_TOPIC_ID]
    create_topic(broker.bootstrap, topic, 1)
    until(described, in_cluster())
    assert described()[2] not in {first, ZERO_UUID}
    assert [committed(front, topic, 0), committed(front, first, 0)] == [0, error_codes.UNKNOWN_TOPIC_ID]
    admin.delete_topics([topic])[topic].result(SECONDS)


def test_new_topics_and_partitions_are_known_at_once(broker: Broker, front: Serving) -> None:
    """As by a broker: the first answer that names them waits for the metadata."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for number in range(3):
        named, committed_to, by_id = (f"at-once-{kind}-{number}" for kind in ("named", "committed", "by-id"))
        create_topic(broker.bootstrap, named, 2)
        (described,) = metadata(front.bootstrap, named)["topics"]
        assert (described["error_code"], len(described["partitions"])) == (error_codes.NONE, 2)
        create_topic(broker.bootstrap, committed_to, 1)
        assert committed(front, committed_to, 0) == error_codes.NONE
        admin.create_partitions([NewPartitions(committed_to, 2)])[committed_to].result(SECONDS)
        assert committed(front, committed_to, 1) == error_codes.NONE
        create_topic(broker.bootstrap, by_id, 1)
        topic_id = metadata(broker.bootstrap, by_id)["topics"][0]["topic_id"]
        assert committed(front, topic_id, 0) == error_codes.NONE
        create_topic(broker.bootstrap, f"{by_id}-fetched", 1)
        topic_id = metadata(broker.bootstrap, f"{by_id}-fetched")["topics"][0]["topic_id"]
        topics = [{"topic_id": uuid.UUID(bytes=topic_id), "partition_indexes": [0]}]
        groups = [{"group_id": "at-once", "topics": topics, "member_id": None, "member_epoch": -1}]
        answer = ask(front.bootstrap, apis.OFFSET_FETCH, 10, groups=groups, require_stable=False)
        assert answer["groups"][0]["topics"][0]["partitions"][0]["error_code"] == error_codes.NONE
    unknown = metadata(front.bootstrap, "at-once-never")["topics"][0]["error_code"]
    assert unknown == committed(front, "at-once-never", 0) == error_codes.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("again", [False, True])
def test_offsets_of_deleted_topics_are_deleted(broker: Broker, front: Serving, again: bool) -> None:
    """As by a broker, of all groups; those with a topic id also if the topic was created again at once."""
    topic, admin, groups = (
        f"front-deleted-{again}",
        AdminClient({"bootstrap.servers": broker.bootstrap}),
        ["d-1", "d-2"],
    )
    create_topic(broker.bootstrap, topic, 2)
    until(lambda: committed(front, topic, 1), error_codes.NONE)
    topic_id = uuid.UUID(bytes=metadata(front.bootstrap, topic)["topics"][0]["topic_id"])
    for group in groups:
        simple_commit(front.bootstrap, group, {(TOPIC, 0): 1} | ({} if again else {(topic, 0): 5, (topic, 1): 6}))
        if again:
            offsets = [
                {"partition_index": number, "committed_offset": 5, "committed_metadata": ""} for number in (0, 1)
            ]
            topics = [{"topic_id": topic_id, "partitions": offsets}]
            ask(front.bootstrap, apis.OFFSET_COMMIT, 10, group_id=group, topics=topics)
            assert committed_offsets(front.bootstrap, [group])[group] == {(topic, 0): 5, (topic, 1): 5, (TOPIC, 0): 1}
    admin.delete_topics([topic])[topic].result(SECONDS)
    if again:
        create_topic(broker.bootstrap, topic, 2)
    until(lambda: committed_offsets(broker.bootstrap, groups), {group: {(TOPIC, 0): 1} for group in groups})
    front.wait_for_line(f"offsets of deleted topics: {topic}")


def by_confluent(bootstrap: str, group: str) -> list[str]:
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap} | settings)
    consumer.subscribe([TOPIC])
    messages = consumer.consume(RECORDS, SECONDS)
    assert [message.error() for message in messages if message.error()] == []
    consumer.commit(asynchronous=False)
    consumer.close()
    return [(message.value() or b"").decode() for message in messages]


def by_kafka_python(bootstrap: str, group: str) -> list[str]:
    values: list[str] = []
    settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with closing(KafkaConsumer(TOPIC, bootstrap_servers=bootstrap, **settings)) as consumer:
        while len(values) < RECORDS:
            for batch in consumer.poll(1000 * SECONDS).values():
                values += [record.value.decode() for record in batch]
        consumer.commit()
    return values


def by_aiokafka(bootstrap: str, group: str) -> list[str]:
    return asyncio.run(_by_aiokafka(bootstrap, group))


async def _by_aiokafka(bootstrap: str, group: str) -> list[str]:
    settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=bootstrap, **settings)
    await consumer.start()
    try:
        values = [(await consumer.getone()).value.decode() for _ in range(RECORDS)]
        await consumer.commit()
        return values
    finally:
        await consumer.stop()


def by_console_consumer(bootstrap: str, group: str) -> list[str]:
    arguments = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--group", group, "--from-beginning"]
    arguments += ["--max-messages", str(RECORDS)]
    command = java("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments, log_level="OFF")
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    return done.stdout.split()


READERS = [by_confluent, by_kafka_python, by_aiokafka, by_console_consumer]


@pytest.mark.usefixtures("records")
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("over_broker", [False, True])
def test_subscribed_consumers_read_all_records_and_commit(
    broker: Broker, front: Serving, read: Callable[[str, str], list[str]], over_broker: bool
) -> None:
    """The partitions are assigned by this process, whichever node the client knows first."""
    group = f"{read.__name__}-{over_broker}"
    values = read((broker if over_broker else front).bootstrap, group)
    assert sorted(map(int, values)) == [*range(RECORDS)]
    assert committed_offsets(broker.bootstrap, [group])[group] == {
        (TOPIC, number): RECORDS // PARTITIONS for number in range(PARTITIONS)
    }


def test_replicas_of_new_topics_are_moved_to_brokers(broker: Broker, front: Serving) -> None:
    """Half of the partitions are placed on this process, which hands them over; producers only wait for that."""
    names = [f"placed-{number}" for number in range(4)]
    for name in names:
        create_topic(broker.bootstrap, name, 4)
    producer = Producer({"bootstrap.servers": front.bootstrap})
    for name in names:
        for partition in range(4):
            producer.produce(name, b"value", partition=partition)
    assert producer.flush(SECONDS) == 0

    def replicas() -> set[tuple[int, ...]]:
        topics = metadata(broker.bootstrap, *names)["topics"]
        return {tuple(partition["replica_nodes"]) for topic in topics for partition in topic["partitions"]}

    until(replicas, {(1,)})
    front.wait_for_line("Moved partitions of")


def test_requests_of_administrators_are_forwarded(broker: Broker, front: Serving) -> None:
    """A client may send them to any broker, and brokers name any broker as the controller."""
    topic = {"name": "forwarded", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    created = ask(front.bootstrap, 19, 7, topics=[topic], validate_only=False)
    assert [each["error_code"] for each in created["topics"]] == [0]
    until(lambda: len(metadata(broker.bootstrap, "forwarded")["topics"][0]["partitions"]), 2)
    resource = {"resource_type": 2, "resource_name": "forwarded", "configuration_keys": ["cleanup.policy"]}
    described = ask(front.bootstrap, 32, 4, resources=[resource], include_synonyms=False, include_documentation=False)
    assert [(each["name"], each["value"]) for each in described["results"][0]["configs"]] == [
        ("cleanup.policy", "delete")
    ]
    assert (
        ask(front.bootstrap, 20, 6, topics=[{"name": "forwarded", "topic_id": None}])["responses"][0]["error_code"] == 0
    )


def test_another_process_cannot_use_the_node_id_or_the_log(adopted: Adopted, front: Serving, tmp_path: Path) -> None:
    code, output = adopted.adopt("--execute")
    assert (code != 0, "writes to the log" in output) == (True, True), output
    for node, cause in ((NODE, f"The node id {NODE} is used by a broker"), (1, "The node id 1 is used by a broker")):
        code, output = adopted.adopt("--log", str(tmp_path), "--node-id", str(node))
        assert (code != 0, cause in " ".join(output.split())) == (True, True), output
    assert front.process.poll() is None


def test_state_of_the_cluster_is_reported_over_http(front: Serving) -> None:
    state = http(front.http, "GET", "/readyz").body["cluster"]
    assert state["available"]
    assert state["metadata_age_seconds"] >= 0
    metrics = http(front.http, "GET", "/metrics").body
    assert "offsetlake_cluster_available 1.0" in metrics
    assert "offsetlake_cluster_brokers 2.0" in metrics
    assert "offsetlake_cluster_metadata_age_seconds" in metrics
