"""Monitoring tools of other projects show over a node the lag that Kafka's tool shows."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from confluent_kafka import Producer

from support.broker.workload import create_topic, simple_commit
from support.serve.adopted import Adopted, until
from support.serve.client_suites import TOOLS
from support.serve.monitoring_tools import Tool, burrow, kafka_exporter, kafka_tool, kafkactl, kminion
from support.serve.reading import Reading

pytestmark = pytest.mark.long  # a broker of its own, and tools that are installed by hand

TOPIC, PARTITIONS, RECORDS = "monitored", 3, 30
COMMITTED = {(TOPIC, number): 3 * number for number in range(PARTITIONS)}
LAG = {"behind": [10, 7, 4], "reads": [0, 0, 0]}
VARIANTS = {
    "kafka_exporter": kafka_exporter,
    "kminion": kminion,
    "kminion-offsetsTopic": partial(kminion, mode="offsetsTopic"),
    "kafkactl": kafkactl,
    "Burrow": burrow,
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a node whose cluster has a group without members and one whose member has read everything."""
    adopted = Adopted(tmp_path_factory.mktemp("monitored"), features=())
    with adopted.broker as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(RECORDS):
            producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
        assert producer.flush() == 0
        simple_commit(broker.bootstrap, "behind", COMMITTED)
        code, output = adopted.adopt("--execute")
        assert code == 0, output
        with adopted.serving() as serving:
            reading = Reading(serving.bootstrap, "reads", TOPIC)
            try:
                reading.wait_for(RECORDS)
                yield serving.bootstrap
            finally:
                reading.stop()


def if_installed(name: str) -> ParameterSet:
    """Return a parameter that is skipped before a broker is started for it."""
    program = name.partition("-")[0]
    reason = f"{program} is not in .tools: CONTRIBUTING.md has the command that installs it"
    return pytest.param(name, marks=pytest.mark.skipif(not (TOOLS / program).exists(), reason=reason))


@pytest.mark.parametrize("group", sorted(LAG))
@pytest.mark.parametrize("name", [if_installed(name) for name in VARIANTS])
def test_lag_is_that_of_kafkas_tool(name: str, group: str, bootstrap: str, tmp_path: Path) -> None:
    expected = {(group, TOPIC, partition): lag for partition, lag in enumerate(LAG[group])}
    until(lambda: kafka_tool(bootstrap, group), expected)
    tool: Tool = VARIANTS[name]
    with tool(bootstrap, tmp_path, group) as lag:
        until(lag, expected)
