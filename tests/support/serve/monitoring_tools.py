"""Monitoring tools of other projects, which are programs in `.tools`, and the lag that they show over a node."""

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from support.broker.broker import free_ports
from support.broker.kafka_tools import group_command
from support.serve.client_suites import TOOLS

Lag = dict[tuple[str, str, int], int]
"""Lag by group, topic and partition."""

Tool = Callable[[str, Path, str], AbstractContextManager[Callable[[], Lag]]]
"""Runs a tool over a bootstrap server with a folder for its files, and yields what reads the lag of a group from it."""

SECONDS = 60
_LABELS = re.compile(r'(\w+)="(.*?)"')
_BURROW = """
[client-profile.default]
kafka-version = "3.5.0"
[cluster.local]
class-name = "kafka"
client-profile = "default"
servers = ["{bootstrap}"]
offset-refresh = 1
[consumer.local]
class-name = "kafka"
client-profile = "default"
cluster = "local"
servers = ["{bootstrap}"]
[httpserver.default]
address = "127.0.0.1:{port}"
"""


def kafka_tool(bootstrap: str, group: str) -> Lag:
    """Return the lag that `kafka-consumer-groups --describe` shows."""
    shown = group_command(bootstrap, "--describe", "--group", group).out.splitlines()
    rows = [line.split() for line in shown if line.startswith(f"{group} ")]
    return {(row[0], row[1], int(row[2])): int(row[5]) for row in rows}


@contextmanager
def kafka_exporter(bootstrap: str, _folder: Path, group: str) -> Iterator[Callable[[], Lag]]:
    (port,) = free_ports(1)
    options = [f"--kafka.server={bootstrap}", f"--web.listen-address=127.0.0.1:{port}"]
    with _started("kafka_exporter", *options):
        yield partial(_scraped, port, "kafka_consumergroup_lag", ("consumergroup", "topic", "partition"), group)


@contextmanager
def kminion(bootstrap: str, _folder: Path, group: str, mode: str = "adminApi") -> Iterator[Callable[[], Lag]]:
    (port,) = free_ports(1)
    settings = {"MINION_CONSUMERGROUPS_SCRAPEMODE": mode, "EXPORTER_PORT": str(port), "EXPORTER_HOST": "127.0.0.1"}
    metric = "kminion_kafka_consumer_group_topic_partition_lag"
    with _started("kminion", KAFKA_BROKERS=bootstrap, **settings):
        yield partial(_scraped, port, metric, ("group_id", "topic_name", "partition_id"), group)


@contextmanager
def kafkactl(bootstrap: str, folder: Path, group: str) -> Iterator[Callable[[], Lag]]:
    command = [str(TOOLS / "kafkactl"), "describe", "consumer-group", group, "--output", "json"]
    settings = os.environ | {"BROKERS": bootstrap, "HOME": str(folder)}

    def read() -> Lag:
        done = subprocess.run(command, env=settings, capture_output=True, text=True, check=True)
        topics = json.loads(done.stdout)["Topics"]
        return {
            (group, topic["Name"], each["Partition"]): each["Lag"] for topic in topics for each in topic["Partitions"]
        }

    yield read


@contextmanager
def burrow(bootstrap: str, folder: Path, group: str) -> Iterator[Callable[[], Lag]]:
    (port,) = free_ports(1)
    (folder / "burrow.toml").write_text(_BURROW.format(bootstrap=bootstrap, port=port))

    def read() -> Lag:
        answer = json.loads(_page(port, f"/v3/kafka/local/consumer/{group}/lag") or "{}")
        partitions = answer.get("status", {}).get("partitions", ())
        return {(group, each["topic"], each["partition"]): each["current_lag"] for each in partitions}

    with _started("Burrow", f"--config-dir={folder}"):
        yield read


@contextmanager
def _started(name: str, *options: str, **settings: str) -> Iterator[None]:
    """Run a tool whose environment contains settings."""
    command = [str(TOOLS / name), *options]
    process = subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        process.wait(SECONDS)


def _scraped(port: int, metric: str, labels: tuple[str, str, str], group: str) -> Lag:
    """Return the lag of a group in metrics for Prometheus."""
    found: Lag = {}
    for line in _page(port, "/metrics").splitlines():
        name, _, rest = line.partition("{")
        if name == metric:
            values = dict(_LABELS.findall(rest))
            group_id, topic, partition = (values[label] for label in labels)
            found[group_id, topic, int(partition)] = int(float(rest.rpartition(" ")[2]))
    return {key: lag for key, lag in found.items() if key[0] == group}


def _page(port: int, path: str) -> str:
    """Return a page of a tool, nothing before it answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=SECONDS) as answer:
            text: str = answer.read().decode()
            return text
    except OSError:
        return ""
