"""A real Kafka cluster for tests: two brokers and one controller, each a process of its own."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from support.broker.broker import Broker

CONTROLLER, BROKERS = 1, (2, 3)
"""The node ids."""

_REPLICATED = ("offsets.topic", "transaction.state.log")


class BrokerCluster:
    """Two brokers and a controller, which run inside `with`; topics of coordinators have a replica on each broker.

    `overrides` are properties of all nodes.
    """

    def __init__(self, folder: Path, overrides: Mapping[str, str] | None = None) -> None:
        settings = {f"{topic}.replication.factor": str(len(BROKERS)) for topic in _REPLICATED} | dict(overrides or {})
        self.controller = Broker(_new(folder, "controller"), {"process.roles": "controller", **settings})
        quorum = {"controller.quorum.voters": f"{CONTROLLER}@{self.controller.controller}"}
        self.brokers = [
            Broker(
                _new(folder, f"broker-{node}"),
                {"process.roles": "broker", "node.id": str(node), **quorum, **settings},
                cluster_id=self.controller.cluster_id,
            )
            for node in BROKERS
        ]

    @property
    def bootstrap(self) -> str:
        """Addresses of the PLAINTEXT listeners of both brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def __enter__(self) -> Self:
        try:
            for node in (self.controller, *self.brokers):
                node.start()
            for broker in self.brokers:
                broker.await_active(BROKERS)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def _kill(self) -> None:
        for node in (*self.brokers, self.controller):
            node.kill()


def _new(folder: Path, name: str) -> Path:
    (folder / name).mkdir(parents=True)
    return folder / name
