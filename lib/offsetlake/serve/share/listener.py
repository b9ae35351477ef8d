"""The listener for share consumers of a cluster: its clients see this process as the only broker.

Group APIs, such as ShareGroupHeartbeat, are answered by the dispatcher of the other listener.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from offsetlake.coordinator.settings import CoordinatorSettings, ShareIsolation
from offsetlake.kafka.error_codes import UNSUPPORTED_VERSION
from offsetlake.serve.apis.api_dispatcher import ApiDispatcher
from offsetlake.serve.apis.cluster_apis import ClusterApis
from offsetlake.serve.apis.request_tasks import RequestTasks
from offsetlake.serve.front.metadata.cluster import Cluster
from offsetlake.serve.net.answering import Answer
from offsetlake.serve.net.client import Client, RequestContext
from offsetlake.serve.net.connection import Connection, OpenConnections
from offsetlake.serve.net.turns import Turns
from offsetlake.serve.protocol import schemas, wire
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
from offsetlake.serve.protocol.encoding import Response, Values
from offsetlake.serve.share.group_partitions import GroupPartitions
from offsetlake.serve.share.group_settings import GroupSettings
from offsetlake.serve.share.partition_reads import PartitionReads
from offsetlake.serve.share.sessions import ShareSessions
from offsetlake.serve.share.share_apis import ShareApis
from offsetlake.serve.share.share_fetch import ShareFetch
from offsetlake.serve.share_state.share_states import ShareStates
from offsetlake.serve.steps import Steps, Work

if TYPE_CHECKING:
    from offsetlake.serve.share.group_partition import Reads

_DISPATCHED = (
    LIST_GROUPS,
    DELETE_GROUPS,
    SHARE_GROUP_HEARTBEAT,
    SHARE_GROUP_DESCRIBE,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
)
_ANSWERED = (API_VERSIONS, METADATA, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS, FIND_COORDINATOR)
SHARE_VERSIONS = {api: VERSIONS[api] for api in (*_ANSWERED, *_DISPATCHED)} | {
    SHARE_FETCH: range(1, 3),
    SHARE_ACKNOWLEDGE: range(1, 3),
}
"""The supported versions by API key."""


class ShareListener:
    """Handles the requests of all connections of the listener; `group_settings` are those of single share groups."""

    def __init__(
        self,
        cluster: Cluster,
        settings: CoordinatorSettings,
        persister: ShareStates,
        cluster_apis: ClusterApis,
        groups: ApiDispatcher,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._cluster_apis, self._groups, self._tasks = cluster_apis, groups, RequestTasks(loop)
        self.group_settings = GroupSettings(cluster, settings)
        self._reads: Reads = {
            level: PartitionReads(cluster, committed=level is ShareIsolation.READ_COMMITTED) for level in ShareIsolation
        }
        self._partitions = GroupPartitions(cluster, self._reads, persister, self.group_settings)
        sessions, fetches = ShareSessions(settings.share_max_sessions), ShareFetch(self._partitions)
        self._share_apis = share_apis = ShareApis(sessions, self._partitions, fetches, self.group_settings)
        self._synchronous: dict[int, Callable[[Any, RequestContext], Values | Steps[Values]]] = {
            METADATA: cluster_apis.metadata,
            DESCRIBE_CLUSTER: cluster_apis.describe_cluster,
            DESCRIBE_TOPIC_PARTITIONS: cluster_apis.describe_topic_partitions,
            FIND_COORDINATOR: cluster_apis.find_coordinator,
            API_VERSIONS: _api_versions,
        }
        self._asynchronous = {SHARE_FETCH: share_apis.fetch, SHARE_ACKNOWLEDGE: share_apis.acknowledge}

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
        return _ShareConnection(_Requests(self, client), client, connections, turns, self._share_apis)

    def take(self, frame: bytes, header: wire.RequestHeader, answer: Answer, client: Client) -> int:
        """Handle a request of a client; see `offsetlake.serve.net.connection.Requests.take`."""
        api, version = header.api, header.version
        if version not in SHARE_VERSIONS.get(api, ()):
            if api != API_VERSIONS:
                raise wire.Malformed(f"unsupported API {api}, version {version}")
            refused = {"error_code": UNSUPPORTED_VERSION, "api_keys": _version_ranges()}
            client.work(_respond(api, 0, refused, answer))
        elif api in _DISPATCHED:
            return self._groups.handle(frame, header, answer, client)
        else:
            client.work(self._handle(frame, header, answer, client))
        return 0

    async def close(self) -> None:
        """Cancel the requests that are not answered yet, and close the connections to brokers."""
        await self._tasks.close()
        await self._share_apis.close()
        self._partitions.close()
        self.group_settings.close()
        for reads in self._reads.values():
            reads.close()

    def _handle(self, frame: bytes, header: wire.RequestHeader, answer: Answer, client: Client) -> Work:
        api, version = header.api, header.version
        request = yield from schemas.read(frame, header)
        context = RequestContext(version, client, header.client_id)

        def respond(values: Values) -> None:
            client.work(_respond(api, version, values, answer))

        if api in self._asynchronous:
            self._tasks.start(self._asynchronous[api](request, context), respond, context)
            return 0
        return (yield from _respond(api, version, self._synchronous[api](request, context), answer))


class _Requests:
    """Handles the requests of one connection."""

    def __init__(self, listener: ShareListener, client: Client) -> None:
        self._listener, self._client = listener, client

    def may_follow(self, _header: wire.RequestHeader) -> bool:
        """Return False, because the requests of a member are handled one after the other."""
        return False

    def take(self, frame: bytes, header: wire.RequestHeader, answer: Answer) -> int:
        """Handle a request; see `offsetlake.serve.net.connection.Requests`."""
        return self._listener.take(frame, header, answer, self._client)


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
        "api_keys": _version_ranges(),
        "supported_features": [feature | {"min_version": 0, "max_version": 1}] if context.version >= 4 else [],
        "finalized_features": [feature | {"min_version_level": 1, "max_version_level": 1}],
        "finalized_features_epoch": 0,
    }


def _version_ranges() -> list[Values]:
    return [version_range(api, versions) for api, versions in SHARE_VERSIONS.items()]


def _respond(api: int, version: int, values: Values | Steps[Values], answer: Answer) -> Work:
    """Encode a response in steps, and send it."""
    if isinstance(values, Generator):
        values = yield from values
    schema, tags = schemas.response_schema(api, version)
    response = Response(lambda _: None)
    yield from response.encode(schema, values)
    answer(tags, *response.end())
    return 0
