"""Consumers of librdkafka change a running group to the other protocol one by one, and back.

Assignments of the strategy cooperative-sticky of librdkafka can contain user data, with which neither a broker nor this
server upgrades a group.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from support.serve.serving import Serving

pytestmark = pytest.mark.slow
PARTITIONS = 6


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("mixed-clients")
    settings = {"initial_rebalance_delay_ms": 0, "consumer_heartbeat_interval_ms": 200}
    with Serving(folder / "lake", folder / "log", topics={"t": PARTITIONS}, coordinator=settings) as serving:
        yield serving


def test_a_running_group_is_upgraded_and_downgraded(server: Serving) -> None:
    def consumer(protocol: str) -> Consumer:
        config: dict[str, object] = {"bootstrap.servers": server.bootstrap, "group.id": "mixed"}
        config |= {"group.protocol": protocol, "log_level": 0}
        if protocol == "classic":
            config |= {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 200}
        created = Consumer(config)
        created.subscribe(["t"])
        return created

    members: list[Consumer] = []
    for change in ("classic", "classic", "consumer", "-", "consumer", "-", "classic", "-", "-", "classic"):
        if change == "-":
            members.pop(0).close()
        else:
            members.append(consumer(change))
        _await_all_partitions(members)
    for member in members:
        member.close()


def _await_all_partitions(members: list[Consumer]) -> None:
    """Poll members until each partition is assigned to one of them, and all have some."""
    while True:
        for member in members:
            member.poll(0.02)
        assigned = [{partition.partition for partition in member.assignment()} for member in members]
        owned = sorted(partition for partitions in assigned for partition in partitions)
        if all(assigned) and owned == [*range(PARTITIONS)]:
            return
