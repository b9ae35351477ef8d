"""The coordinator of transactions: InitProducerId, AddOffsetsToTxn, EndTxn, and what TxnOffsetCommit asks of it.

What stands of a transactional id changes when its record is on disk. A transaction ends in three steps, each on disk
before the next: its end is prepared in `__transaction_state`, markers go into `__consumer_offsets`, the end is
complete. A server that begins goes on with what it finds prepared. Meanwhile other requests of the id are told to try
again, as a broker tells them.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from offsetlake.kafka.batches.writer import Producer
from offsetlake.kafka.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_AUTHORIZATION_FAILED,
    INVALID_PRODUCER_EPOCH,
    INVALID_REQUEST,
    INVALID_TRANSACTION_TIMEOUT,
    NONE,
    PRODUCER_FENCED,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from offsetlake.serve.auth.acl import COMMIT
from offsetlake.serve.auth.principals import RequestContext
from offsetlake.serve.protocol.encoding import Lazy, Values
from offsetlake.serve.storage.store import Store
from offsetlake.serve.transactions import rules
from offsetlake.serve.transactions.log import TransactionLog, expired, partition_of
from offsetlake.serve.transactions.rules import NO_EPOCH, NO_ID, PREPARED, State, Transaction
from offsetlake.serve.transactions.writes import Change, Cleaning, Done, Marker
from offsetlake.serve.writes.rounds import Writes
from offsetlake.util.times import now_ms

LONGEST = 15 * 60_000  # ms: transaction.max.timeout.ms of a broker
LOOK = 1.0  # seconds between two looks for transactions whose time is over
_FENCED_SINCE = {"init": 4, "offsets": 2, "end": 2}  # versions that tell a fenced producer by a code of its own
_BUMPING_SINCE, _OF_BROKERS_SINCE = 5, 4  # versions of EndTxn, of AddPartitionsToTxn
_IDS_A_MS = 1000

Answer = Callable[[Values], None]


class Transactions:
    """Transactions by their ids; nothing may be asked while the store is loading."""

    def __init__(
        self, store: Store, writes: Writes, log: TransactionLog, log_partition: Callable[[bytes], int]
    ) -> None:
        self._store, self._writes, self._log, self._log_partition = store, writes, log, log_partition
        self._standing: dict[str, Transaction] = {}
        self._open: set[str] = set()  # of those not ended
        self._changing: set[str] = set()  # of those with a write under way
        self._last_id = NO_ID

    def load(self, standing: dict[str, Transaction]) -> None:
        """Begin with what the log says, and go on with what is prepared there.

        Producer ids go up with the clock, so that none comes again, be it of a broker, which counts them from 0 on, or
        of a server whose records are gone.
        """
        now = now_ms()
        self._standing |= {name: of for name, of in standing.items() if not expired(of, now)}
        self._open |= {name for name, of in self._standing.items() if of.state not in rules.ENDED}
        known = [max(of.producer_id, of.next_producer_id) for of in standing.values()]
        known += [producer_id for producer_id, _ in self._store.pending.holders()]
        self._last_id = max(now * _IDS_A_MS, *known, NO_ID)
        self.look()

    async def watch(self) -> None:
        """Look for transactions whose time is over, again and again, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            self.look()

    def look(self) -> None:
        """Abort transactions whose time is over, and end those that are prepared."""
        now = now_ms()
        for name in [*self._open - self._changing]:
            of = self._standing[name]
            if of.state in PREPARED:
                self._changing.add(name)
                self._mark(of, _nobody_hears)
            elif of.started + of.timeout < now:
                self._end(rules.fenced(of, now), _nobody_hears)

    def init_producer_id(self, request: Any, asked: RequestContext, answer: Answer) -> None:
        """Answer InitProducerId: a producer id and an epoch that fences all before."""

        def refuse(error: int) -> None:
            error = _as_told(error, "init", asked.version)
            answer({"error_code": error, "producer_id": NO_ID, "producer_epoch": NO_EPOCH})

        def give(producer: Producer) -> None:
            answer({"error_code": NONE, "producer_id": producer.id, "producer_epoch": producer.epoch})

        name, timeout = request.transactional_id, round(request.transaction_timeout.total_seconds() * 1000)
        expected = Producer(getattr(request, "producer_id", NO_ID), getattr(request, "producer_epoch", NO_EPOCH))
        error = denial(asked, name) or self._refusal(name) if name is not None else self._loading()
        if not error and (expected.id == NO_ID) is not (expected.epoch == NO_EPOCH):
            error = INVALID_REQUEST
        if not error and name is not None and not 0 < timeout <= LONGEST:
            error = INVALID_TRANSACTION_TIMEOUT
        if error:
            refuse(error)
        elif name is None:
            give(Producer(self._new_id(), 0))
        else:
            begun = self._initialised(name, None if expected.id == NO_ID else expected, timeout)
            if isinstance(begun, int):
                refuse(begun)
            elif begun.state is State.PREPARE_ABORT:
                self._end(begun, lambda error: refuse(error or CONCURRENT_TRANSACTIONS))
            else:
                self._change(begun, lambda error: refuse(error) if error else give(begun.producer))

    def _initialised(self, name: str, expected: Producer | None, timeout: int) -> Transaction | int:
        now, of = now_ms(), self._standing.get(name)
        if of is None:
            of = Transaction(transactional_id=name, producer_id=self._new_id(), timeout=timeout, updated=now)
        return rules.initialised(of, expected, timeout, now, self._new_id)

    def add_offsets(self, request: Any, asked: RequestContext, answer: Answer) -> None:
        """Answer AddOffsetsToTxn: the log partition of a group is taken into the transaction."""
        producer, group = Producer(request.producer_id, request.producer_epoch), request.group_id.encode()

        def done(error: int) -> None:
            answer({"error_code": _as_told(error, "offsets", asked.version)})

        if error := denial(asked, request.transactional_id, group):
            done(error)
        else:
            self.join(request.transactional_id, producer, self._log_partition(group), done)

    def add_partitions(self, request: Any, asked: RequestContext, answer: Answer) -> None:
        """Refuse AddPartitionsToTxn: there are no messages here that a transaction could write."""
        if asked.version >= _OF_BROKERS_SINCE:
            answer({"error_code": CLUSTER_AUTHORIZATION_FAILED, "results_by_transaction": []})
            return
        denied = denial(asked, request.v3_and_below_transactional_id)
        refused = {"partition_error_code": denied or TOPIC_AUTHORIZATION_FAILED}
        topics = (
            {
                "name": topic.name,
                "results_by_partition": Lazy(
                    len(topic.partitions), ({"partition_index": of} | refused for of in topic.partitions)
                ),
            }
            for topic in request.v3_and_below_topics
        )
        answer({"results_by_topic_v3_and_below": Lazy(len(request.v3_and_below_topics), topics)})

    def join(self, name: str, producer: Producer, partition: int, done: Done) -> None:
        """Take a log partition into a transaction; `done` hears an error code, now or later."""
        error = self._refusal(name)
        joined = error or rules.joined(self._standing.get(name), producer, partition, now_ms())
        if isinstance(joined, int):
            done(joined)
        else:
            self._change(joined, done)

    def may_write(self, name: str, producer: Producer, partition: int, version: int) -> int:
        """Give the error code of a TxnOffsetCommit whose log partition must be in the transaction."""
        return self._refusal(name) or rules.may_write(self._standing.get(name), producer, partition, version)

    def end(self, request: Any, asked: RequestContext, answer: Answer) -> None:
        """Answer EndTxn, when the markers are in the log."""
        name = request.transactional_id

        def done(error: int) -> None:
            of = self._standing.get(name)
            id_, epoch = (NO_ID, NO_EPOCH) if error or of is None else of.producer
            error = _as_told(error, "end", asked.version)
            answer({"error_code": error, "producer_id": id_, "producer_epoch": epoch})

        error = denial(asked, name) or self._refusal(name)
        ended: Transaction | int = error or rules.ended(
            self._standing.get(name),
            Producer(request.producer_id, request.producer_epoch),
            rules.BUMPING if asked.version >= _BUMPING_SINCE else 0,
            now_ms(),
            self._new_id,
            commits=request.committed,
        )
        if isinstance(ended, int):
            done(ended)
        else:
            self._end(ended, done)

    def _refusal(self, name: str) -> int:
        """Give the error code that any request of a transactional id gets now, or NONE."""
        if error := self._loading():
            return error
        if not name:
            return INVALID_REQUEST
        return CONCURRENT_TRANSACTIONS if name in self._changing else NONE

    def _loading(self) -> int:
        return COORDINATOR_LOAD_IN_PROGRESS if self._store.loading else NONE

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _change(self, new: Transaction, done: Done) -> None:
        """Have something stand once it is on disk."""
        name = new.transactional_id

        def written(error: int, grown: bool) -> None:
            self._changing.discard(name)
            if not error:
                self._put(new)
            done(error)
            if grown:
                self._clean(name)

        change = Change(new, self._writes, self._log, written)  # raises where no record holds it: then nothing changes
        self._changing.add(name)
        self._writes.add(change)

    def _put(self, new: Transaction) -> None:
        self._standing[new.transactional_id] = new
        (self._open.discard if new.state in rules.ENDED else self._open.add)(new.transactional_id)

    def _clean(self, name: str) -> None:
        self._writes.add(Cleaning(partition_of(name), self._standing, self._writes, self._log, now_ms()))

    def _end(self, prepared: Transaction, done: Done) -> None:
        """End a transaction: `done` hears when its markers are in the log."""

        def marked(error: int) -> None:
            if error:
                done(error)
            else:
                self._changing.add(prepared.transactional_id)
                self._mark(prepared, done)

        self._change(prepared, marked)

    def _mark(self, prepared: Transaction, done: Done) -> None:
        """Write the markers of a prepared end; where one fails, all are written again later."""
        left, errors = len(prepared.partitions), [NONE]

        def marked(error: int) -> None:
            nonlocal left
            left -= 1
            errors.append(error)
            if left > 0:
                return
            self._changing.discard(prepared.transactional_id)
            if not any(errors):
                self._complete(rules.completed(prepared, now_ms()))
            done(max(errors))

        for partition in sorted(prepared.partitions):
            self._writes.add(Marker(partition, prepared, self._writes, self._store, marked))
        if not prepared.partitions:
            marked(NONE)

    def _complete(self, completed: Transaction) -> None:
        """Have a transaction stand as ended: its markers, come once more were the record lost, would mean nothing."""
        self._put(completed)

        def written(_error: int, grown: bool) -> None:
            if grown:
                self._clean(completed.transactional_id)

        self._writes.add(Change(completed, self._writes, self._log, written))


def denial(asked: RequestContext, name: str, group: bytes | None = None) -> int:
    """Give the error code of who may not use a transactional id, or not for a group; NONE where it may.

    Rights on groups hold for transactional ids of such names too: whoever uses one fences the others who do.
    """
    if not asked.may(COMMIT, name.encode()):
        return TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return NONE if group is None or asked.may(COMMIT, group) else GROUP_AUTHORIZATION_FAILED


def _as_told(error: int, request: str, version: int) -> int:
    """Give the error code as a version has it."""
    if error == PRODUCER_FENCED and version < _FENCED_SINCE[request]:
        return INVALID_PRODUCER_EPOCH
    return error


def _nobody_hears(_error: int) -> None:
    """Let it be: whoever asks is told by what stands."""
