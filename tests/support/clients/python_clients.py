"""A consumer of librdkafka, aiokafka or kafka-python that runs until SIGTERM.

    python -m support.clients.python_clients LIBRARY OUTPUT TOPIC NAME=VALUE…

LIBRARY is a key of CLIENTS, TOPIC a topic or a regular expression that begins with `^`, NAME=VALUE are properties of
librdkafka; the other libraries use those in `shared`. The output is described in output.py.
"""

import asyncio
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError as PythonError

from support.clients.output import Output

POLL_MS, COMMIT_SECONDS, MAX_RECORDS = 200, 0.5, 1000


def shared(settings: dict[str, str]) -> dict[str, Any]:
    """Return the arguments that aiokafka and kafka-python have in common."""
    return {
        "bootstrap_servers": settings["bootstrap.servers"],
        "group_id": settings["group.id"],
        "session_timeout_ms": int(settings["session.timeout.ms"]),
        "heartbeat_interval_ms": int(settings["heartbeat.interval.ms"]),
        "max_poll_interval_ms": int(settings["max.poll.interval.ms"]),
        "metadata_max_age_ms": int(settings["metadata.max.age.ms"]),
        "auto_offset_reset": settings["auto.offset.reset"],
        "enable_auto_commit": False,
    }


class Schedule:
    """Is due COMMIT_SECONDS after the last commit if records were read since, until a commit succeeds."""

    def __init__(self) -> None:
        self._last, self._is_pending = time.monotonic(), False

    def read(self) -> None:
        """Note that records were read."""
        self._is_pending = True

    def is_due(self) -> bool:
        """Check whether to commit."""
        return self._is_pending and time.monotonic() - self._last >= COMMIT_SECONDS

    def tried(self, *, succeeded: bool) -> None:
        """Note a commit."""
        self._last, self._is_pending = time.monotonic(), not succeeded


class Librdkafka:
    """A consumer that commits what it has written, of partitions that it owns."""

    def __init__(self, output: Output, topic: str, settings: dict[str, str]) -> None:
        self._output, self._schedule = output, Schedule()
        self._positions: dict[tuple[str, int], int] = {}
        self._owned: set[tuple[str, int]] = set()
        self._consumer = Consumer(settings | {"error_cb": lambda error: output.event(f"error {error}")})
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def run(self, is_stopped: Callable[[], bool]) -> None:
        while not is_stopped():
            read = defaultdict(list)
            for message in self._consumer.consume(MAX_RECORDS, POLL_MS / 1000):
                if message.error():
                    self._output.event(f"message {message.error()}")
                else:
                    key = str(message.topic()), int(message.partition() or 0)
                    read[key].append((int(message.offset() or 0), message.timestamp()[1]))
            for key, records in read.items():
                self._output.records(key[1], records)
                self._positions[key] = records[-1][0] + 1
                self._schedule.read()
            if self._schedule.is_due():
                self._schedule.tried(succeeded=self._commit(self._owned))
        self._commit(self._owned)
        self._consumer.close()

    def _commit(self, partitions: set[tuple[str, int]]) -> bool:
        offsets = [TopicPartition(*key, offset) for key, offset in self._positions.items() if key in partitions]
        if not offsets:
            return True
        try:
            committed = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self._output.event(f"commit {error}")
            return False
        failed = [str(partition.error) for partition in committed if partition.error]
        if failed:
            self._output.event(f"commit {failed}")
        return not failed

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        keys = {(partition.topic, partition.partition) for partition in partitions}
        self._owned |= keys
        self._output.event(f"assigned {sorted(keys)}")

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        keys = {(partition.topic, partition.partition) for partition in partitions}
        self._output.event(f"revoked {sorted(keys)}")
        self._commit(keys & self._owned)
        self._forget(keys)

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        keys = {(partition.topic, partition.partition) for partition in partitions}
        self._output.event(f"lost {sorted(keys)}")
        self._forget(keys)

    def _forget(self, keys: set[tuple[str, int]]) -> None:
        self._owned -= keys
        for key in keys:
            self._positions.pop(key, None)


def by_librdkafka(output: Output, topic: str, settings: dict[str, str], is_stopped: Callable[[], bool]) -> None:
    Librdkafka(output, topic, settings).run(is_stopped)


def by_kafka_python(output: Output, topic: str, settings: dict[str, str], is_stopped: Callable[[], bool]) -> None:
    schedule = Schedule()
    consumer = KafkaConsumer(
        topic,
        partition_assignment_strategy=[RangePartitionAssignor],
        reconnect_backoff_max_ms=1_000,
        **shared(settings),
    )

    def commit() -> bool:
        try:
            consumer.commit()
        except PythonError as error:
            output.event(f"commit {error!r}")
            return False
        return True

    while not is_stopped():
        for partition, records in consumer.poll(POLL_MS, MAX_RECORDS).items():
            output.records(partition.partition, [(record.offset, record.timestamp) for record in records])
            schedule.read()
        if schedule.is_due():
            schedule.tried(succeeded=commit())
    commit()
    consumer.close(autocommit=False)


def by_aiokafka(output: Output, topic: str, settings: dict[str, str], is_stopped: Callable[[], bool]) -> None:
    asyncio.run(_by_aiokafka(output, topic, settings, is_stopped))


async def _by_aiokafka(output: Output, topic: str, settings: dict[str, str], is_stopped: Callable[[], bool]) -> None:
    schedule = Schedule()
    consumer = AIOKafkaConsumer(
        partition_assignment_strategy=(AioRange,),
        **shared(settings),
    )

    async def commit() -> bool:
        try:
            await consumer.commit()
        except AioError as error:
            output.event(f"commit {error!r}")
            return False
        return True

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            output.event(f"revoked {sorted(revoked)}")
            if revoked:
                await commit()

        async def on_partitions_assigned(self, assigned: Any) -> None:
            output.event(f"assigned {sorted(assigned)}")

    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while not is_stopped():
        for partition, records in (await consumer.getmany(timeout_ms=POLL_MS, max_records=MAX_RECORDS)).items():
            output.records(partition.partition, [(record.offset, record.timestamp) for record in records])
            schedule.read()
        if schedule.is_due():
            schedule.tried(succeeded=await commit())
    await commit()
    await consumer.stop()


CLIENTS = {"librdkafka": by_librdkafka, "kafka-python": by_kafka_python, "aiokafka": by_aiokafka}

if __name__ == "__main__":
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    library, path, topic, *properties = sys.argv[1:]
    output = Output(Path(path))
    try:
        settings = dict(text.split("=", 1) for text in properties)
        CLIENTS[library](output, topic, settings, lambda: bool(stopped))
    except BaseException as error:
        output.event(f"failed {error!r}")
        raise
    output.event("closed")
