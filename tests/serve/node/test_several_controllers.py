"""A cluster of Kafka 4.2.0 with three controllers, of which the active one is killed while groups are served."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Producer

from offsetlake.node.controllers import DESCRIBE_QUORUM
from offsetlake.serve.protocol import api_keys as apis
from support.broker.broker_cluster import BrokerCluster
from support.broker.kafka_tools import NEWER
from support.broker.workload import create_topic, simple_commit
from support.serve.adopted import LOG_PARTITIONS, NODE, Adopted, committed, until
from support.serve.kio_requests import ask
from support.serve.reading import Reading

pytestmark = pytest.mark.long  # a cluster of its own, and a session that would end

TOPIC, SECONDS, SESSION_SECONDS = "controllers", 60, 5
CREATE_TOPICS, BROKER = 19, 4
OVERRIDES = {
    "offsets.topic.num.partitions": str(LOG_PARTITIONS),
    "broker.session.timeout.ms": str(1000 * SESSION_SECONDS),
    "controller.quorum.fetch.timeout.ms": "5000",  # a busy machine causes no election
}


def produce(bootstrap: str, first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, last):
        producer.produce(TOPIC, str(number))
    assert producer.flush(SECONDS) == 0


def active_controller(bootstrap: str) -> int:
    """Return the node id of the active controller, or -1 during an election."""
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    answer = ask(bootstrap, DESCRIBE_QUORUM, 2, topics=topics)
    codes = [answer["error_code"], *(topic["partitions"][0]["error_code"] for topic in answer["topics"])]
    return -1 if any(codes) else int(answer["topics"][0]["partitions"][0]["leader_id"])


def log_leaders(bootstrap: str) -> set[int]:
    topics = [{"topic_id": None, "name": "__consumer_offsets"}]
    (topic,) = ask(bootstrap, apis.METADATA, 12, topics=topics)["topics"]
    return {partition["leader_id"] for partition in topic["partitions"]}


def test_groups_are_served_although_the_active_controller_is_killed(tmp_path: Path) -> None:
    """Heartbeats, requests of administrators and the return use the new active controller; a consumer reads on."""
    with BrokerCluster(tmp_path / "cluster", OVERRIDES, controllers=3, brokers=1, version=NEWER) as cluster:
        bootstrap, adopted = cluster.bootstrap, Adopted(tmp_path, cluster)
        create_topic(bootstrap, TOPIC, 1)
        simple_commit(bootstrap, "before", {(TOPIC, 0): 3})
        produce(bootstrap, 0, 20)
        code, output = adopted.adopt("--execute")
        assert code == 0, output
        with adopted.serving() as serving:
            reading = Reading(bootstrap, "reads", TOPIC)
            try:
                reading.wait_for(20)
                killed = active_controller(bootstrap)
                cluster.controllers[killed].kill()
                until(lambda: active_controller(bootstrap) not in {killed, -1}, True)
                asyncio.run(asyncio.sleep(SESSION_SECONDS))  # without heartbeats, the session of the node would end
                until(lambda: log_leaders(bootstrap), {NODE})
                topic = {
                    "name": "later",
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
                created = ask(serving.bootstrap, CREATE_TOPICS, 7, topics=[topic], validate_only=False)
                assert [each["error_code"] for each in created["topics"]] == [0]
                produce(bootstrap, 20, 40)
                reading.wait_for(40)
                until(lambda: committed(bootstrap, ["reads"]), {"reads": {(TOPIC, 0): 40}})
                assert reading.assignments == 1
            finally:
                reading.stop()
        code, output = adopted.move("return", "--execute")
        assert code == 0, output
        until(lambda: log_leaders(bootstrap), {BROKER})
        assert committed(bootstrap, ["before", "reads"]) == {"before": {(TOPIC, 0): 3}, "reads": {(TOPIC, 0): 40}}
