"""The listener for share consumers of a cluster: its clients see this process as the only broker.

Group APIs, such as ShareGroupHeartbeat, have the handlers of the other listener.
"""

from typing import TYPE_CHECKING, Any

from offsetlake.coordinator.settings import ShareIsolation
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.node.metadata.topics import LedTopics
from offsetlake.serve.apis.api_dispatcher import ApiDispatcher
from offsetlake.serve.apis.cluster_apis import ClusterApis
from offsetlake.serve.core import Core
from offsetlake.serve.net.answering import Answer
from offsetlake.serve.net.client import Client, RequestContext
from offsetlake.serve.net.connection import Connection, OpenConnections
from offsetlake.serve.net.handlers import Handlers, at_once, awaited
from offsetlake.serve.net.request_tasks import RequestTasks
from offsetlake.serve.net.turns import Turns
from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.api_keys import (
    ALTER_SHARE_GROUP_OFFSETS,
    API_VERSIONS,
    DELETE_GROUPS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_CLUSTER,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DESCRIBE_TOPIC_PARTITIONS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    METADATA,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    VERSIONS,
    version_range,
)
from offsetlake.serve.protocol.encoding import Values
from offsetlake.share.group_settings import GroupSettings
from offsetlake.share.leases import PartitionLeases
from offsetlake.share.record_cache import RecordCache
from offsetlake.share.sessions import ShareSessions
from offsetlake.share.share_apis import ShareApis
from offsetlake.share.share_fetch import ShareFetch
from offsetlake.share.state.share_states import ShareStates

if TYPE_CHECKING:
    from offsetlake.share.lease import Reads

_OF_GROUPS = (
    LIST_GROUPS,
    DELETE_GROUPS,
    SHARE_GROUP_HEARTBEAT,
    SHARE_GROUP_DESCRIBE,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
)
_ANSWERED = (API_VERSIONS, METADATA, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS, FIND_COORDINATOR)
SHARE_VERSIONS = {api: VERSIONS[api] for api in (*_ANSWERED, *_OF_GROUPS)} | {
    SHARE_FETCH: range(1, 3),
    SHARE_ACKNOWLEDGE: range(1, 3),
}
"""The supported versions by API key."""


class ShareListener:
    """Handles the requests of all connections of the listener; `group_settings` are those of single share groups."""

    def __init__(self, core: Core, cluster: Cluster, states: ShareStates) -> None:
        settings = core.settings.coordinator
        self._cluster_apis = ClusterApis(core.store, LedTopics(cluster), core.reads, core.cluster_id)
        self._tasks = RequestTasks(core.loop)
        self.group_settings = GroupSettings(cluster, settings)
        self._reads: Reads = {
            level: RecordCache(cluster, committed=level is ShareIsolation.READ_COMMITTED) for level in ShareIsolation
        }
        self._partitions = PartitionLeases(cluster, self._reads, states, self.group_settings)
        sessions, fetches = ShareSessions(settings.share_max_sessions), ShareFetch(self._partitions)
        self._share_apis = ShareApis(sessions, self._partitions, fetches, self.group_settings)
        self.dispatcher = ApiDispatcher(core.topics, self._tasks, SHARE_VERSIONS, core.dispatcher.errors)
        self.dispatcher.add({api: core.dispatcher.handlers[api] for api in _OF_GROUPS})
        self.dispatcher.add(self._handlers())

    def _handlers(self) -> Handlers:
        cluster_apis = self._cluster_apis
        return {
            METADATA: at_once(cluster_apis.metadata),
            DESCRIBE_CLUSTER: at_once(cluster_apis.describe_cluster),
            DESCRIBE_TOPIC_PARTITIONS: at_once(cluster_apis.describe_topic_partitions),
            FIND_COORDINATOR: at_once(cluster_apis.find_coordinator),
            API_VERSIONS: at_once(_api_versions),
            SHARE_FETCH: awaited(self._tasks, self._share_apis.fetch),
            SHARE_ACKNOWLEDGE: awaited(self._tasks, self._share_apis.acknowledge),
        }

    @property
    def address(self) -> tuple[str, int]:
        """The advertised host and port."""
        return self._cluster_apis.address

    @address.setter
    def address(self, address: tuple[str, int]) -> None:
        self._cluster_apis.address = address

    def connect(self, client: Client, connections: OpenConnections, turns: Turns) -> Connection:
        """Return the connection of a client that is logged in; it needs permissions on the topics, too."""
        client.checks_topics = True
        return _ShareConnection(_Requests(self.dispatcher, client), client, connections, turns, self._share_apis)

    async def close(self) -> None:
        """Cancel the requests that are not answered yet, and close the connections to brokers."""
        await self._tasks.close()
        await self._share_apis.close()
        self._partitions.close()
        self.group_settings.close()
        for reads in self._reads.values():
            reads.close()


class _Requests:
    """Handles the requests of one connection."""

    def __init__(self, dispatcher: ApiDispatcher, client: Client) -> None:
        self._dispatcher, self._client = dispatcher, client

    def may_follow(self, _header: wire.RequestHeader) -> bool:
        """Return False, because the requests of a member are handled one after the other."""
        return False

    def take(self, frame: bytes, header: wire.RequestHeader, answer: Answer) -> int:
        """Handle a request; see `offsetlake.serve.net.connection.Requests`."""
        return self._dispatcher.take(frame, header, answer, self._client)


class _ShareConnection(Connection):
    """A connection that closes the share session of its client when it is lost."""

    def __init__(
        self, requests: _Requests, client: Client, connections: OpenConnections, turns: Turns, apis: ShareApis
    ) -> None:
        super().__init__(requests, client, connections, turns)
        self._apis = apis

    def connection_lost(self, error: Exception | None) -> None:
        """Release the connection, and the records of its member."""
        super().connection_lost(error)
        self._apis.disconnect(self._client)


def _api_versions(_request: Any, context: RequestContext) -> Values:
    feature = {"name": "share.version"}
    return {
        "api_keys": [version_range(api, versions) for api, versions in SHARE_VERSIONS.items()],
        "supported_features": [feature | {"min_version": 0, "max_version": 1}] if context.version >= 4 else [],
        "finalized_features": [feature | {"min_version_level": 1, "max_version_level": 1}],
        "finalized_features_epoch": 0,
    }
