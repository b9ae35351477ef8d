"""Features of a process that has a cluster: the metadata of the cluster, and being one of its nodes."""

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from offsetlake.node.broker import Broker
from offsetlake.node.client_apis import ClientApis
from offsetlake.node.cluster_transactions import ClusterTransactions
from offsetlake.node.configs import ConfigsInCluster
from offsetlake.node.deleted_topics import DeletedTopics
from offsetlake.node.forwarding import Forwarding
from offsetlake.node.leadership import Leadership
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.node.topic_ends import topic_ends
from offsetlake.serve.core import Core
from offsetlake.serve.feature import Feature
from offsetlake.serve.net.handlers import Handlers, awaited
from offsetlake.serve.protocol.api_keys import DESCRIBE_CONFIGS, WRITE_TXN_MARKERS
from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot
from offsetlake.serve.transactions.offset_commit import TxnOffsetCommit

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class ClusterMetadata(Feature):
    """Keeps the metadata of the cluster up to date."""

    def __init__(self, core: Core, cluster: Cluster) -> None:
        self._core, self._cluster = core, cluster

    async def start(self) -> None:
        """Read the metadata again and again from now on."""
        self._core.watch(self._cluster.run())

    async def groups_served(self) -> None:
        """Wait for the first metadata."""
        await self._cluster.loaded()

    def readiness(self) -> Mapping[str, Any]:
        """Return whether the cluster answered the last time, and the age of the metadata."""
        cluster = self._cluster
        return {"cluster": {"available": cluster.available, "metadata_age_seconds": cluster.age_seconds}}

    def metrics(self) -> "Iterator[Metric]":
        """Yield the metrics of the metadata."""
        from offsetlake.node.metrics import cluster_metrics  # noqa: PLC0415 - few processes have metrics

        return cluster_metrics(self._cluster)


class Node(Feature):
    """Answers as a node of a cluster that leads the log, with the help of the others."""

    def __init__(self, core: Core, leadership: Leadership) -> None:
        cluster = leadership.cluster
        self._core, self._cluster = core, cluster
        self._forwarding = Forwarding(cluster, relays=not core.security.has_logins())
        self._client_apis = ClientApis(self._forwarding, core.cluster_apis, core.reads.tasks)
        self._transactions = ClusterTransactions(cluster, core.store, core.writes)
        self._deleted_topics = DeletedTopics(cluster, core.store, core.writes, core.log_partition)
        self._broker = Broker(core.settings, leadership)
        core.dispatcher.forwarder = self._forwarding
        core.job_socket.topic_ends = partial(topic_ends, cluster)

    def handlers(self) -> Handlers:
        """Return the handlers of transactions, and of what describes this node and the cluster."""
        core = self._core
        configs = ConfigsInCluster(
            core.settings, core.security, core.topics, lambda: core.cluster_apis.address, self._forwarding
        )
        return {
            WRITE_TXN_MARKERS: self._transactions.write_markers,
            DESCRIBE_CONFIGS: awaited(core.reads.tasks, configs.describe_in_cluster),
            **TxnOffsetCommit(core.store, core.topics, core.writes, core.commits, self._transactions).handlers(),
            **self._client_apis.handlers(),
        }

    async def join(self) -> None:
        """Register as a broker, and wait until this process leads the log; raise errors as `Broker.start`."""
        await self._broker.start(self._core.cluster_apis.address)
        await self._forwarding.load()
        self._core.watch(self._forwarding.run())

    def load(self, snapshot: MappedSnapshot) -> None:
        """Notice the topics that were deleted while this process did not run."""
        self._deleted_topics.load(snapshot)

    async def run(self) -> None:
        """Be a broker, and delete the offsets of deleted topics; raise errors as `Broker.run`."""
        await asyncio.gather(self._broker.run(), self._deleted_topics.run(lambda: self._broker.epoch))

    async def stop(self) -> None:
        """Unregister."""
        await self._broker.stop()

    async def close(self) -> None:
        """Close the connections to other nodes."""
        self._transactions.close()
        self._client_apis.close()
        self._forwarding.close()
