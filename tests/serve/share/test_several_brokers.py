"""A share consumer of a cluster of two brokers and a separate controller, of which each broker is lost once."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from offsetlake.serve.protocol.api_keys import METADATA
from support.broker.broker import Broker
from support.broker.broker_cluster import BROKERS, BrokerCluster
from support.broker.kafka_tools import NEWER, java
from support.serve.adopted import until
from support.serve.kio_requests import ask
from support.serve.sharing import Sharing

pytestmark = pytest.mark.long  # a cluster of its own
TOPIC, PARTITIONS, RECORDS, SECONDS = "led-by-both", 4, 200, 300


class Printed:
    """The values that a share consumer prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self._line = process, threading.Condition()
        self.values: list[int] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._line:
                self.values += [int(line)] if line.strip().isdigit() else []
                self._line.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until that many values were printed."""
        with self._line:
            assert self._line.wait_for(lambda: len(self.values) >= count, SECONDS), f"{len(self.values)} of {count}"

    def end(self) -> None:
        """Wait until the consumer has ended, after all of its lines were read."""
        assert self._process.wait(SECONDS) == 0
        self._thread.join()


@contextmanager
def consuming(bootstrap: str, count: int) -> Iterator[Printed]:
    """Run a share consumer that ends after `count` records."""
    command = java(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        "--bootstrap-server", bootstrap, "--topic", TOPIC, "--group", "several", "--max-messages", str(count),
        version=NEWER,
    )  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield Printed(process)
    finally:
        process.kill()


def produce(bootstrap: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + RECORDS):
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


def in_sync(bootstrap: str) -> set[int]:
    """Return how many replicas of the partitions are in sync."""
    (topic,) = ask(bootstrap, METADATA, 12, topics=[{"topic_id": None, "name": TOPIC}])["topics"]
    return {len(partition["isr_nodes"]) for partition in topic["partitions"]}


def lose(broker: Broker, other: str, first: int, printed: Printed) -> None:
    """Kill a broker, produce to the other one, and start it again when the records were read."""
    until(lambda: in_sync(other), {len(BROKERS)})
    broker.kill()
    produce(other, first)
    printed.wait_for(first + RECORDS)
    broker.start()
    broker.await_active(BROKERS)


def test_each_record_is_delivered_once_while_leaders_move(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path / "cluster") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        replicas = [[BROKERS[number % 2], BROKERS[1 - number % 2]] for number in range(PARTITIONS)]
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, replica_assignment=replicas)])[TOPIC].result(SECONDS)
        with Sharing(tmp_path, cluster) as serving, consuming(serving.share, 3 * RECORDS) as printed:
            produce(cluster.bootstrap, 0)
            printed.wait_for(RECORDS)
            one, other = cluster.brokers
            lose(one, other.bootstrap, RECORDS, printed)
            lose(other, one.bootstrap, 2 * RECORDS, printed)
            printed.end()
            assert sorted(printed.values) == [*range(3 * RECORDS)]
        assert not [line for line in serving.said if "Traceback" in line]
