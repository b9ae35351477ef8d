"""The transaction coordinator: InitProducerId, AddOffsetsToTxn, EndTxn, and the checks for TxnOffsetCommit.

The state of a transactional id changes when its record is durable. A transaction ends in three steps, each of them
durable before the next: the end is prepared in `__transaction_state`, the markers are written to `__consumer_offsets`,
and the end is complete. A server that starts completes the ends that are prepared. Meanwhile, other requests of the
transactional id fail with CONCURRENT_TRANSACTIONS (51), as with a broker.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from offsetlake.kafka.batches.writer import Producer
from offsetlake.kafka.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_PRODUCER_EPOCH,
    INVALID_REQUEST,
    INVALID_TRANSACTION_TIMEOUT,
    NONE,
    PRODUCER_FENCED,
    TOPIC_AUTHORIZATION_FAILED,
)
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handlers
from offsetlake.serve.protocol.api_keys import ADD_OFFSETS_TO_TXN, ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID
from offsetlake.serve.protocol.encoding import Lazy, Values
from offsetlake.serve.storage.store import Store
from offsetlake.serve.transactions import rules
from offsetlake.serve.transactions.log import TransactionLog, is_expired, partition_of
from offsetlake.serve.transactions.permissions import denial
from offsetlake.serve.transactions.rules import NO_EPOCH, NO_ID, PREPARED, State, Transaction
from offsetlake.serve.transactions.writes import CleanupWrite, Done, MarkerWrite, TransactionStateWrite
from offsetlake.serve.writes.rounds import Writes
from offsetlake.util.times import now_ms

MAX_TIMEOUT_MS = 15 * 60_000
"""The default of a broker's transaction.max.timeout.ms."""

CHECK_INTERVAL_SECONDS = 1.0
_FIRST_FENCED_VERSIONS = {"init": 4, "offsets": 2, "end": 2}  # before: INVALID_PRODUCER_EPOCH (47)
_FIRST_EPOCH_BUMP_VERSION = 5  # version of EndTxn
_FIRST_BROKER_VERSION = 4  # version of AddPartitionsToTxn that only brokers send
_FIRST_JOIN_VERSION = 5  # version of TxnOffsetCommit that adds the log partition to the transaction
_PRODUCER_IDS_PER_MS = 1000

Answer = Callable[[Values], None]


class Transactions:
    """Handles the requests of transactional ids; those that arrive while the store is loading fail."""

    def __init__(
        self, store: Store, writes: Writes, log: TransactionLog, log_partition: Callable[[bytes], int]
    ) -> None:
        self._store, self._writes, self._log, self._log_partition = store, writes, log, log_partition
        self._transactions: dict[str, Transaction] = {}
        self._open: set[str] = set()  # transactional ids with a transaction that has not ended
        self._changing: set[str] = set()  # transactional ids with a write under way
        self._last_producer_id = NO_ID

    def load(self, transactions: dict[str, Transaction]) -> None:
        """Load the states in the transaction log, and complete the ends that are prepared.

        New producer ids are derived from the clock, so that none is assigned twice, neither after a broker, which
        counts them from 0, nor after a server whose records were deleted.
        """
        now = now_ms()
        self._transactions |= {name: current for name, current in transactions.items() if not is_expired(current, now)}
        self._open |= {name for name, current in self._transactions.items() if current.state not in rules.ENDED}
        known_ids = [max(current.producer_id, current.next_producer_id) for current in transactions.values()]
        known_ids += [producer_id for producer_id, _ in self._store.pending.transactions()]
        self._last_producer_id = max(now * _PRODUCER_IDS_PER_MS, *known_ids, NO_ID)
        self.check_open()

    def handlers(self) -> Handlers:
        """Return the handlers by API key, without that of TxnOffsetCommit."""
        return {
            INIT_PRODUCER_ID: self.init_producer_id,
            ADD_PARTITIONS_TO_TXN: self.add_partitions,
            ADD_OFFSETS_TO_TXN: self.add_offsets,
            END_TXN: self.end,
        }

    @property
    def states(self) -> Mapping[str, Transaction]:
        """The state of each transactional id."""
        return self._transactions

    async def watch(self) -> None:
        """Check the open transactions again and again until the task is cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            self.check_open()

    def check_open(self) -> None:
        """Abort transactions that have timed out, and complete ends that are prepared."""
        now = now_ms()
        for name in [*self._open - self._changing]:
            current = self._transactions[name]
            if current.state in PREPARED:
                self._changing.add(name)
                self._write_markers(current, _ignore_result)
            elif current.started + current.timeout < now:
                self._end(rules.fenced(current, now), _ignore_result)

    def init_producer_id(self, request: Any, context: RequestContext, answer: Answer) -> None:
        """Answer InitProducerId with a producer id and an epoch, which fences the producers before."""

        def refuse(error: int) -> None:
            error = _versioned(error, "init", context.version)
            answer({"error_code": error, "producer_id": NO_ID, "producer_epoch": NO_EPOCH})

        def succeed(producer: Producer) -> None:
            answer({"error_code": NONE, "producer_id": producer.id, "producer_epoch": producer.epoch})

        name, timeout = request.transactional_id, round(request.transaction_timeout.total_seconds() * 1000)
        expected = Producer(getattr(request, "producer_id", NO_ID), getattr(request, "producer_epoch", NO_EPOCH))
        error = denial(context, name) or self._request_error(name) if name is not None else self._loading_error()
        if not error and (expected.id == NO_ID) is not (expected.epoch == NO_EPOCH):
            error = INVALID_REQUEST
        if not error and name is not None and not 0 < timeout <= MAX_TIMEOUT_MS:
            error = INVALID_TRANSACTION_TIMEOUT
        if error:
            refuse(error)
        elif name is None:
            succeed(Producer(self._new_producer_id(), 0))
        else:
            initialized = self._initialize(name, None if expected.id == NO_ID else expected, timeout)
            if isinstance(initialized, int):
                refuse(initialized)
            elif initialized.state is State.PREPARE_ABORT:
                self._end(initialized, lambda error: refuse(error or CONCURRENT_TRANSACTIONS))
            else:
                self._write_state(initialized, lambda error: refuse(error) if error else succeed(initialized.producer))

    def _initialize(self, name: str, expected: Producer | None, timeout: int) -> Transaction | int:
        now, current = now_ms(), self._transactions.get(name)
        if current is None:
            producer_id = self._new_producer_id()
            current = Transaction(transactional_id=name, producer_id=producer_id, timeout=timeout, updated=now)
        return rules.initialized(current, expected, timeout, now, self._new_producer_id)

    def add_offsets(self, request: Any, context: RequestContext, answer: Answer) -> None:
        """Answer AddOffsetsToTxn: add the log partition of a group to the transaction."""
        producer, group = Producer(request.producer_id, request.producer_epoch), request.group_id.encode()

        def done(error: int) -> None:
            answer({"error_code": _versioned(error, "offsets", context.version)})

        if error := denial(context, request.transactional_id, group) or self._store.unavailable(group):
            done(error)
        else:
            self.join(request.transactional_id, producer, self._log_partition(group), done)

    def add_partitions(self, request: Any, context: RequestContext, answer: Answer) -> None:
        """Refuse AddPartitionsToTxn: this server has no topics that a transaction could write to."""
        if context.version >= _FIRST_BROKER_VERSION:
            answer({"error_code": CLUSTER_AUTHORIZATION_FAILED, "results_by_transaction": []})
            return
        error = denial(context, request.v3_and_below_transactional_id)
        result = {"partition_error_code": error or TOPIC_AUTHORIZATION_FAILED}
        topics = (
            {
                "name": topic.name,
                "results_by_partition": Lazy(
                    len(topic.partitions), ({"partition_index": number} | result for number in topic.partitions)
                ),
            }
            for topic in request.v3_and_below_topics
        )
        answer({"results_by_topic_v3_and_below": Lazy(len(request.v3_and_below_topics), topics)})

    def join(self, name: str, producer: Producer, partition: int, done: Done) -> None:
        """Add a log partition to a transaction; `done` is called with an error code, now or later."""
        error = self._request_error(name)
        joined = error or rules.joined(self._transactions.get(name), producer, partition, now_ms())
        if isinstance(joined, int):
            done(joined)
        else:
            self._write_state(joined, done)

    def check(self, name: str, producer: Producer, partition: int, version: int, done: Done) -> None:
        """Check the transaction of a TxnOffsetCommit of a version; `done` is called with an error code.

        The log partition must be in the transaction; newer versions add it.
        """
        if version >= _FIRST_JOIN_VERSION:
            self.join(name, producer, partition, done)
        else:
            current = self._transactions.get(name)
            done(self._request_error(name) or rules.write_error(current, producer, partition, version))

    def end(self, request: Any, context: RequestContext, answer: Answer) -> None:
        """Answer EndTxn when the markers are in the log."""
        name = request.transactional_id

        def done(error: int) -> None:
            current = self._transactions.get(name)
            producer_id, epoch = (NO_ID, NO_EPOCH) if error or current is None else current.producer
            error = _versioned(error, "end", context.version)
            answer({"error_code": error, "producer_id": producer_id, "producer_epoch": epoch})

        error = denial(context, name) or self._request_error(name)
        ended: Transaction | int = error or rules.ended(
            self._transactions.get(name),
            Producer(request.producer_id, request.producer_epoch),
            rules.EPOCH_BUMP_VERSION if context.version >= _FIRST_EPOCH_BUMP_VERSION else 0,
            now_ms(),
            self._new_producer_id,
            commits=request.committed,
        )
        if isinstance(ended, int):
            done(ended)
        else:
            self._end(ended, done)

    def _request_error(self, name: str) -> int:
        """Return the error code with which any request of a transactional id fails now, or NONE."""
        if error := self._loading_error():
            return error
        if not name:
            return INVALID_REQUEST
        return CONCURRENT_TRANSACTIONS if name in self._changing else NONE

    def _loading_error(self) -> int:
        return COORDINATOR_LOAD_IN_PROGRESS if self._store.loading else NONE

    def _new_producer_id(self) -> int:
        self._last_producer_id += 1
        return self._last_producer_id

    def _write_state(self, new: Transaction, done: Done) -> None:
        """Write a state, which takes effect when it is durable; `done` is called with an error code."""
        name = new.transactional_id

        def written(error: int, grown: bool) -> None:
            self._changing.discard(name)
            if not error:
                self._put(new)
            done(error)
            if grown:
                self._clean_up(name)

        # It raises an error if the state cannot be encoded.
        write = TransactionStateWrite(new, self._writes, self._log, written)
        self._changing.add(name)
        self._writes.add(write)

    def _put(self, new: Transaction) -> None:
        self._transactions[new.transactional_id] = new
        (self._open.discard if new.state in rules.ENDED else self._open.add)(new.transactional_id)

    def _clean_up(self, name: str) -> None:
        self._writes.add(CleanupWrite(partition_of(name), self._transactions, self._writes, self._log, now_ms()))

    def _end(self, prepared: Transaction, done: Done) -> None:
        """End a transaction; `done` is called with an error code when its markers are in the log."""

        def prepared_written(error: int) -> None:
            if error:
                done(error)
            else:
                self._changing.add(prepared.transactional_id)
                self._write_markers(prepared, done)

        self._write_state(prepared, prepared_written)

    def _write_markers(self, prepared: Transaction, done: Done) -> None:
        """Write the markers of a prepared end; if one fails, all are written again later."""
        remaining, errors = len(prepared.partitions), [NONE]

        def marker_written(error: int) -> None:
            nonlocal remaining
            remaining -= 1
            errors.append(error)
            if remaining > 0:
                return
            self._changing.discard(prepared.transactional_id)
            if not any(errors):
                self._complete(rules.completed(prepared, now_ms()))
            done(max(errors))

        for partition in sorted(prepared.partitions):
            committed = prepared.state is rules.State.PREPARE_COMMIT
            self._writes.add(
                MarkerWrite(
                    partition, prepared.producer, self._writes, self._store, marker_written, committed=committed
                )
            )
        if not prepared.partitions:
            marker_written(NONE)

    def _complete(self, completed: Transaction) -> None:
        """Complete a transaction at once: if its record is lost, writing the markers again has no effect."""
        self._put(completed)

        def written(_error: int, grown: bool) -> None:
            if grown:
                self._clean_up(completed.transactional_id)

        self._writes.add(TransactionStateWrite(completed, self._writes, self._log, written))


def _versioned(error: int, request: str, version: int) -> int:
    """Return the error code that a version of a request has for an error."""
    if error == PRODUCER_FENCED and version < _FIRST_FENCED_VERSIONS[request]:
        return INVALID_PRODUCER_EPOCH
    return error


def _ignore_result(_error: int) -> None:
    """Ignore the result; a failed end is tried again by `check_open`."""
