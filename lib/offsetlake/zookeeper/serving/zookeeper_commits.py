"""The feature of a serving process that commits to ZooKeeper, too."""

from typing import TYPE_CHECKING

from offsetlake.serve.core import Core
from offsetlake.serve.feature import Feature
from offsetlake.zookeeper.serving.dual_commits import DualCommits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric


class ZooKeeperCommits(Feature):
    """Runs dual commits, or ZooKeeper as the store of offsets, beside the core."""

    def __init__(self, core: Core, commits: DualCommits) -> None:
        self._core, self._commits = core, commits

    async def offsets_served(self) -> None:
        """Begin to write what was committed."""
        self._core.watch(self._commits.run())

    def metrics(self) -> "Iterator[Metric]":
        """Yield how far ZooKeeper is behind the log."""
        from offsetlake.zookeeper.serving.metrics import zookeeper_metrics  # noqa: PLC0415 - few processes have metrics

        return zookeeper_metrics(self._commits.progress)

    async def end(self) -> None:
        """Write the last changes, as far as ZooKeeper responds."""
        await self._commits.close()
