"""The test suites of other projects' clients, unmodified: what passes at a broker passes through a node, too."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.broker.kafka_tools import NEWER
from support.broker.workload import create_topic, simple_commit
from support.serve.adopted import Adopted
from support.serve.client_suites import KAFKA_GO, KGO, kafka_go, kgo

pytestmark = pytest.mark.long  # brokers of their own, and suites that wait for rebalances

VERSIONS = [NEWER, "4.4.0"]
RECORDS = 5000
KGO_TESTS = "TestGroupETL|TestTxnEtl|TestGroupSimple|TestConsumeRegex"
WITHOUT_PLACEMENTS = "Test848RegexBrokerResolves"
"""Run since Kafka 4.3. Before, new topics can be placed on the node, which moves them away: then this test of franz-go,
which gives a consumer of two new topics 30 s, can be too late."""

KAFKA_GO_APIS = (
    "OffsetCommit|DeleteOffset|DeleteGroups|DescribeGroups|ListGroups|Heartbeat|JoinGroup|SyncGroup|LeaveGroup"
)
KAFKA_GO_TESTS = f"TestConsumerGroup|TestClient({KAFKA_GO_APIS})|TestOffsetFetchRequest.*"
"""Without the tests of its readers, of which three call a function that is nil, and the others end after 10 to 30 s."""


@pytest.mark.skipif(not KGO.exists(), reason="not built: `make .tools/kgo.test` needs Go")
@pytest.mark.parametrize("version", VERSIONS)
def test_franz_go(version: str, tmp_path: Path) -> None:
    """Groups of both protocols, static members, regular expressions, and chains of groups that copy exactly once."""
    tests = KGO_TESTS if version == NEWER else f"{KGO_TESTS}|{WITHOUT_PLACEMENTS}"
    passed = compared(version, tmp_path, lambda bootstrap: kgo(bootstrap, tests, RECORDS))
    assert passed >= {"TestGroupETL", "TestTxnEtl"}


@pytest.mark.skipif(not KAFKA_GO.exists(), reason="not built: `make .tools/kafka-go.test` needs Go")
def test_kafka_go(tmp_path: Path) -> None:
    """Requests about groups; before Kafka 4.3, new topics can be placed on the node, and the suite does not retry."""
    assert "TestConsumerGroup" in compared("4.4.0", tmp_path, lambda bootstrap: kafka_go(bootstrap, KAFKA_GO_TESTS))


def compared(version: str, folder: Path, run: Callable[[str], set[str]]) -> set[str]:
    """Run tests at a broker and, after the adoption, through the node; return the tests that passed at both."""
    settings = {"auto.create.topics.enable": "true"}  # Kafka's default, on which kafka-go relies
    adopted = Adopted(folder, version=version, features=(), **settings)
    with adopted.broker as broker:
        create_topic(broker.bootstrap, "before", 1)
        simple_commit(broker.bootstrap, "before", {("before", 0): 1})
        at_broker = run(broker.bootstrap)
        code, output = adopted.adopt("--execute")
        assert code == 0, output
        with adopted.serving(coordinator={"initial_rebalance_delay_ms": 0}) as serving:
            through_node = run(serving.bootstrap)
    assert through_node == at_broker
    assert [line for line in serving.said if "Traceback" in line] == []
    return through_node
