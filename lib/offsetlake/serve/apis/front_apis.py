"""The APIs of a broker of a cluster: of transactions, which the other brokers coordinate, and of topics."""

from typing import Any

from offsetlake.auth.acl import ANY_PERMISSION
from offsetlake.kafka.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    NOT_COORDINATOR,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from offsetlake.serve.apis.cluster_apis import TRANSACTION_KEY, ClusterApis
from offsetlake.serve.front.forwarding import Forwarding
from offsetlake.serve.front.topic_creation import TopicCreation
from offsetlake.serve.front.transaction_coordinators import NO_COORDINATOR, TransactionCoordinators
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.protocol.encoding import Lazy, Values
from offsetlake.serve.steps import Steps
from offsetlake.serve.transactions.permissions import denial

_KEYS_SINCE = 4  # version of FindCoordinator with many keys
_FIRST_BROKER_VERSION = 4  # version of AddPartitionsToTxn that only brokers send


class FrontApis:
    """Answers Metadata, FindCoordinator and the requests of transactional producers."""

    def __init__(self, forwarding: Forwarding, cluster_apis: ClusterApis) -> None:
        self._cluster, self._cluster_apis = forwarding.cluster, cluster_apis
        self._coordinators, self._creation = TransactionCoordinators(forwarding.cluster), TopicCreation(forwarding)

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
