"""A broker of its own for tests, whose groups a serving process adopts, and the serving process."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from support.broker.broker import Broker, free_ports
from support.broker.broker_cluster import BrokerCluster
from support.broker.kafka_tools import OLDER
from support.serve.serving import Serving

NODE, SECONDS = 1000, 180
LOG_PARTITIONS = 3

Offsets = dict[tuple[str, int], int]


class Adopted:
    """A broker with LOG_PARTITIONS partitions of `__consumer_offsets`, and what adopts them as node NODE.

    `broker` is the broker, or the first one of a cluster of brokers.
    """

    def __init__(
        self,
        folder: Path,
        cluster: BrokerCluster | None = None,
        version: str = OLDER,
        features: Sequence[str] = ("share.version=1",),
        **overrides: str,
    ) -> None:
        self.folder, self.log = folder, folder / "log"
        if cluster is None:
            (folder / "broker").mkdir(parents=True)
            settings = {"offsets.topic.num.partitions": str(LOG_PARTITIONS)} | overrides
            self.broker = Broker(folder / "broker", settings, version, features=features)
            self.bootstrap = self.broker.bootstrap
        else:
            self.broker, self.bootstrap = cluster.brokers[0], cluster.bootstrap
        (self.port,) = free_ports(1)

    def options(self) -> list[str]:
        """The options of `adopt` and `serve`."""
        return [
            "--lake", str(self.folder / "lake"), "--log", str(self.log), "--cluster", self.bootstrap,
            "--node-id", str(NODE), "--kafka", f"127.0.0.1:{self.port}",
        ]  # fmt: skip

    def moving(self, command_name: str, *options: str) -> "subprocess.Popen[str]":
        """Start `offsetlake adopt` or `offsetlake return`."""
        command = [sys.executable, "-m", "offsetlake.cli", command_name, *self.options(), *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def adopt(self, *options: str) -> tuple[int, str]:
        """Run `offsetlake adopt`; return its exit code and output."""
        return self.move("adopt", *options)

    def move(self, command_name: str, *options: str) -> tuple[int, str]:
        """Run `offsetlake adopt` or `offsetlake return`; return its exit code and output."""
        process = self.moving(command_name, *options)
        output, _ = process.communicate(timeout=SECONDS)
        return process.returncode, output

    def is_owned(self) -> bool:
        """Check whether the log belongs to a broker of the cluster."""
        return (self.log / "offsetlake-broker.json").exists()

    def serving(self, **settings: Any) -> Serving:
        """Return the serving process."""
        cluster = {"bootstrap.servers": self.bootstrap}
        return Serving(
            self.folder / "lake",
            self.log,
            port=self.port,
            node_id=NODE,
            **{"cluster": cluster, "metadata_max_age_ms": 1000, "http": ["127.0.0.1", 0]} | settings,
        )


def committed(bootstrap: str, groups: Sequence[str]) -> dict[str, Offsets]:
    """Return the committed offsets of groups that a client finds over a bootstrap server."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found: dict[str, Offsets] = {}
    for group in groups:
        wanted = [ConsumerGroupTopicPartitions(group)]
        future = admin.list_consumer_group_offsets(wanted, request_timeout=SECONDS)[group]
        partitions = future.result(SECONDS).topic_partitions
        found[group] = {(each.topic, each.partition): each.offset for each in partitions}
    return found


def until(read: Callable[[], Any], expected: Any) -> None:
    """Wait until something is as expected."""
    for _ in range(10 * SECONDS):
        if read() == expected:
            return
        asyncio.run(asyncio.sleep(0.1))  # the interval between polls
    raise AssertionError(f"{read()} is not {expected}")
