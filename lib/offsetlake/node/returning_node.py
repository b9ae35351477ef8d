"""A node that gives its log back to brokers, and serves no groups meanwhile."""

import asyncio

from offsetlake.node.handover.returning import Returning, recovered_ends
from offsetlake.node.leadership import Leadership
from offsetlake.node.node import Node
from offsetlake.serve.core import Core


class ReturningNode(Node):
    """Registers as a broker whose log others copy, until they lead all of its partitions."""

    replaces_groups = True

    def __init__(self, core: Core, leadership: Leadership) -> None:
        super().__init__(core, leadership)
        self._ends: dict[int, int] = {}

    async def join(self) -> None:
        """Repair what a crash left incomplete, and register; raise errors as `Broker.start`."""
        core = self._core
        self._ends = await asyncio.to_thread(recovered_ends, core.folder, core.settings.log_partitions)
        await self._broker.start(core.cluster_apis.address)
        core.writes.watermarks.load(self._ends)

    async def run(self) -> None:
        """Give the log back, then leave the cluster; raise errors as `Returning.run`."""
        settings, followers = self._core.settings, self._core.reads.followers
        returning = Returning(settings, self._cluster, self._broker.epoch, followers, self._ends)
        await returning.run()
        await self._broker.stop()
        await returning.unregister()
