"""Consumers of librdkafka whose offsets are set while they run, in each group protocol."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from offsetlake.kafka.placement import partition_for_group
from offsetlake.log.writer.served_log import served
from support.serve.job_socket_requests import LOG_PARTITIONS, batch, key, value
from support.serve.job_socket_requests import TOPIC as ORDERS
from support.serve.serving import Serving

pytestmark = pytest.mark.slow
GROUP, PARTITIONS, NEW, SECONDS = "g", 4, 77, 120
EAGER, COOPERATIVE, CONSUMER = "range", "cooperative-sticky", "consumer"


class Subscribed:
    """A consumer; `positions` are the committed offsets of its partitions when it got them, -1001 for none."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False}
        if protocol == CONSUMER:
            settings |= {"group.protocol": "consumer"}
        else:
            settings |= {"partition.assignment.strategy": protocol, "heartbeat.interval.ms": 100}
        self._is_eager = protocol == EAGER
        self.positions: dict[int, int] = {}
        self.revoked: set[int] = set()
        self._is_closing = False
        self.consumer = Consumer(settings, logger=None)
        self.consumer.subscribe([ORDERS], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._is_closing:  # then librdkafka does not answer `committed`
            return
        self.positions |= {row.partition: row.offset for row in consumer.committed(partitions, SECONDS)}
        (consumer.assign if self._is_eager else consumer.incremental_assign)(partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked |= {row.partition for row in partitions}
        for row in partitions:
            self.positions.pop(row.partition, None)
        if self._is_eager:
            consumer.unassign()
        else:
            consumer.incremental_unassign(partitions)

    def close(self) -> None:
        """Leave the group."""
        self._is_closing = True
        self.consumer.close()


def poll(consumers: list[Subscribed], until: Callable[[], bool]) -> None:
    """Poll consumers; that they cannot read, because this server has no records, does not matter."""
    while not until():
        for each in consumers:
            each.consumer.poll(0.02)
            owned = [number for other in consumers for number in other.positions]
            assert len(owned) == len({*owned}), "a partition has two owners"


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE, CONSUMER])
def test_librdkafka_continues_from_the_offset_that_is_set(protocol: str, tmp_path: Path) -> None:
    coordinator = {"initial_rebalance_delay_ms": 0, "consumer_heartbeat_interval_ms": 100}
    settings = {"topics": {ORDERS: PARTITIONS}, "coordinator": coordinator, "log_partitions": LOG_PARTITIONS}
    with Serving(tmp_path / "lake", tmp_path / "log", **settings) as server, ThreadPoolExecutor(1) as pool:
        consumers = [Subscribed(server.bootstrap, protocol) for _ in range(2)]
        poll(consumers, lambda: [len(each.positions) for each in consumers] == [PARTITIONS // 2] * 2)
        for each in consumers:
            each.revoked.clear()
        with served(tmp_path / "log") as log:
            assert log is not None
            offsets = batch((key(GROUP, 0), value(NEW)))
            done = pool.submit(log.rewind, GROUP, partition_for_group(GROUP, LOG_PARTITIONS), offsets)
            poll(consumers, done.done)
            assert done.result()[1] == ""
        poll(consumers, lambda: sum(len(each.positions) for each in consumers) == PARTITIONS)
        assert [each.positions[0] for each in consumers if 0 in each.positions] == [NEW]
        expected = {*range(PARTITIONS)} if protocol == EAGER else {0}
        assert consumers[0].revoked | consumers[1].revoked == expected
        for each in consumers:
            each.close()
