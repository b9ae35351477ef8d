"""Transactions of a cluster that this process is a broker of: their coordinators are the other brokers.

A TxnOffsetCommit is appended only after the coordinator has confirmed that the partition of the group belongs to the
open transaction (AddPartitionsToTxn, KIP-890). The coordinator decides the outcome and sends WriteTxnMarkers to this
process, and repeats it until it is answered; the marker makes the offsets effective or discards them.

A marker that arrives between the confirmation and the append ends the transaction before the offsets are in the log:
they would stay pending for ever. Such a commit is refused, and the client retries it, as with a broker's
`VerificationGuard`.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from offsetlake.errors import LogUnavailable, Refused
from offsetlake.kafka.batches.writer import Producer
from offsetlake.kafka.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    NONE,
    NOT_COORDINATOR,
    NOT_LEADER_OR_FOLLOWER,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
    TRANSACTION_COORDINATOR_FENCED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.log.positions import OFFSETS_TOPIC
from offsetlake.node.any_node import AnyNode
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.node.tasks import Tasks
from offsetlake.node.transaction_coordinators import TransactionCoordinators
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.protocol.api_keys import ADD_PARTITIONS_TO_TXN
from offsetlake.serve.protocol.encoding import Values
from offsetlake.serve.storage.store import Store
from offsetlake.serve.transactions.writes import Done, MarkerWrite
from offsetlake.serve.writes.rounds import Writes

VERIFY_VERSION, ADD_VERSION = 4, 5
LOADING_DELAY_MS = 50
MAX_COORDINATOR_EPOCHS = 100_000
"""Maximum number of producers whose newest coordinator epoch is kept."""

_FIRST_ADDING_VERSION, _FIRST_ABORTABLE_VERSION, _FIRST_LOADING_VERSION = 5, 4, 2  # of TxnOffsetCommit
_INCREMENTING_VERSION, _MAX_PRODUCER_EPOCH = 2, 2**15 - 1
_RETRIABLE = {COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS}

Answer = Callable[[Values], None]


class ClusterTransactions:
    """Checks TxnOffsetCommit at the coordinator, and writes the markers that coordinators send."""

    def __init__(self, cluster: Cluster, store: Store, writes: Writes) -> None:
        self._cluster, self._store, self._writes = cluster, store, writes
        self._coordinators = TransactionCoordinators(cluster)
        self._nodes: dict[tuple[str, int], AnyNode] = {}
        self._tasks = Tasks()
        self._checks: dict[tuple[int, int], set[object]] = {}  # confirmations under way, by producer id and partition
        self._producer_epochs: dict[tuple[int, int], int] = {}  # of open transactions, by producer id and partition
        self._coordinator_epochs: OrderedDict[int, int] = OrderedDict()  # by producer id, the oldest first

    def check(self, name: str, producer: Producer, partition: int, version: int, done: Done) -> None:
        """Check the transaction of a TxnOffsetCommit of a version; `done` is called with an error code."""
        where, guard = (producer.id, partition), object()
        self._checks.setdefault(where, set()).add(guard)
        retriable = COORDINATOR_LOAD_IN_PROGRESS if version >= _FIRST_LOADING_VERSION else COORDINATOR_NOT_AVAILABLE

        def finish(error: int) -> None:
            guards = self._checks.get(where, set())
            was_ended = guard not in guards
            guards.discard(guard)
            if not guards:
                self._checks.pop(where, None)
            if error in _RETRIABLE or (error == NONE and was_ended):
                error = retriable
            elif error == TRANSACTION_ABORTABLE and version < _FIRST_ABORTABLE_VERSION:
                error = INVALID_TXN_STATE
            elif error == PRODUCER_FENCED:
                error = INVALID_PRODUCER_EPOCH
            if error == NONE:
                self._producer_epochs[where] = max(producer.epoch, self._producer_epochs.get(where, producer.epoch))
            done(error)

        self._tasks.start(self._ask(name, producer, partition, adds=version >= _FIRST_ADDING_VERSION), finish)

    async def _ask(self, name: str, producer: Producer, partition: int, *, adds: bool) -> int:
        """Return the error code of the coordinator."""
        found = (await self._coordinators.find([name]))[name]
        if found["error_code"]:
            return int(found["error_code"])
        address = found["host"], found["port"]
        transaction = {
            "transactional_id": name,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "verify_only": not adds,
            "topics": [{"name": OFFSETS_TOPIC, "partitions": [partition]}],
        }
        version = ADD_VERSION if adds else VERIFY_VERSION
        node = self._nodes.setdefault(address, AnyNode(self._cluster.connection))
        try:
            response = await node.send(
                [address], ADD_PARTITIONS_TO_TXN, range(version, version + 1), {"transactions": [transaction]}
            )
        except (LogUnavailable, Refused):
            self._coordinators.forget(name)
            return COORDINATOR_NOT_AVAILABLE
        answer = response.entity()
        if answer.error_code:
            return INVALID_TXN_STATE if answer.error_code == CLUSTER_AUTHORIZATION_FAILED else int(answer.error_code)
        error = int(answer.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code)
        if error in {NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE}:
            self._coordinators.forget(name)
        return error

    def write_markers(self, request: Any, context: RequestContext, answer: Answer) -> None:
        """Answer WriteTxnMarkers when the markers are durable.

        While the log is loaded, the answer waits: a coordinator repeats a refused request without a pause.
        """
        if self._store.loading:
            self._writes.after(LOADING_DELAY_MS, lambda: self.write_markers(request, context, answer))
            return
        allowed = context.client.access.may_act_as_broker()
        results: list[dict[str, Any]] = []
        remaining = 1

        def done() -> None:
            nonlocal remaining
            remaining -= 1
            if not remaining:
                answer({"markers": results})

        for marker in request.markers:
            topics: list[dict[str, Any]] = []
            results.append({"producer_id": marker.producer_id, "topics": topics})
            for topic in marker.topics:
                partitions: list[dict[str, Any]] = []
                topics.append({"name": topic.name, "partitions": partitions})
                for partition in topic.partition_indexes:
                    result = {"partition_index": partition, "error_code": NONE}
                    partitions.append(result)
                    error = (
                        self._marker_error(marker, topic.name, partition) if allowed else CLUSTER_AUTHORIZATION_FAILED
                    )
                    if error:
                        result["error_code"] = error
                        continue
                    remaining += 1
                    self._write(marker, partition, _setter(result, done))
        done()

    def _marker_error(self, marker: Any, topic: str, partition: int) -> int:
        if topic != OFFSETS_TOPIC or not 0 <= partition < self._cluster.image.partitions(OFFSETS_TOPIC.encode()):
            return UNKNOWN_TOPIC_OR_PARTITION
        if marker.coordinator_epoch < self._coordinator_epochs.get(marker.producer_id, marker.coordinator_epoch):
            return TRANSACTION_COORDINATOR_FENCED
        epoch = self._producer_epochs.get((marker.producer_id, partition))
        return NONE if epoch is None or may_end(marker, epoch) else INVALID_PRODUCER_EPOCH

    def _write(self, marker: Any, partition: int, done: Done) -> None:
        epochs, producer_id = self._coordinator_epochs, marker.producer_id
        epochs[producer_id] = marker.coordinator_epoch
        epochs.move_to_end(producer_id)
        if len(epochs) > MAX_COORDINATOR_EPOCHS:
            epochs.popitem(last=False)
        self._checks.pop((producer_id, partition), None)  # they are refused
        self._producer_epochs.pop((producer_id, partition), None)
        producer = Producer(producer_id, marker.producer_epoch)
        write = MarkerWrite(
            partition,
            producer,
            self._writes,
            self._store,
            lambda error: done(NOT_LEADER_OR_FOLLOWER if error else NONE),
            committed=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
        )
        self._writes.add(write)

    def close(self) -> None:
        """Cancel the checks under way, and close the connections."""
        self._tasks.close()
        for node in self._nodes.values():
            node.close()


def may_end(marker: Any, epoch: int) -> bool:
    """Check whether a marker may end the open transaction of a producer epoch.

    Since transaction version 2 (KIP-890), each end of a transaction increments the epoch, so a marker with the epoch of
    an open transaction is a late one of the transaction before; see `ProducerAppendInfo.checkProducerEpoch` of Kafka.
    """
    if getattr(marker, "transaction_version", 0) < _INCREMENTING_VERSION or epoch == _MAX_PRODUCER_EPOCH:
        return bool(marker.producer_epoch >= epoch)
    return bool(marker.producer_epoch > epoch)


def _setter(result: dict[str, Any], done: Callable[[], None]) -> Done:
    def set_error(error: int) -> None:
        result["error_code"] = error
        done()

    return set_error
