"""Sends requests to the active controller of a cluster, whose address the brokers know (DescribeQuorum, KIP-853)."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from offsetlake.errors import LogUnavailable, Refused
from offsetlake.kafka.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    NONE,
    NOT_CONTROLLER,
    NOT_LEADER_OR_FOLLOWER,
)
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.node.any_node import Address, AnyNode, VersionUnsupported
from offsetlake.node.requests import NodeResponse
from offsetlake.serve.protocol.encoding import Values

DESCRIBE_QUORUM = 55
_FIRST_VERSION_WITH_NODES = 2
_QUORUM = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}

SendToBroker = Callable[[int, range, Values], Awaitable[NodeResponse]]


class Controllers:
    """The controllers of a cluster; `send_to_broker` sends a request to any broker."""

    def __init__(self, settings: KafkaConnection, send_to_broker: SendToBroker) -> None:
        self._settings, self._send_to_broker = settings, send_to_broker
        self._node = AnyNode(settings)
        self._addresses: list[Address] = []

    async def send(self, api: int, version: int, values: Values, newest: int | None = None) -> Any:
        """Send a request to the active controller and return the fields of its response.

        The version is the newest one that the controller supports up to `newest`, which is `version` by default.

        Raises:
            LogUnavailable: No controller answers.
            Refused: The cluster does not say where its controllers are, or denies CLUSTER_ACTION.
        """
        if not self._addresses:
            self._addresses = await self._find()
        try:
            versions = range(version, (newest or version) + 1)
            response = await self._node.send(self._addresses, api, versions, values, _refused)
        except LogUnavailable as failure:
            names = ", ".join(f"{host}:{port}" for host, port in self._addresses)
            with suppress(LogUnavailable):  # a broker that waits for a controller that hangs; the others are known
                self._addresses = await self._find()
            raise LogUnavailable(
                f"No controller of the cluster at {names} answers by {self._settings.security_protocol} ({failure}): "
                "this process must reach their listener. A managed service does not allow that."
            ) from failure
        entity = response.entity()
        if _error_code(entity) == CLUSTER_AUTHORIZATION_FAILED:
            raise Refused(
                "The controller denies this process CLUSTER_ACTION on the cluster (CLUSTER_AUTHORIZATION_FAILED): "
                "grant its principal CLUSTER_ACTION, ALTER, DESCRIBE and DESCRIBE_CONFIGS on the cluster."
            )
        return entity

    async def metadata_end(self) -> int:
        """Return the offset of the last committed record of the metadata log; raise errors as `send`."""
        answer = await self.send(DESCRIBE_QUORUM, _FIRST_VERSION_WITH_NODES, _QUORUM)
        _check(answer)
        return int(answer.topics[0].partitions[0].high_watermark) - 1

    async def _find(self) -> list[Address]:
        """Return the addresses of the controllers, the active one first."""
        versions = range(_FIRST_VERSION_WITH_NODES, _FIRST_VERSION_WITH_NODES + 1)
        try:
            answer = (await self._send_to_broker(DESCRIBE_QUORUM, versions, _QUORUM)).entity()
        except VersionUnsupported as failure:
            raise Refused(
                f"The brokers do not support DescribeQuorum version {_FIRST_VERSION_WITH_NODES}, which names the "
                "controllers: the cluster uses ZooKeeper, or is older than Kafka 3.9. Upgrade it first."
            ) from failure
        if answer.error_code == CLUSTER_AUTHORIZATION_FAILED:
            raise Refused("The brokers deny this process DESCRIBE on the cluster: grant it to its principal.")
        _check(answer)
        if not answer.nodes:
            raise Refused(
                "The brokers do not name the controllers of the cluster. A managed service does not expose them."
            )
        leader = answer.topics[0].partitions[0].leader_id
        nodes = sorted(answer.nodes, key=lambda node: node.node_id != leader)
        return [(listener.host, listener.port) for node in nodes for listener in node.listeners[:1]]

    def close(self) -> None:
        """Close the connection."""
        self._node.close()


def _check(quorum: Any) -> None:
    """Raise LogUnavailable if a response to DescribeQuorum has an error, as during an election of a controller."""
    if failed := [code for code in _quorum_codes(quorum) if code != NONE]:
        raise LogUnavailable(f"DescribeQuorum failed with the error code {failed[0]}.")


def _refused(response: NodeResponse) -> str | None:
    """Return why another controller has to be asked."""
    entity = response.entity()
    refuses = _error_code(entity) == NOT_CONTROLLER
    if response.api == DESCRIBE_QUORUM:
        refuses |= NOT_LEADER_OR_FOLLOWER in _quorum_codes(entity)
    return "not the active controller" if refuses else None


def _quorum_codes(quorum: Any) -> list[int]:
    """Return the error codes of a response to DescribeQuorum: its own, and those of partitions."""
    codes = (quorum.error_code, *(row.error_code for topic in quorum.topics for row in topic.partitions))
    return [int(code) for code in codes]


def _error_code(entity: Any) -> int:
    """Return the error code of a response; CreateTopics has one for each topic, the same if the request was refused."""
    return int(entity.error_code if hasattr(entity, "error_code") else entity.topics[0].error_code)
