"""All requests but the two hot ones: which there are, and what answers them. kio's schemas read and write them."""

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
from offsetlake.serve.writes.offset_commit import LARGE_BYTES, OffsetCommit
from offsetlake.serve.writes.rounds import Writes

_SOFTWARE_SINCE = 3  # version of ApiVersions that names the client's software
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")  # as ApiVersionsRequest.isValid of Kafka has it
_FROM_ZERO_SINCE = 4  # version of ApiVersions that can say of a feature that it may be switched off

TRANSACTION_VERSION = 2
"""The feature by which clients know that each end of a transaction raises the epoch (KIP-890)."""

_AtOnce = Callable[[Any, RequestContext], Values | Steps[Values]]
_Later = Callable[[Any, RequestContext, Callable[[Values], None]], Work | None]
_Read = Callable[[Any, RequestContext], Coroutine[Any, Any, Values]]


class ApiDispatcher:
    """Answers what tools and clients ask beside offsets; `errors` counts APIs with error codes."""

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
        self._at_once: dict[int, _AtOnce] = {
            PRODUCE: self._cluster.produce,
            METADATA: self._cluster.metadata,
            SASL_HANDSHAKE: _logged_in,
            SASL_AUTHENTICATE: _logged_in,
            API_VERSIONS: _api_versions,
            DESCRIBE_CLUSTER: self._cluster.describe_cluster,
            DESCRIBE_TOPIC_PARTITIONS: self._cluster.describe_topic_partitions,
            FIND_COORDINATOR: self._cluster.find_coordinator,
            DESCRIBE_GROUPS: groups.describe_groups,
            CONSUMER_GROUP_DESCRIBE: groups.consumer_group_describe,
        }
        self._later: dict[int, _Later] = {
            DELETE_GROUPS: deletions.delete_groups,
            OFFSET_DELETE: deletions.delete_offsets,
            INIT_PRODUCER_ID: transactions.init_producer_id,
            ADD_PARTITIONS_TO_TXN: transactions.add_partitions,
            ADD_OFFSETS_TO_TXN: transactions.add_offsets,
            END_TXN: transactions.end,
            TXN_OFFSET_COMMIT: TxnOffsetCommit(store, topics, writes, commits, transactions).take,
        }
        self._reading: dict[int, _Read] = {FETCH: reads.fetch, LIST_OFFSETS: self._cluster.list_offsets}

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that clients are told to connect to."""
        return self._cluster.address

    @address.setter
    def address(self, address: tuple[str, int]) -> None:
        self._cluster.address = address

    def take(self, frame: bytes, header: wire.RequestHeader, answer: Answer, client: Client) -> int:
        """Take a request of a client; as `offsetlake.serve.net.connection.Requests` has it."""
        api, version = header.api, header.version
        if version not in VERSIONS.get(api, ()):
            if api != API_VERSIONS:
                raise wire.Malformed(f"api {api} of version {version}")
            refused = {"error_code": UNSUPPORTED_VERSION, "api_keys": [_ranges(api)]}
            client.work(self._responding(api, 0, refused, answer))
            return 0
        work = self._take(frame, header, answer, client)
        if len(frame) < LARGE_BYTES:
            return complete(work)
        client.work(work)
        return 0

    def _take(self, frame: bytes, header: wire.RequestHeader, answer: Answer, client: Client) -> Work:
        """Read a request and begin to answer it, in turns."""
        api, version = header.api, header.version
        request, asked = (yield from schemas.read(frame, header)), RequestContext(version, client, header.client_id)
        if api == LIST_GROUPS:
            if self._store.loading:
                self.errors[api, COORDINATOR_LOAD_IN_PROGRESS] += 1
            client.work(list_groups(self._store, request, asked, answer))
            return 0

        def respond(values: Values | Steps[Values]) -> None:
            client.work(self._responding(api, version, values, answer))

        if api in self._at_once:
            respond(self._at_once[api](request, asked))
        elif api in self._reading:
            self._reads.begin(self._reading[api](request, asked), respond, asked)
        else:
            work = self._later[api](request, asked, respond)
            return 0 if work is None else (yield from work)
        return 0

    def _responding(self, api: int, version: int, values: Values | Steps[Values], answer: Answer) -> Work:
        """Encode a response in turns, and answer with it."""

        def failed(code: int) -> None:
            self.errors[api, code] += 1

        if isinstance(values, Generator):
            values = yield from values
        schema, tags = schemas.response_schema(api, version)
        response = Response(failed)
        yield from response.encode(schema, values)
        answer(tags, *response.end())
        return 0


def _api_versions(request: Any, asked: RequestContext) -> Values:
    if asked.version >= _SOFTWARE_SINCE and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return {"error_code": INVALID_REQUEST, "api_keys": []}
    name, highest = "transaction.version", TRANSACTION_VERSION
    supported = {"name": name, "min_version": 0, "max_version": highest}
    return {
        "api_keys": [_ranges(api) for api in VERSIONS],
        "supported_features": [supported] if asked.version >= _FROM_ZERO_SINCE else [],
        "finalized_features": [{"name": name, "min_version_level": highest, "max_version_level": highest}],
        "finalized_features_epoch": 0,
    }


def _logged_in(_request: Any, _asked: RequestContext) -> Values:
    """Answer who logs in and is in already, or need not: as a broker."""
    said = "SaslAuthenticate request received after successful authentication"
    return {"error_code": ILLEGAL_SASL_STATE, "error_message": said, "mechanisms": (), "auth_bytes": b""}


def _ranges(api: int) -> Values:
    return {"api_key": api, "min_version": VERSIONS[api].start, "max_version": VERSIONS[api].stop - 1}
