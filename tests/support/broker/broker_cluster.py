"""A real Kafka cluster for tests, whose brokers and controllers are each a process of its own."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.broker.broker import Broker, free_ports
from support.broker.kafka_tools import OLDER

BROKERS = (2, 3)
"""The node ids of the brokers of a cluster with one controller and two brokers."""

_REPLICATED = ("offsets.topic", "transaction.state.log")


class BrokerCluster:
    """Controllers, whose node ids begin at 1, and after them brokers, which run inside `with`.

    Topics of coordinators have a replica on each broker. `overrides` are properties of all nodes. `controllers` are by
    node id, and `controller` is the first one.
    """

    def __init__(
        self,
        folder: Path,
        overrides: Mapping[str, str] | None = None,
        *,
        controllers: int = 1,
        brokers: int = len(BROKERS),
        version: str = OLDER,
    ) -> None:
        ports = dict(enumerate(free_ports(controllers), 1))
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in ports.items())
        settings = {f"{topic}.replication.factor": str(brokers) for topic in _REPLICATED}
        settings |= {"controller.quorum.voters": voters, **(overrides or {})}

        def node(number: int, role: str, **arguments: Any) -> Broker:
            properties = {"process.roles": role, "node.id": str(number), **settings}
            return Broker(_new(folder, f"{role}-{number}"), properties, version, **arguments)

        self.controllers: dict[int, Broker] = {}
        cluster_id: str | None = None
        for number, port in ports.items():
            self.controllers[number] = node(number, "controller", cluster_id=cluster_id, controller_port=port)
            cluster_id = self.controllers[number].cluster_id
        self._numbers = range(controllers + 1, controllers + brokers + 1)
        self.controller = self.controllers[1]
        self.brokers = [node(number, "broker", cluster_id=cluster_id) for number in self._numbers]

    @property
    def bootstrap(self) -> str:
        """Addresses of the PLAINTEXT listeners of all brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def __enter__(self) -> Self:
        try:
            for node in (*self.controllers.values(), *self.brokers):
                node.start()
            for broker in self.brokers:
                broker.await_active(self._numbers)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def _kill(self) -> None:
        for node in (*self.brokers, *self.controllers.values()):
            node.kill()


def _new(folder: Path, name: str) -> Path:
    (folder / name).mkdir(parents=True)
    return folder / name
