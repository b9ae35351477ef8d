"""Dispatches all requests except OffsetCommit and OffsetFetch to their handlers; kio's schemas describe them."""

from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, NamedTuple

from offsetlake.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    ILLEGAL_SASL_STATE,
    INVALID_REQUEST,
    NONE,
    REBOOTSTRAP_REQUIRED,
    UNSUPPORTED_VERSION,
)
from offsetlake.serve.apis.api_versions import api_versions
from offsetlake.serve.apis.cluster_apis import ClusterApis
from offsetlake.serve.apis.front_apis import FrontApis
from offsetlake.serve.apis.group_apis import GroupApis
from offsetlake.serve.apis.group_list import list_groups
from offsetlake.serve.apis.named_topics import named_topics
from offsetlake.serve.apis.node_apis import NodeApis
from offsetlake.serve.front.forwarding import Forwarding
from offsetlake.serve.groups.classic_apis import ClassicApis
from offsetlake.serve.groups.consumer_apis import ConsumerApis
from offsetlake.serve.groups.membership import Membership
from offsetlake.serve.groups.share_apis import ShareApis
from offsetlake.serve.groups.share_offsets import ShareOffsetApis
from offsetlake.serve.groups.share_partitions import SharePartitions
from offsetlake.serve.net.answering import Answer
from offsetlake.serve.net.client import Client, RequestContext
from offsetlake.serve.protocol import schemas, wire
from offsetlake.serve.protocol.api_keys import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    ALTER_SHARE_GROUP_OFFSETS,
    API_VERSIONS,
    BROKER_VERSIONS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DELETE_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_STATE,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUPS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DESCRIBE_TOPIC_PARTITIONS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    INITIALIZE_SHARE_GROUP_STATE,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_DELETE,
    PRODUCE,
    READ_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
    VERSIONS,
    WRITE_SHARE_GROUP_STATE,
    WRITE_TXN_MARKERS,
    version_range,
)
from offsetlake.serve.protocol.encoding import Response, Values
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.share_state.apis import ShareStateApis
from offsetlake.serve.share_state.share_states import ShareStates
from offsetlake.serve.steps import Steps, Work, complete
from offsetlake.serve.storage.store import Store
from offsetlake.serve.transactions.cluster_transactions import ClusterTransactions
from offsetlake.serve.transactions.coordinator import Transactions
from offsetlake.serve.transactions.offset_commit import TxnOffsetCommit
from offsetlake.serve.writes.deletions import Deletions
from offsetlake.serve.writes.offset_commit import MIN_LARGE_REQUEST_BYTES, OffsetCommit
from offsetlake.serve.writes.rounds import Writes

_DESTINATION_SINCE = 5  # version of ApiVersions with the node that the client means
_Response = Values | Steps[Values]  # not written in a nested function, which would build the type for each request
_Synchronous = Callable[[Any, RequestContext], _Response]
_WithCallback = Callable[[Any, RequestContext, Callable[[Values | bytes], None]], Work | None]
_Asynchronous = Callable[[Any, RequestContext], Coroutine[Any, Any, Values | bytes]]


class Coordinators(NamedTuple):
    """The coordinators of transactions, groups and share partitions."""

    transactions: Transactions
    membership: Membership
    share_states: ShareStates
    share_partitions: SharePartitions
    deletions: Deletions


class ApiDispatcher:
    """Dispatches requests to their handlers and answers them; `errors` counts error codes by API key and code."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        writes: Writes,
        commits: OffsetCommit,
        coordinators: Coordinators,
        cluster: ClusterApis,
        node: NodeApis,
        forwarding: Forwarding | None = None,
    ) -> None:
        transactions, membership, _, share_partitions, deletions = coordinators
        self._store, self._reads, self._cluster, self._topics = store, cluster.reads, cluster, topics
        self._forwarding, self._versions = forwarding, VERSIONS if forwarding is None else BROKER_VERSIONS
        self.errors: Counter[tuple[int, int]] = Counter()
        groups = GroupApis(store, topics, membership)
        self._synchronous: dict[int, _Synchronous] = {
            PRODUCE: self._cluster.produce,
            METADATA: self._cluster.metadata,
            SASL_HANDSHAKE: _already_authenticated,
            SASL_AUTHENTICATE: _already_authenticated,
            API_VERSIONS: self._api_versions,
            DESCRIBE_CLUSTER: self._cluster.describe_cluster,
            DESCRIBE_TOPIC_PARTITIONS: self._cluster.describe_topic_partitions,
            FIND_COORDINATOR: self._cluster.find_coordinator,
            DESCRIBE_GROUPS: groups.describe_groups,
            CONSUMER_GROUP_DESCRIBE: groups.consumer_group_describe,
            SHARE_GROUP_DESCRIBE: groups.share_group_describe,
            **node.synchronous(),
        }
        self._with_callback: dict[int, _WithCallback] = {
            DELETE_GROUPS: deletions.delete_groups,
            OFFSET_DELETE: deletions.delete_offsets,
            **_member_handlers(membership, share_partitions),
            INIT_PRODUCER_ID: transactions.init_producer_id,
            ADD_PARTITIONS_TO_TXN: transactions.add_partitions,
            ADD_OFFSETS_TO_TXN: transactions.add_offsets,
            END_TXN: transactions.end,
            TXN_OFFSET_COMMIT: TxnOffsetCommit(store, topics, writes, commits, transactions).take,
        }
        self._asynchronous: dict[int, _Asynchronous] = {
            FETCH: cluster.reads.fetch,
            LIST_OFFSETS: cluster.list_offsets,
            **node.asynchronous(),
            **_share_handlers(store, topics, coordinators),
        }
        self._in_cluster: ClusterTransactions | None = None
        self._front: FrontApis | None = None
        if forwarding is not None:
            self._front = FrontApis(forwarding, self._cluster)
            self._replace(self._front)
            in_cluster = self._in_cluster = ClusterTransactions(forwarding.cluster, store, writes)
            self._with_callback[TXN_OFFSET_COMMIT] = TxnOffsetCommit(store, topics, writes, commits, in_cluster).take
            self._with_callback[WRITE_TXN_MARKERS] = in_cluster.write_markers

    def close(self) -> None:
        """Close the connections to other nodes of the cluster."""
        if self._in_cluster is not None:
            self._in_cluster.close()
        if self._front is not None:
            self._front.close()
        if self._forwarding is not None:
            self._forwarding.close()

    def _replace(self, front: FrontApis) -> None:
        """Replace the handlers of transactions, which belong to the cluster, and of topics."""
        del self._synchronous[FIND_COORDINATOR]
        self._synchronous[METADATA] = front.metadata
        self._asynchronous |= {FIND_COORDINATOR: front.find_coordinator, INIT_PRODUCER_ID: front.init_producer_id}
        self._synchronous |= {
            ADD_PARTITIONS_TO_TXN: front.refuse_partitions,
            ADD_OFFSETS_TO_TXN: front.refuse,
            END_TXN: front.refuse,
        }

    @property
    def address(self) -> tuple[str, int]:
        """The advertised host and port of this broker."""
        return self._cluster.address

    @address.setter
    def address(self, address: tuple[str, int]) -> None:
        self._cluster.address = address

    def take(self, frame: bytes, header: wire.RequestHeader, answer: Answer, client: Client) -> int:
        """Handle a request of a client; see `offsetlake.serve.net.connection.Requests.take`."""
        api, version = header.api, header.version
        forwarding = self._forwarding
        if forwarding is not None and forwarding.takes(api, version):  # without an answer, the connection is closed
            self._reads.tasks.start(forwarding.answer(api, frame, client), answer, RequestContext(0, client, None))
            return 0
        if version not in self._versions.get(api, ()):
            if api != API_VERSIONS:
                raise wire.Malformed(f"unsupported API {api}, version {version}")
            refused = {"error_code": UNSUPPORTED_VERSION, "api_keys": [version_range(api, VERSIONS[api])]}
            client.work(self._respond(api, 0, refused, answer))
            return 0
        return self.handle(frame, header, answer, client)

    def handle(self, frame: bytes, header: wire.RequestHeader, answer: Answer, client: Client) -> int:
        """Handle a request in a supported version, of a client of any listener, as `take`."""
        work = self._take(frame, header, answer, client)
        if len(frame) < MIN_LARGE_REQUEST_BYTES:
            return complete(work)
        client.work(work)
        return 0

    def _take(self, frame: bytes, header: wire.RequestHeader, answer: Answer, client: Client) -> Work:
        """Read a request in steps, and call its handler."""
        api, version = header.api, header.version
        request = yield from schemas.read(frame, header)
        context = RequestContext(version, client, header.client_id)
        if self._topics.deferred(
            partial(named_topics, api, request), lambda: client.work(self._dispatch(api, request, context, answer))
        ):
            return 0
        return (yield from self._dispatch(api, request, context, answer))

    def _dispatch(self, api: int, request: Any, context: RequestContext, answer: Answer) -> Work:
        """Call the handler of a request that was read."""
        client, version = context.client, context.version
        if api == LIST_GROUPS:
            if self._store.loading:
                self.errors[api, COORDINATOR_LOAD_IN_PROGRESS] += 1
            client.work(list_groups(self._store, request, context, answer))
            return 0

        def respond(values: _Response | bytes) -> None:
            if isinstance(values, bytes):
                answer(values)
            else:
                client.work(self._respond(api, version, values, answer))

        if api in self._synchronous:
            respond(self._synchronous[api](request, context))
        elif api in self._asynchronous:
            self._reads.tasks.start(self._asynchronous[api](request, context), respond, context)
        else:
            work = self._with_callback[api](request, context, respond)
            return 0 if work is None else (yield from work)
        return 0

    def _api_versions(self, request: Any, context: RequestContext) -> Values:
        """Answer ApiVersions; as a broker of a cluster, with the features of the cluster."""
        forwarding = self._forwarding
        if forwarding is None:
            return api_versions(request, context)
        values = api_versions(request, context, {**self._versions, **forwarding.versions}, forwarding.features)
        if not values.get("error_code") and context.version >= _DESTINATION_SINCE:
            error = self._destination_error(request)
            return {"error_code": error, "api_keys": []} if error else values
        return values

    def _destination_error(self, request: Any) -> int:
        """Return an error code if a client means to connect to another node (KIP-1242)."""
        cluster_id, node = request.cluster_id, request.node_id
        if (cluster_id is None) != (node < 0):
            return INVALID_REQUEST
        known = self._cluster.cluster_id()
        if cluster_id is None or known is None or (cluster_id, node) == (known, self._topics.node):
            return NONE
        return REBOOTSTRAP_REQUIRED

    def _respond(self, api: int, version: int, values: _Response, answer: Answer) -> Work:
        """Encode a response in steps, and send it."""

        def failed(code: int) -> None:
            self.errors[api, code] += 1

        if isinstance(values, Generator):
            values = yield from values
        schema, tags = schemas.response_schema(api, version)
        response = Response(failed)
        yield from response.encode(schema, values)
        answer(tags, *response.end())
        return 0


def _member_handlers(membership: Membership, share_partitions: SharePartitions) -> dict[int, _WithCallback]:
    """Return the handlers of requests of members of groups."""
    members = ClassicApis(membership)
    return {
        JOIN_GROUP: members.join_group,
        SYNC_GROUP: members.sync_group,
        HEARTBEAT: members.heartbeat,
        LEAVE_GROUP: members.leave_group,
        CONSUMER_GROUP_HEARTBEAT: ConsumerApis(membership, membership.settings).heartbeat,
        SHARE_GROUP_HEARTBEAT: ShareApis(membership, share_partitions).heartbeat,
    }


def _share_handlers(store: Store, topics: Topics, coordinators: Coordinators) -> dict[int, _Asynchronous]:
    """Return the handlers of start offsets and states of share groups."""
    offsets = ShareOffsetApis(store, topics, coordinators.membership, coordinators.share_partitions)
    states = ShareStateApis(coordinators.share_states)
    return {
        DESCRIBE_SHARE_GROUP_OFFSETS: offsets.describe,
        ALTER_SHARE_GROUP_OFFSETS: offsets.alter,
        DELETE_SHARE_GROUP_OFFSETS: offsets.delete,
        INITIALIZE_SHARE_GROUP_STATE: states.initialize,
        READ_SHARE_GROUP_STATE: states.read,
        WRITE_SHARE_GROUP_STATE: states.write,
        DELETE_SHARE_GROUP_STATE: states.delete,
        READ_SHARE_GROUP_STATE_SUMMARY: states.summary,
    }


def _already_authenticated(_request: Any, _context: RequestContext) -> Values:
    """Answer a SASL request after the authentication, or without SASL, as a broker does."""
    message = "SaslAuthenticate request received after successful authentication"
    return {"error_code": ILLEGAL_SASL_STATE, "error_message": message, "mechanisms": (), "auth_bytes": b""}
