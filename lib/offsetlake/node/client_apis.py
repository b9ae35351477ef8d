"""What clients request of any node of a cluster, and other nodes answer: transactions, new topics, the versions."""

from typing import Any

from offsetlake.auth.acl import ANY_PERMISSION
from offsetlake.kafka.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    NONE,
    NOT_COORDINATOR,
    REBOOTSTRAP_REQUIRED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from offsetlake.node.forwarding import Forwarding
from offsetlake.node.topic_creation import TopicCreation
from offsetlake.node.transaction_coordinators import NO_COORDINATOR, TransactionCoordinators
from offsetlake.serve.apis.api_versions import api_versions
from offsetlake.serve.apis.cluster_apis import TRANSACTION_KEY, ClusterApis
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handlers, at_once, awaited
from offsetlake.serve.net.request_tasks import RequestTasks
from offsetlake.serve.protocol.api_keys import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    BROKER_VERSIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
)
from offsetlake.serve.protocol.encoding import Lazy, Values
from offsetlake.serve.steps import Steps
from offsetlake.serve.transactions.permissions import denial

_DESTINATION_SINCE = 5  # version of ApiVersions with the node that the client means
_KEYS_SINCE = 4  # version of FindCoordinator with many keys
_FIRST_BROKER_VERSION = 4  # version of AddPartitionsToTxn that only brokers send


class ClientApis:
    """Answers ApiVersions, Metadata, FindCoordinator and the requests of transactional producers."""

    def __init__(self, forwarding: Forwarding, cluster_apis: ClusterApis, tasks: RequestTasks) -> None:
        self._cluster, self._cluster_apis, self._tasks = forwarding.cluster, cluster_apis, tasks
        self._forwarding = forwarding
        self._coordinators, self._creation = TransactionCoordinators(forwarding.cluster), TopicCreation(forwarding)

    def handlers(self) -> Handlers:
        """Return the handlers by API key."""
        return {
            API_VERSIONS: at_once(self.api_versions),
            METADATA: at_once(self.metadata),
            FIND_COORDINATOR: awaited(self._tasks, self.find_coordinator),
            INIT_PRODUCER_ID: awaited(self._tasks, self.init_producer_id),
            ADD_PARTITIONS_TO_TXN: at_once(self.refuse_partitions),
            ADD_OFFSETS_TO_TXN: at_once(self.refuse),
            END_TXN: at_once(self.refuse),
        }

    def api_versions(self, request: Any, context: RequestContext) -> Values:
        """Answer ApiVersions, with the APIs that are forwarded, and the features of the cluster."""
        forwarding = self._forwarding
        values = api_versions(request, context, {**BROKER_VERSIONS, **forwarding.versions}, forwarding.features)
        if not values.get("error_code") and context.version >= _DESTINATION_SINCE:
            error = self._destination_error(request)
            return {"error_code": error, "api_keys": []} if error else values
        return values

    def _destination_error(self, request: Any) -> int:
        """Return an error code if a client means to connect to another node (KIP-1242)."""
        cluster_id, node = request.cluster_id, request.node_id
        if (cluster_id is None) != (node < 0):
            return INVALID_REQUEST
        known = self._cluster_apis.cluster_id()
        if cluster_id is None or known is None or (cluster_id, node) == (known, self._cluster.node):
            return NONE
        return REBOOTSTRAP_REQUIRED

    def metadata(self, request: Any, context: RequestContext) -> Steps[Values]:
        """Answer Metadata; topics that do not exist are created if the client allows it."""
        allowed = getattr(request, "allow_auto_topic_creation", True)  # always before version 4
        if allowed and self._cluster.available:
            missing = []
            for topic in request.topics or ():
                if topic.name and not self._cluster.image.partitions(topic.name.encode()):
                    missing.append(topic.name)
                yield 0
            self._creation.start(missing, context.client)
        return (yield from self._cluster_apis.metadata(request, context))

    async def find_coordinator(self, request: Any, context: RequestContext) -> Values:
        """Answer FindCoordinator: this process for groups, a broker of the cluster for transactions."""
        if getattr(request, "key_type", None) != TRANSACTION_KEY:
            return self._cluster_apis.find_coordinator(request, context)
        names = request.coordinator_keys if context.version >= _KEYS_SINCE else (request.key,)
        allowed = [name for name in dict.fromkeys(names) if context.may(ANY_PERMISSION, name.encode())]
        found = await self._coordinators.find(allowed) if allowed else {}
        denied = NO_COORDINATOR | {"error_code": TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        if context.version < _KEYS_SINCE:
            return found.get(request.key, denied)
        answers = ({**found.get(name, denied), "key": name} for name in names)
        return {"coordinators": Lazy(len(names), answers)}

    async def init_producer_id(self, request: Any, context: RequestContext) -> Values:
        """Answer InitProducerId with NOT_COORDINATOR (16), or with a producer id of the cluster.

        A producer without transactions needs a producer id, too, and requests it from any node.
        """
        if request.transactional_id is None:
            return await self._coordinators.new_producer_id()
        error = denial(context, request.transactional_id) or NOT_COORDINATOR
        return {"error_code": error, "producer_id": -1, "producer_epoch": -1}

    def refuse(self, request: Any, context: RequestContext) -> Values:
        """Answer AddOffsetsToTxn and EndTxn with NOT_COORDINATOR (16), so that the client looks for the coordinator."""
        group = getattr(request, "group_id", None)
        error = denial(context, request.transactional_id, None if group is None else group.encode())
        return {"error_code": error or NOT_COORDINATOR, "producer_id": -1, "producer_epoch": -1}

    def refuse_partitions(self, request: Any, context: RequestContext) -> Values:
        """Answer AddPartitionsToTxn as `refuse`."""
        if context.version >= _FIRST_BROKER_VERSION:
            return {"error_code": CLUSTER_AUTHORIZATION_FAILED, "results_by_transaction": []}
        error = denial(context, request.v3_and_below_transactional_id) or NOT_COORDINATOR
        results = (
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": number, "partition_error_code": error} for number in topic.partitions
                ],
            }
            for topic in request.v3_and_below_topics
        )
        return {"results_by_topic_v3_and_below": Lazy(len(request.v3_and_below_topics), results)}

    def close(self) -> None:
        """Cancel what was started."""
        self._creation.close()
