"""A serving process as a broker of a cluster of two brokers and a separate controller, of which each is lost once."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from offsetlake.kafka import error_codes
from offsetlake.serve.protocol import api_keys as apis
from support.broker.broker_cluster import BROKERS, BrokerCluster
from support.broker.workload import Offsets
from support.serve.adopted import NODE, Adopted, committed, until
from support.serve.kio_requests import ask
from support.serve.reading import Reading

pytestmark = pytest.mark.long  # a cluster of its own, whose groups are adopted

TOPIC, PARTITIONS, LOG_PARTITIONS, SECONDS = "between", 4, 6, 180
GROUPS = [f"moved-{number}" for number in range(12)]
OFFSETS = {group: {(TOPIC, number % PARTITIONS): number} for number, group in enumerate(GROUPS)}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerCluster]:
    overrides = {"offsets.topic.num.partitions": str(LOG_PARTITIONS)}
    with BrokerCluster(tmp_path / "cluster", overrides) as started:
        create_topic(started, TOPIC)
        until(lambda: available(started, GROUPS), {*GROUPS})
        for group, offsets in OFFSETS.items():
            commit(started, group, offsets)
        yield started


def commit(cluster: BrokerCluster, group: str, offsets: Offsets) -> None:
    """Commit without membership."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    partitions = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    consumer.commit(offsets=partitions, asynchronous=False)
    consumer.close()


def create_topic(cluster: BrokerCluster, name: str) -> None:
    """Create a topic with a replica on each broker, and not on this process."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    replicas = [[BROKERS[number % 2], BROKERS[1 - number % 2]] for number in range(PARTITIONS)]
    admin.create_topics([NewTopic(name, PARTITIONS, replica_assignment=replicas)])[name].result(SECONDS)


def delete_topic(cluster: BrokerCluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})  # released, it would cancel the request
    admin.delete_topics([name])[name].result(SECONDS)


def produce(cluster: BrokerCluster, first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(first, last):
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


def log_leaders(bootstrap: str) -> set[int]:
    topics = [{"topic_id": None, "name": "__consumer_offsets"}]
    (topic,) = ask(bootstrap, apis.METADATA, 12, topics=topics)["topics"]
    return {partition["leader_id"] for partition in topic["partitions"]}


def in_sync(bootstrap: str) -> set[int]:
    """Return how many replicas of the partitions of TOPIC are in sync."""
    (topic,) = ask(bootstrap, apis.METADATA, 12, topics=[{"topic_id": None, "name": TOPIC}])["topics"]
    return {len(partition["isr_nodes"]) for partition in topic["partitions"]}


def coordinators(bootstrap: str) -> set[tuple[int, int]]:
    """Return the error codes and the node ids of the coordinators of all groups."""
    answer = ask(bootstrap, apis.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=GROUPS)
    return {(each["error_code"], each["node_id"]) for each in answer["coordinators"]}


def transact(cluster: BrokerCluster, group: str, offset: int, *, commits: bool) -> None:
    """Commit or abort a transaction with an offset of partition 0."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": group})
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [TopicPartition(TOPIC, 0, offset)], consumer.consumer_group_metadata(), SECONDS
    )
    (producer.commit_transaction if commits else producer.abort_transaction)(SECONDS)
    consumer.close()


def available(cluster: BrokerCluster, groups: Sequence[str]) -> set[str]:
    """Return the groups that have loaded at a broker that coordinates them according to both brokers.

    The first request creates the topic.
    """
    wanted = [{"group_id": group, "topics": None, "member_id": None, "member_epoch": -1} for group in groups]
    found, loaded = [], set()
    for node, broker in zip(BROKERS, cluster.brokers, strict=True):
        answer = ask(broker.bootstrap, apis.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[*groups])
        found.append({(each["key"], each["node_id"]) for each in answer["coordinators"]})
        fetched = ask(broker.bootstrap, apis.OFFSET_FETCH, 8, groups=wanted)["groups"]
        loaded |= {(group["group_id"], node) for group in fetched if not group["error_code"]}
    return {group for group, _ in loaded.intersection(*found)}


def commit_error(bootstrap: str, topic: str) -> int:
    offsets = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    answer = ask(bootstrap, apis.OFFSET_COMMIT, 9, group_id="direct", topics=[{"name": topic, "partitions": offsets}])
    return int(answer["topics"][0]["partitions"][0]["error_code"])


def offsets_of(cluster: BrokerCluster, group: str) -> int:
    return sum(committed(cluster.bootstrap, [group])[group].values())


def test_brokers_and_the_controller_are_lost_while_groups_are_served(cluster: BrokerCluster, tmp_path: Path) -> None:
    """One consumer reads on, and its offsets are committed, whichever other node is missing."""
    adopted, (first, second) = Adopted(tmp_path, cluster), cluster.brokers
    assert log_leaders(first.bootstrap) == {*BROKERS}
    transact(cluster, GROUPS[0], 99, commits=False)
    code, output = adopted.adopt("--execute")
    assert code == 0, output
    with adopted.serving() as serving:
        for bootstrap in (serving.bootstrap, *(broker.bootstrap for broker in cluster.brokers)):
            until(lambda: coordinators(bootstrap), {(0, NODE)})  # noqa: B023
            assert committed(bootstrap, GROUPS) == OFFSETS
        produce(cluster, 0, 20)
        reading = Reading(cluster.bootstrap, "reads", TOPIC)
        try:
            reading.wait_for(20)
            until(lambda: offsets_of(cluster, "reads"), 20)
            for stopped, count in ((second, 40), (first, 60)):
                stopped.stop()
                produce(cluster, count - 20, count)
                reading.wait_for(count)
                until(lambda: offsets_of(cluster, "reads"), count)
                stopped.start()
                until(lambda: in_sync(stopped.bootstrap), {len(BROKERS)})  # noqa: B023
                until(lambda: coordinators(stopped.bootstrap), {(0, NODE)})  # noqa: B023
            cluster.controller.stop()
            serving.wait_for_line("Heartbeats of this broker fail")
            assert commit_error(serving.bootstrap, TOPIC) == error_codes.NONE
            produce(cluster, 60, 80)
            reading.wait_for(80)
            cluster.controller.start()
            serving.wait_for_line("Heartbeats of this broker succeed again")
            until(lambda: offsets_of(cluster, "reads"), 80)
            unknown = error_codes.UNKNOWN_TOPIC_OR_PARTITION
            for _ in range(2):  # created, deleted and created again
                assert commit_error(serving.bootstrap, "later") == unknown
                create_topic(cluster, "later")
                until(lambda: commit_error(serving.bootstrap, "later"), error_codes.NONE)
                delete_topic(cluster, "later")
                until(lambda: commit_error(serving.bootstrap, "later"), unknown)
            transact(cluster, GROUPS[1], 88, commits=False)
            transact(cluster, GROUPS[2], 77, commits=True)
            expected = [OFFSETS[GROUPS[1]], {**OFFSETS[GROUPS[2]], (TOPIC, 0): 77}]
            until(lambda: [*committed(first.bootstrap, GROUPS[1:3]).values()], expected)
            assert reading.assignments == 1
        finally:
            reading.stop()
        before = committed(cluster.bootstrap, [*GROUPS, "reads"])
    code, output = adopted.move("return", "--execute")
    assert code == 0, output
    for broker in cluster.brokers:
        until(lambda: log_leaders(broker.bootstrap) <= {*BROKERS}, True)  # noqa: B023
    until(lambda: available(cluster, [*before]), {*before})
    assert committed(cluster.bootstrap, [*before]) == before


def test_adoption_continues_after_a_broker_and_the_controller_were_killed(
    cluster: BrokerCluster, tmp_path: Path
) -> None:
    """A broker and the controller are killed while partitions are copied, and started again."""
    adopted, (_, second) = Adopted(tmp_path, cluster), cluster.brokers
    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(adopted.adopt, "--execute")
        until(adopted.is_owned, expected=True)  # the plan, for which all brokers name their groups, has been made
        second.kill()
        cluster.controller.kill()
        cluster.controller.start()
        second.start()
        code, output = moving.result()
    assert code == 0, output
    with adopted.serving():
        for broker in cluster.brokers:
            until(lambda: coordinators(broker.bootstrap), {(0, NODE)})  # noqa: B023
        assert committed(cluster.bootstrap, GROUPS) == OFFSETS
