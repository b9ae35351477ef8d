"""The log as Kafka's own broker gives it, beside the serving process: both with the same files."""

import json
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.broker import workload
from support.broker.broker import Broker, java
from support.broker.data_folder import copy_log
from support.oracle.log_reader import read_log
from support.serve.kio_requests import ask
from support.serve.serving import Serving

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LOG, TOPIC = "__consumer_offsets", "log-as-a-broker"
FETCH, LIST_OFFSETS, METADATA = 1, 2, 3
COMMITS = {(TOPIC, 0): 3, (TOPIC, 1): 4}
GROUP = "log-as-a-broker-transactions"
FORMATTER = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """Addresses of a broker and of a server with its log, and where that is."""
    folder = tmp_path_factory.mktemp("log-as-a-broker")
    (folder / "broker").mkdir()
    with Broker(folder / "broker") as broker:
        workload.create_topic(broker.bootstrap, TOPIC, 2)
        workload.simple_commit(broker.bootstrap, GROUP, COMMITS)
        workload.aborted_transaction(broker.bootstrap, "first", GROUP, {(TOPIC, 0): 30})
        workload.committed_transaction(broker.bootstrap, "first", GROUP, {(TOPIC, 0): 31})
        workload.crossed_transactions(broker.bootstrap, GROUP, {(TOPIC, 0): 1}, {(TOPIC, 0): 2})
        workload.aborted_transaction(broker.bootstrap, "second", GROUP, {(TOPIC, 1): 40})
        workload.open_transaction(broker.bootstrap, "third", GROUP, {(TOPIC, 1): 41})
        workload.simple_commit(broker.bootstrap, GROUP, {(TOPIC, 1): 42})
        copy_log(broker.data_dir, folder / "log")
        with Serving(folder / "lake", folder / "log") as serving:
            yield broker.bootstrap, serving.bootstrap, folder / "log"


def place(log: Path) -> tuple[int, int]:
    """The log partition that has it all, and where it ends."""
    records = [record for record in read_log(log) if record.producer_id >= 0]
    (partition,) = {record.log_partition for record in records}
    return partition, max(of.log_offset for of in read_log(log) if of.log_partition == partition) + 1


def of_log(bootstrap: str) -> Any:
    (topic,) = ask(bootstrap, METADATA, 12, topics=[{"name": LOG, "topic_id": None}])["topics"]
    return topic


def test_fetch(both: tuple[str, str, Path]) -> None:
    *addresses, log = both
    partition, end = place(log)
    assert of_log(addresses[0])["is_internal"] == of_log(addresses[1])["is_internal"]
    for offset in (*range(end + 1), end + 1, -1):
        for level in (0, 1):
            answers = []
            for bootstrap in addresses:
                asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
                topics = [{"topic": LOG, "partitions": [asked]}]
                fields = {"max_wait": timedelta(0), "min_bytes": 0, "topics": topics, "forgotten_topics_data": []}
                answers.append(ask(bootstrap, FETCH, 12, isolation_level=level, **fields))
            assert answers[0] == answers[1], (offset, level)


def test_list_offsets(both: tuple[str, str, Path]) -> None:
    *addresses, log = both
    partition, _ = place(log)
    times = {of.log_timestamp + more for of in read_log(log) if of.log_partition == partition for more in (-1, 0, 1)}
    for version in range(1, 11):
        for level in (0, 1) if version > 1 else (0,):
            for time in (*times, *range(-9, 0)):
                asked = [{"partition_index": partition, "timestamp": time}]
                fields = {"topics": [{"name": LOG, "partitions": asked}], "isolation_level": level}
                first, second = (ask(bootstrap, LIST_OFFSETS, version, **fields) for bootstrap in addresses)
                assert first == second, (version, level, time)


def test_kafkas_own_consumer_prints_the_same(both: tuple[str, str, Path]) -> None:
    *addresses, log = both
    partition, _ = place(log)
    first, second = (printed(bootstrap, partition) for bootstrap in addresses)
    assert first == second
    offsets = [of["value"]["data"]["offset"] for of in first]
    assert 31 in offsets
    assert not {30, 40, 41, 42} & {*offsets}  # aborted, open, and behind the open one


def printed(bootstrap: str, partition: int) -> list[Any]:
    """What kafka-console-consumer prints of a log partition: one object behind the other, then why it ended."""
    options = f"--bootstrap-server {bootstrap} --topic {LOG} --partition {partition} --offset earliest"
    more = f"--isolation-level read_committed --formatter {FORMATTER} --timeout-ms 2500"
    command = java("org.apache.kafka.tools.consumer.ConsoleConsumer", *options.split(), *more.split())
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = []
    while text.startswith("{"):
        value, end = json.JSONDecoder().raw_decode(text)
        found.append(value)
        text = text[end:]
    return found
