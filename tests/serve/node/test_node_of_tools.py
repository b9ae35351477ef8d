"""Tools that send requests to each node of a cluster, one of which is a serving process."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from offsetlake.kafka import error_codes
from offsetlake.serve.protocol import api_keys as apis
from support.broker.broker import Broker
from support.broker.kafka_tools import kafka_tool
from support.broker.workload import create_topic, simple_commit
from support.serve.adopted import LOG_PARTITIONS, NODE, Adopted, until
from support.serve.kio_requests import ask
from support.serve.serving import Serving

pytestmark = pytest.mark.long  # one broker of its own, whose groups are adopted

TOPIC, LOG, LATER = "node-tools", "__consumer_offsets", 1 << 20


@pytest.fixture(scope="module")
def adopted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adopted]:
    cluster = Adopted(tmp_path_factory.mktemp("tools"))
    with cluster.broker as broker:
        create_topic(broker.bootstrap, TOPIC, 1)
        simple_commit(broker.bootstrap, "before", {(TOPIC, 0): 1})
        code, output = cluster.adopt("--execute")
        assert code == 0, output
        yield cluster


@pytest.fixture(scope="module")
def node(adopted: Adopted) -> Iterator[Serving]:
    with adopted.serving() as serving:
        yield serving
        assert not [line for line in serving.said if "Traceback" in line or "unsupported API" in line]


@pytest.fixture(scope="module")
def broker(adopted: Adopted) -> Broker:
    return adopted.broker


def output(node: Serving, main: str, *arguments: str) -> str:
    done = kafka_tool(main, "--bootstrap-server", node.bootstrap, *arguments)
    return done.out + done.err


def features(bootstrap: str, version: int = 4) -> tuple[Any, Any]:
    """Return the supported and the finalized features that a node states."""
    answer = ask(bootstrap, apis.API_VERSIONS, version)
    supported, finalized = (sorted(answer[name], key=str) for name in ("supported_features", "finalized_features"))
    return supported, finalized


def epoch(bootstrap: str) -> int:
    """Return the epoch of the features, which is the newest offset of the metadata."""
    return int(ask(bootstrap, apis.API_VERSIONS, 4)["finalized_features_epoch"])


def test_features_are_those_of_the_cluster(node: Serving, broker: Broker) -> None:
    for version in (3, 4):
        assert features(node.bootstrap, version) == features(broker.bootstrap, version)
        assert features(node.bootstrap, version)[1]
    shown = {
        re.sub(r"Epoch: \d+", "", output(node, "org.apache.kafka.tools.FeatureCommand", "describe")) for _ in range(4)
    }
    assert (len(shown), "Feature: metadata.version" in shown.pop()) == (1, True), "whichever node it asks"


def test_features_are_read_again(node: Serving, broker: Broker) -> None:
    newest = epoch(broker.bootstrap)
    until(lambda: epoch(node.bootstrap) >= newest > 0, True)


def test_configs_of_all_brokers_are_described(node: Serving) -> None:
    tool = "kafka.admin.ConfigCommand"
    shown = output(node, tool, "--describe", "--entity-type", "brokers", "--all")
    found = {int(each) for each in re.findall(r"All configs for broker (\d+) are:", shown)}
    assert found == {1, NODE}
    own = output(node, tool, "--describe", "--entity-type", "brokers", "--all", "--entity-name", str(NODE))
    settings = dict(re.findall(r"^  ([a-z.]+)=(.*?) sensitive=", own, re.MULTILINE))
    assert (settings["node.id"], settings["offsets.topic.num.partitions"]) == (str(NODE), str(LOG_PARTITIONS))
    assert settings["advertised.listeners"] == f"PLAINTEXT://{node.bootstrap}"
    assert not [name for name in settings if "share" in name or "transaction" in name or "auto.create" in name]
    theirs = dict(re.findall(r"^  ([a-z.]+)=(.*?) sensitive=", shown, re.MULTILINE))
    assert settings.keys() <= theirs.keys(), "a broker has settings of the same names"


def test_configs_of_topics_are_relayed(node: Serving, broker: Broker) -> None:
    resources = [{"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None}]
    resources.append({"resource_type": 4, "resource_name": "", "configuration_keys": None})
    fields: dict[str, Any] = {"include_synonyms": True, "include_documentation": True}
    for version in apis.VERSIONS[apis.DESCRIBE_CONFIGS]:
        ours, theirs = (
            ask(bootstrap, apis.DESCRIBE_CONFIGS, version, resources=resources, **fields)
            for bootstrap in (node.bootstrap, broker.bootstrap)
        )
        assert ours == theirs
    own = {"resource_type": 4, "resource_name": str(NODE), "configuration_keys": ["node.id"]}
    mixed = ask(node.bootstrap, apis.DESCRIBE_CONFIGS, 4, resources=[*resources, own], **fields)["results"]
    assert sorted(row["resource_name"] for row in mixed) == ["", str(NODE), TOPIC]
    assert [row for row in mixed if row["resource_name"] == TOPIC] == theirs["results"][:1]


def test_log_folders_of_all_brokers_are_described(node: Serving, adopted: Adopted) -> None:
    shown = output(node, "org.apache.kafka.tools.LogDirsCommand", "--describe")
    (line,) = [each for each in shown.splitlines() if each.startswith("{")]
    folders = {row["broker"]: row["logDirs"] for row in json.loads(line)["brokers"]}
    assert folders.keys() == {1, NODE}
    (own,) = folders[NODE]
    assert (own["error"], own["logDir"]) == (None, str(adopted.log.resolve()))
    assert {row["partition"] for row in own["partitions"]} == {f"{LOG}-{number}" for number in range(LOG_PARTITIONS)}
    (answer,) = ask(node.bootstrap, apis.DESCRIBE_LOG_DIRS, 5, topics=None)["results"]
    assert answer["is_cordoned"]


def test_transactions_of_all_brokers_are_described(node: Serving) -> None:
    tool = "org.apache.kafka.tools.TransactionsCommand"
    assert output(node, tool, "list").split()[:2] == ["TransactionalId", "Coordinator"]
    producers = output(node, tool, "describe-producers", "--topic", LOG, "--partition", "0")
    assert producers.split()[:2] == ["ProducerId", "ProducerEpoch"]
    assert output(node, tool, "find-hanging", "--broker-id", str(NODE)).split()[:2] == ["Topic", "Partition"]
    described = ask(node.bootstrap, apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["t"])["transaction_states"]
    assert [row["error_code"] for row in described] == [error_codes.NOT_COORDINATOR]


def test_requests_for_partitions_are_answered_as_by_their_leader(node: Serving) -> None:
    unknown, refused = error_codes.UNKNOWN_TOPIC_OR_PARTITION, error_codes.NOT_LEADER_OR_FOLLOWER
    topics = [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]} for name in (LOG, TOPIC, "no-topic")]
    deleted = ask(node.bootstrap, apis.DELETE_RECORDS, 2, topics=topics)["topics"]
    assert [topic["partitions"][0]["error_code"] for topic in deleted] == [
        error_codes.INVALID_TOPIC_EXCEPTION,
        refused,
        unknown,
    ]
    (log,) = ask(node.bootstrap, apis.METADATA, 12, topics=[{"topic_id": None, "name": LOG}])["topics"]
    current = min(row["leader_epoch"] for row in log["partitions"] if row["partition_index"] == 0)
    ends = ask(
        node.bootstrap,
        apis.LIST_OFFSETS,
        5,
        topics=[{"name": LOG, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    )
    end = ends["topics"][0]["partitions"][0]["offset"]
    for version in apis.BROKER_VERSIONS[apis.OFFSET_FOR_LEADER_EPOCH]:
        asked = [
            {"topic": name, "partitions": [{"partition": 0, "current_leader_epoch": given, "leader_epoch": epoch}]}
            for name, given, epoch in (
                (LOG, current, current), (LOG, -1, LATER), (LOG, current - 1, 0), (LOG, current + 1, 0), (TOPIC, -1, 0),
            )
        ]  # fmt: skip
        answers = ask(node.bootstrap, apis.OFFSET_FOR_LEADER_EPOCH, version, topics=asked)["topics"]
        found = [topic["partitions"][0] for topic in answers]
        assert [row["error_code"] for row in found] == [0, 0, 74, 75, refused]
        assert [(row["leader_epoch"], row["end_offset"]) for row in found[:2]] == [(current, end), (-1, -1)]
