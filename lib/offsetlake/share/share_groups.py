"""The features of a serving process that coordinate share groups, and serve their consumers."""

import logging
from functools import partial
from typing import TYPE_CHECKING

from offsetlake.log.positions import SHARE_STATE_TOPIC
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.serve.core import Core
from offsetlake.serve.feature import Feature
from offsetlake.serve.net.accept import accept
from offsetlake.serve.net.client import Client
from offsetlake.serve.net.connection import Connection
from offsetlake.serve.net.handlers import Handlers
from offsetlake.serve.net.login import Login
from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot
from offsetlake.share.heartbeats import ShareHeartbeats
from offsetlake.share.initializer import Initializer
from offsetlake.share.listener import ShareListener
from offsetlake.share.start_offsets import ShareOffsetApis
from offsetlake.share.state.apis import ShareStateApis
from offsetlake.share.state.log import ShareStateLog
from offsetlake.share.state.placement import check_heads
from offsetlake.share.state.share_states import ShareStates

if TYPE_CHECKING:
    from offsetlake.serve.net.acceptor import Acceptor

LOG = logging.getLogger(__name__)


class ShareGroups(Feature):
    """Coordinates share groups and their share partitions.

    | Field      | Description |
    |------------|-------------|
    | states     | The states of share partitions, of which this process is the share coordinator |
    | partitions | The share partitions of the groups of this process |
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.states = ShareStates(core.writes, core.topics, core.settings.coordinator, core.loop)
        self.partitions = Initializer(core.membership, self.states, core.store, core.loop)
        core.topics.when_changed(self.states.topics_changed)
        core.deletions.preparations["share"] = self.partitions.delete_states

    def handlers(self) -> Handlers:
        """Return the handlers of members, of start offsets and of states."""
        core, tasks = self._core, self._core.reads.tasks
        return {
            **ShareHeartbeats(core.membership, self.partitions).handlers(),
            **ShareOffsetApis(core.store, core.topics, core.membership, self.partitions).handlers(tasks),
            **ShareStateApis(self.states).handlers(tasks),
        }

    def load(self, snapshot: MappedSnapshot) -> None:
        """Check the placement of states; raise LogMismatch if one is in another log partition than its own."""
        check_heads(self._core.folder)
        self.states.not_read = snapshot.not_read.get(SHARE_STATE_TOPIC, frozenset())

    async def offsets_served(self) -> None:
        """Load the states, and keep them small; raise errors as `ShareStates.load`."""
        await self.load_states()
        self._core.watch(self.states.snapshot_cold())
        self._core.watch(self.partitions.remove_replaced_topics())

    async def load_states(self) -> None:
        """Load the states, while the event loop handles requests; raise errors as `ShareStates.load`."""
        core = self._core
        log = ShareStateLog(core.folder, core.settings.coordinator.share_updates_per_snapshot)
        await self.states.load(log)
        core.log_ends |= log.ends


class ShareConsumers(Feature):
    """Serves share consumers of the topics of a cluster, at a listener of its own."""

    def __init__(self, core: Core, cluster: Cluster, groups: ShareGroups, address: tuple[str, int]) -> None:
        self._core, self._address = core, address
        self._listener = ShareListener(core, cluster, groups.states)
        self._acceptor: Acceptor | None = None
        core.membership.share_settings = self._listener.group_settings.of

    async def groups_served(self) -> None:
        """Listen; raise BadRequest if the address cannot be used."""
        core, listener = self._core, self._listener
        login = partial(Login, core.security, listener.dispatcher.take, self._connect, core.loop)
        self._acceptor, port = await accept(*self._address, core.security, login, core.loop)
        host = (core.settings.advertised or self._address)[0]
        listener.address = host, port
        LOG.info("Serving share consumers on %(host)s:%(port)d", {"host": host, "port": port})

    def _connect(self, client: Client) -> Connection:
        return self._listener.connect(client, self._core.security.connections, self._core.turns)

    async def close(self) -> None:
        """Close the listener, and cancel the requests that are not answered yet."""
        if self._acceptor is not None:
            self._acceptor.close()
        await self._listener.close()
