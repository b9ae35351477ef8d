"""Kafka's console share consumer of version 4.2.0 over a broker of version 4.1.1 whose share feature is disabled."""

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.broker import workload
from support.broker.broker import Broker
from support.broker.kafka_tools import NEWER, java
from support.serve.sharing import Sharing

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.long]
RECORDS = 3000


def consumed(sharing: Sharing, count: int, *options: str) -> list[int]:
    """Return the values that a consumer prints; it ends after `count` of them."""
    command = java(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        "--bootstrap-server", sharing.share, "--topic", "t", "--group", "g", "--max-messages", str(count),
        "--timeout-ms", "120000", *options,
        version=NEWER,
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=400)
    return [int(line) for line in done.stdout.splitlines() if line.isdigit()]


def test_console_share_consumers_before_and_after_a_kill(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    with Broker(tmp_path / "broker", features=("share.version=0",)) as broker:
        workload.create_topic(broker.bootstrap, "t", 3)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "lz4"})
        for number in range(RECORDS):
            producer.produce("t", str(number).encode())
        assert producer.flush(120) == 0
        with Sharing(tmp_path, broker) as sharing:
            accepted = consumed(sharing, 1000)
            rejected = consumed(sharing, 200, "--reject")
            assert len(consumed(sharing, 100, "--release")) == 100
            sharing.kill()
        with Sharing(tmp_path, broker) as sharing:
            rest = consumed(sharing, RECORDS - len(accepted) - len(rejected))
        assert sorted([*accepted, *rejected, *rest]) == [*range(RECORDS)]
