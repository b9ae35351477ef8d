"""Share consumers at the listener of a process that is also a broker of the cluster."""

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from offsetlake.serve.protocol import api_keys as apis
from support.broker.broker import free_ports
from support.broker.kafka_tools import NEWER, java
from support.broker.workload import create_topic, simple_commit
from support.serve.adopted import Adopted
from support.serve.kio_requests import ask

pytestmark = pytest.mark.long  # one broker of its own, whose groups are adopted
TOPIC, GROUP, RECORDS = "with-node-id", "with-node-id-group", 30


def consumed(bootstrap: str, count: int) -> list[int]:
    """Return the values that a share consumer prints; it ends after `count` of them."""
    command = java(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        "--bootstrap-server", bootstrap, "--topic", TOPIC, "--group", GROUP, "--max-messages", str(count),
        "--timeout-ms", "120000",
        version=NEWER,
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=400)
    return [int(line) for line in done.stdout.splitlines() if line.isdigit()]


def produce(bootstrap: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + RECORDS):
        producer.produce(TOPIC, str(number).encode())
    assert producer.flush(120) == 0


def test_share_consumers_of_a_broker_of_the_cluster_continue_after_a_kill(tmp_path: Path) -> None:
    adopted = Adopted(tmp_path)
    port = free_ports(1)[0]
    share = f"127.0.0.1:{port}"
    settings = {
        "share": ["127.0.0.1", port],
        "coordinator": {"share_auto_offset_reset": "earliest", "share_heartbeat_interval_ms": 1000},
    }
    with adopted.broker as broker:
        create_topic(broker.bootstrap, TOPIC, 2)
        simple_commit(broker.bootstrap, "before", {(TOPIC, 0): 3})
        code, output = adopted.adopt("--execute")
        assert code == 0, output
        for round_number in range(2):
            produce(broker.bootstrap, round_number * RECORDS)
            with adopted.serving(**settings) as serving:
                serving.wait_for_line("Serving share consumers")
                assert sorted(consumed(share, RECORDS)) == [
                    *range(round_number * RECORDS, (round_number + 1) * RECORDS)
                ]
                [group] = ask(share, apis.SHARE_GROUP_DESCRIBE, 1, group_ids=[GROUP])["groups"]
                assert (group["error_code"], group["assignor_name"]) == (0, "simple")
                serving.kill()
