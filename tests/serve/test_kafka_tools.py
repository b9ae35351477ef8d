"""Kafka's tools against a server without a cluster, which has neither the records nor the ends of topics."""

import json
import re
import subprocess
from collections.abc import Iterator

import pytest

from support.broker.kafka_tools import GROUP_COMMAND, NEWER, group_command, java, kafka_tool
from support.broker.workload import simple_commit
from support.serve.adopted import committed
from support.serve.serving import Serving

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC, GROUP, NODE = "tools", "tools-group", "0"
OFFSETS = {(TOPIC, 0): 42, (TOPIC, 1): 7}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("tools")
    with Serving(folder / "lake", folder / "log", topics={TOPIC: 2}) as running:
        simple_commit(running.bootstrap, GROUP, OFFSETS)
        yield running
        assert not [line for line in running.said if "Traceback" in line or "unsupported API" in line]


def output(serving: Serving, main: str, *arguments: str) -> str:
    done = kafka_tool(main, "--bootstrap-server", serving.bootstrap, *arguments)
    return done.out + done.err


def test_node_is_described(serving: Serving) -> None:
    settings = output(serving, "kafka.admin.ConfigCommand", "--describe", "--entity-type", "brokers", "--all")
    assert f"All configs for broker {NODE} are:" in settings
    assert re.search(
        rf"\n  node.id={NODE} sensitive=false synonyms=\{{STATIC_BROKER_CONFIG:node.id={NODE}\}}", settings
    )
    loggers = output(
        serving, "kafka.admin.ConfigCommand", "--describe", "--entity-type", "broker-loggers", "--entity-name", NODE
    )
    assert "\n  root=" in loggers
    features = output(serving, "org.apache.kafka.tools.FeatureCommand", "describe")
    assert re.search(r"Feature: transaction.version.*FinalizedVersionLevel: 2", features)
    directories = output(serving, "org.apache.kafka.tools.LogDirsCommand", "--describe")
    (line,) = [each for each in directories.splitlines() if each.startswith("{")]
    (broker,) = json.loads(line)["brokers"]
    (directory,) = broker["logDirs"]
    assert (broker["broker"], directory["error"]) == (int(NODE), None)
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert len(sizes) == 50
    assert sum(sizes.values()) > 0


def test_topic_is_described(serving: Serving) -> None:
    described = output(serving, "org.apache.kafka.tools.TopicCommand", "--describe", "--topic", TOPIC)
    assert f"Topic: {TOPIC}\t" in described
    assert described.count("Leader: none") == 2
    configs = output(
        serving, "kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", TOPIC
    )
    assert f"Dynamic configs for topic {TOPIC} are:" in configs


def test_transactions_are_described(serving: Serving) -> None:
    tool = "org.apache.kafka.tools.TransactionsCommand"
    listed = output(serving, tool, "list")
    assert listed.split() == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    producers = output(serving, tool, "describe-producers", "--topic", "__consumer_offsets", "--partition", "0")
    assert producers.split()[:2] == ["ProducerId", "ProducerEpoch"]
    hanging = output(serving, tool, "find-hanging", "--broker-id", NODE)
    assert hanging.split()[:3] == ["Topic", "Partition", "ProducerId"]


@pytest.mark.parametrize("version", [NEWER, pytest.param("4.4.0", marks=pytest.mark.long)])
def test_unknown_ends_and_lag_are_no_numbers(serving: Serving, version: str) -> None:
    """Tools since Kafka 4.2 show `-`; older ones have no text for it, and fail, except with `--state`."""
    arguments = ("--describe", "--group", GROUP)
    command = java(GROUP_COMMAND, "--bootstrap-server", serving.bootstrap, *arguments, version=version)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [line.split()[1:6] for line in done.stdout.splitlines() if line.startswith(GROUP)]
    assert rows == [[TOPIC, str(number), str(offset), "-", "-"] for (_, number), offset in OFFSETS.items()], done
    older = group_command(serving.bootstrap, *arguments, "--timeout", "1000")
    assert ("Error: Executing consumer group command failed" in older.out, TOPIC in older.out) == (True, False)
    assert GROUP in group_command(serving.bootstrap, "--describe", "--state", "--group", GROUP).out


@pytest.mark.parametrize("target", [["--to-latest"], ["--to-earliest"], ["--to-datetime", "2026-01-01T00:00:00.000"]])
def test_reset_to_an_unknown_offset_is_refused(serving: Serving, target: list[str]) -> None:
    reset = ("--reset-offsets", "--execute", "--group", GROUP, "--topic", f"{TOPIC}:0", "--timeout", "1000")
    done = group_command(serving.bootstrap, *reset, *target)
    failures = ("Error: Executing consumer group command failed", "Invalid negative offset")
    assert any(failure in done.out + done.err for failure in failures)
    assert committed(serving.bootstrap, [GROUP]) == {GROUP: OFFSETS}


def test_reset_within_an_unknown_range(serving: Serving) -> None:
    """By tools before Kafka 4.2; later ones refuse partitions without a leader."""
    group = "tools-reset"
    simple_commit(serving.bootstrap, group, {(TOPIC, 0): 42})
    reset = ("--reset-offsets", "--execute", "--group", group, "--topic", f"{TOPIC}:0")
    for target, offset in ((("--to-offset", "50"), 50), (("--shift-by", "-20"), 30)):
        done = group_command(serving.bootstrap, *reset, *target)
        assert re.search(rf"{group}\s+{TOPIC}\s+0\s+{offset}", done.out), done
        assert committed(serving.bootstrap, [group]) == {group: {(TOPIC, 0): offset}}
