"""The writes of the transaction coordinator: states of transactional ids, and transaction markers."""

from collections.abc import Callable, Sequence

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches.writer import Batch, Producer, marker_batch
from offsetlake.kafka.error_codes import NONE, NOT_COORDINATOR
from offsetlake.log.positions import LogPartition
from offsetlake.serve.storage.store import Store
from offsetlake.serve.transactions.log import TransactionLog, is_expired, partition_of, state_batch
from offsetlake.serve.transactions.rules import Transaction
from offsetlake.serve.writes.rounds import Writes
from offsetlake.util.times import now_ms

Done = Callable[[int], None]


class TransactionStateWrite:
    """A write of a transactional id's state; `done` is called with an error code and `TransactionLog.grown`."""

    exclusive = False

    def __init__(
        self, new: Transaction, writes: Writes, log: TransactionLog, done: Callable[[int, bool], None]
    ) -> None:
        self.partition: LogPartition = partition_of(new.transactional_id)
        self._batch = state_batch([new])
        self._writes, self._log, self._done = writes, log, done

    def batches(self) -> Sequence[Batch]:
        """Return the one batch, which is synced before dependent writes, whatever the `Flush` is."""
        self._writes.require_sync()
        return (self._batch,)

    def written(self, _firsts: list[int]) -> None:
        """Report that the state is durable."""
        self._done(NONE, self._log.grown(self.partition, self._batch))

    def failed(self, _error: LogUnavailable) -> None:
        """Report NOT_COORDINATOR (16): the state was not written."""
        self._done(NOT_COORDINATOR, False)


class MarkerWrite:
    """A write of the marker that ends a transaction in one log partition."""

    exclusive = False

    def __init__(
        self,
        partition: int,
        producer: Producer,
        writes: Writes,
        store: Store,
        done: Done,
        *,
        committed: bool,
        coordinator_epoch: int = 0,
    ) -> None:
        self.partition, self._producer, self._writes = partition, producer, writes
        self._store, self._done = store, done
        self._committed, self._coordinator_epoch = committed, coordinator_epoch

    def batches(self) -> Sequence[Batch]:
        """Return the one control batch."""
        self._writes.require_sync()
        return (marker_batch(now_ms(), self._producer, self._coordinator_epoch, committed=self._committed),)

    def written(self, firsts: list[int]) -> None:
        """Apply the marker to the store."""
        transaction = self._producer.id, self.partition
        self._store.end_transaction(transaction, firsts[0], committed=self._committed)
        self._done(NONE)

    def failed(self, _error: LogUnavailable) -> None:
        """Report NOT_COORDINATOR (16): the transaction has not ended yet."""
        self._done(NOT_COORDINATOR)


class CleanupWrite:
    """A write of all current states of a partition, which makes older records obsolete; expired ids are dropped."""

    exclusive = True

    def __init__(
        self,
        partition: LogPartition,
        transactions: dict[str, Transaction],
        writes: Writes,
        log: TransactionLog,
        now: int,
    ) -> None:
        self.partition, self._transactions, self._writes = partition, transactions, writes
        self._log, self._now = log, now
        self._batch = state_batch(())

    def batches(self) -> Sequence[Batch]:
        """Return the one batch, which is synced before older segments are deleted, whatever the `Flush` is."""
        self._writes.require_sync()
        states = [state for name, state in self._transactions.items() if partition_of(name) == self.partition]
        for state in states:
            if is_expired(state, self._now):
                del self._transactions[state.transactional_id]
        self._batch = state_batch([state for state in states if not is_expired(state, self._now)])
        return (self._batch,) if self._batch.records else ()

    def written(self, firsts: list[int]) -> None:
        """Delete the segments before the batch."""
        if firsts:
            self._log.clean(self.partition, self._batch)

    def failed(self, _error: LogUnavailable) -> None:
        """Do nothing: a later write tries again."""
