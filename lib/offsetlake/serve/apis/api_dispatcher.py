"""Dispatches all requests except OffsetCommit and OffsetFetch to their handlers; kio's schemas describe them."""

import re
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from offsetlake.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    ILLEGAL_SASL_STATE,
    INVALID_REQUEST,
    UNSUPPORTED_VERSION,
)
from offsetlake.serve.apis.cluster_apis import ClusterApis
from offsetlake.serve.apis.group_apis import GroupApis
from offsetlake.serve.apis.group_list import list_groups
from offsetlake.serve.apis.log_reads import LogReads
from offsetlake.serve.auth.principals import Client, RequestContext
from offsetlake.serve.net.answering import Answer
from offsetlake.serve.protocol import schemas, wire
from offsetlake.serve.protocol.api_keys import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUPS,
    DESCRIBE_TOPIC_PARTITIONS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_DELETE,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    TXN_OFFSET_COMMIT,
    VERSIONS,
)
from offsetlake.serve.protocol.encoding import Response, Values
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.steps import Steps, Work, complete
from offsetlake.serve.storage.store import Store
from offsetlake.serve.transactions.coordinator import Transactions
from offsetlake.serve.transactions.offset_commit import TxnOffsetCommit
from offsetlake.serve.writes.deletions import Deletions
from offsetlake.serve.writes.offset_commit import MIN_LARGE_REQUEST_BYTES, OffsetCommit
from offsetlake.serve.writes.rounds import Writes

_SOFTWARE_SINCE = 3  # version of ApiVersions with the name and version of the client software
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")  # as in ApiVersionsRequest.isValid of Kafka
_ZERO_FEATURE_SINCE = 4  # version of ApiVersions whose features may have the minimum version 0

TRANSACTION_VERSION = 2
"""The level of the feature `transaction.version` at which each end of a transaction increments the producer epoch
(KIP-890)."""

_Synchronous = Callable[[Any, RequestContext], Values | Steps[Values]]
_WithCallback = Callable[[Any, RequestContext, Callable[[Values], None]], Work | None]
_Asynchronous = Callable[[Any, RequestContext], Coroutine[Any, Any, Values]]


class ApiDispatcher:
    """Dispatches requests to their handlers and answers them; `errors` counts error codes by API key and code."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        writes: Writes,
        reads: LogReads,
        commits: OffsetCommit,
        transactions: Transactions,
        cluster_id: str,
    ) -> None:
        self._store, self._reads, self._cluster = store, reads, ClusterApis(store, topics, reads, cluster_id)
        self.errors: Counter[tuple[int, int]] = Counter()
        groups, deletions = GroupApis(store, topics), Deletions(store, topics, writes, commits.log_partition)
        self._synchronous: dict[int, _Synchronous] = {
            PRODUCE: self._cluster.produce,
            METADATA: self._cluster.metadata,
            SASL_HANDSHAKE: _already_authenticated,
            SASL_AUTHENTICATE: _already_authenticated,
            API_VERSIONS: _api_versions,
            DESCRIBE_CLUSTER: self._cluster.describe_cluster,
            DESCRIBE_TOPIC_PARTITIONS: self._cluster.describe_topic_partitions,
            FIND_COORDINATOR: self._cluster.find_coordinator,
            DESCRIBE_GROUPS: groups.describe_groups,
            CONSUMER_GROUP_DESCRIBE: groups.consumer_group_describe,
        }
        self._with_callback: dict[int, _WithCallback] = {
            DELETE_GROUPS: deletions.delete_groups,
            OFFSET_DELETE: deletions.delete_offsets,
            INIT_PRODUCER_ID: transactions.init_producer_id,
            ADD_PARTITIONS_TO_TXN: transactions.add_partitions,
            ADD_OFFSETS_TO_TXN: transactions.add_offsets,
            END_TXN: transactions.end,
            TXN_OFFSET_COMMIT: TxnOffsetCommit(store, topics, writes, commits, transactions).take,
        }
        self._asynchronous: dict[int, _Asynchronous] = {FETCH: reads.fetch, LIST_OFFSETS: self._cluster.list_offsets}

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
        if version not in VERSIONS.get(api, ()):
            if api != API_VERSIONS:
                raise wire.Malformed(f"unsupported API {api}, version {version}")
            refused = {"error_code": UNSUPPORTED_VERSION, "api_keys": [_version_range(api)]}
            client.work(self._respond(api, 0, refused, answer))
            return 0
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
        if api == LIST_GROUPS:
            if self._store.loading:
                self.errors[api, COORDINATOR_LOAD_IN_PROGRESS] += 1
            client.work(list_groups(self._store, request, context, answer))
            return 0

        def respond(values: Values | Steps[Values]) -> None:
            client.work(self._respond(api, version, values, answer))

        if api in self._synchronous:
            respond(self._synchronous[api](request, context))
        elif api in self._asynchronous:
            self._reads.start(self._asynchronous[api](request, context), respond, context)
        else:
            work = self._with_callback[api](request, context, respond)
            return 0 if work is None else (yield from work)
        return 0

    def _respond(self, api: int, version: int, values: Values | Steps[Values], answer: Answer) -> Work:
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


def _api_versions(request: Any, context: RequestContext) -> Values:
    if context.version >= _SOFTWARE_SINCE and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return {"error_code": INVALID_REQUEST, "api_keys": []}
    name, level = "transaction.version", TRANSACTION_VERSION
    supported = {"name": name, "min_version": 0, "max_version": level}
    return {
        "api_keys": [_version_range(api) for api in VERSIONS],
        "supported_features": [supported] if context.version >= _ZERO_FEATURE_SINCE else [],
        "finalized_features": [{"name": name, "min_version_level": level, "max_version_level": level}],
        "finalized_features_epoch": 0,
    }


def _already_authenticated(_request: Any, _context: RequestContext) -> Values:
    """Answer a SASL request after the authentication, or without SASL, as a broker does."""
    message = "SaslAuthenticate request received after successful authentication"
    return {"error_code": ILLEGAL_SASL_STATE, "error_message": message, "mechanisms": (), "auth_bytes": b""}


def _version_range(api: int) -> Values:
    return {"api_key": api, "min_version": VERSIONS[api].start, "max_version": VERSIONS[api].stop - 1}
