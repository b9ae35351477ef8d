"""Fetch and ListOffsets of the log: a broker and the serving process, with the same files, give the same responses."""

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
COMMITTED_OFFSETS = [*COMMITS.values(), 31, 1, 2]
"""The offsets up to the open transaction; those of aborted transactions precede the last ones of them."""

FORMATTER = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """The addresses of a broker and of a server with a copy of its log, and the folder of that copy."""
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


def partition_and_end(log: Path) -> tuple[int, int]:
    """Return the log partition with all transactions, and its log end offset."""
    records = [record for record in read_log(log) if record.producer_id >= 0]
    (partition,) = {record.log_partition for record in records}
    return partition, max(record.log_offset for record in read_log(log) if record.log_partition == partition) + 1


def log_topic(bootstrap: str) -> Any:
    (topic,) = ask(bootstrap, METADATA, 12, topics=[{"name": LOG, "topic_id": None}])["topics"]
    return topic


@pytest.mark.long
def test_fetch_matches_the_broker(both: tuple[str, str, Path]) -> None:
    *addresses, log = both
    partition, end = partition_and_end(log)
    assert log_topic(addresses[0])["is_internal"] == log_topic(addresses[1])["is_internal"]
    for offset in (*range(end + 1), end + 1, -1):
        for level in (0, 1):
            answers = []
            for bootstrap in addresses:
                fetch = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
                topics = [{"topic": LOG, "partitions": [fetch]}]
                fields = {"max_wait": timedelta(0), "min_bytes": 0, "topics": topics, "forgotten_topics_data": []}
                answers.append(ask(bootstrap, FETCH, 12, isolation_level=level, **fields))
            assert answers[0] == answers[1], (offset, level)


@pytest.mark.long
def test_list_offsets_matches_the_broker(both: tuple[str, str, Path]) -> None:
    *addresses, log = both
    partition, _ = partition_and_end(log)
    records = [record for record in read_log(log) if record.log_partition == partition]
    times = {record.log_timestamp + difference for record in records for difference in (-1, 0, 1)}
    for version in range(1, 11):
        for level in (0, 1) if version > 1 else (0,):
            for time in (*times, *range(-9, 0)):
                partitions = [{"partition_index": partition, "timestamp": time}]
                fields = {"topics": [{"name": LOG, "partitions": partitions}], "isolation_level": level}
                first, second = (ask(bootstrap, LIST_OFFSETS, version, **fields) for bootstrap in addresses)
                assert first == second, (version, level, time)


@pytest.mark.long
def test_console_consumer_prints_the_same_records(both: tuple[str, str, Path]) -> None:
    *addresses, log = both
    partition, _ = partition_and_end(log)
    first, second = (printed(bootstrap, partition) for bootstrap in addresses)
    assert first == second
    assert [record["value"]["data"]["offset"] for record in first] == COMMITTED_OFFSETS


def printed(bootstrap: str, partition: int) -> list[Any]:
    """Return the records that kafka-console-consumer prints: as many as there are committed offsets."""
    options = f"--bootstrap-server {bootstrap} --topic {LOG} --partition {partition} --offset earliest"
    more = f"--isolation-level read_committed --formatter {FORMATTER}"
    more += f" --max-messages {len(COMMITTED_OFFSETS)} --timeout-ms 120000"
    command = java("org.apache.kafka.tools.consumer.ConsoleConsumer", *options.split(), *more.split())
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = []
    while text.startswith("{"):
        value, end = json.JSONDecoder().raw_decode(text)
        found.append(value)
        text = text[end:]
    return found
