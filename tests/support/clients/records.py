"""The numbered records that consumers read, and the results that pipelines make of them."""

import threading
import time
from collections import Counter
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from support.clients.fleet import RESULTS, TOPIC

SECONDS = 120
PARTITIONS, RESULT_PARTITIONS = 12, 4


class Records(threading.Thread):
    """Produces numbered records to all partitions that exist, evenly in time."""

    def __init__(self, bootstrap: str, count: int, seconds: float) -> None:
        super().__init__(daemon=True)  # it must not keep a run that failed
        settings = {"linger.ms": 20, "enable.idempotence": True, "topic.metadata.refresh.interval.ms": 1000}
        self._producer = Producer({"bootstrap.servers": bootstrap} | settings)
        self._count, self._seconds = count, seconds
        self.partitions = PARTITIONS
        self.ends: Counter[int] = Counter()
        self.failures: list[str] = []

    def run(self) -> None:
        started = time.monotonic()
        for number in range(self._count):
            due = started + number * self._seconds / self._count
            while time.monotonic() < due:
                self._producer.poll(0.02)
            self._produce(str(number), number % self.partitions)
        if self._producer.flush(SECONDS):
            self.failures.append("Not all records were produced")

    def _produce(self, value: str, partition: int) -> None:
        try:
            self._producer.produce(TOPIC, value, partition=partition, callback=self._written)
        except KafkaException:  # a new partition, which this producer does not know yet
            self._producer.produce(TOPIC, value, partition=partition % PARTITIONS, callback=self._written)

    def _written(self, error: object, message: Message) -> None:
        if error is not None:
            self.failures.append(f"A record was not produced: {error}")
        self.ends[int(message.partition() or 0)] += 1


def results_of(bootstrap: str) -> Iterator[int]:
    """Yield the results of committed transactions."""
    settings = {"group.id": "results", "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.partition.eof": True} | settings)
    partitions = [TopicPartition(RESULTS, number, 0) for number in range(RESULT_PARTITIONS)]
    consumer.assign(partitions)
    ended: set[int] = set()
    while len(ended) < len(partitions):
        for message in consumer.consume(10_000, 1):
            error = message.error()
            if error is None:
                yield int(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(int(message.partition() or 0))
    consumer.close()
