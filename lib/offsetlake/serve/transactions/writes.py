"""What the coordinator of transactions writes: what stands of a transactional id, and the markers of a transaction."""

from collections.abc import Callable, Sequence

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches.writer import Batch, marker_batch
from offsetlake.kafka.error_codes import NONE, NOT_COORDINATOR
from offsetlake.log.positions import LogPartition
from offsetlake.serve.storage.store import Store
from offsetlake.serve.transactions.log import TransactionLog, expired, partition_of, state_batch
from offsetlake.serve.transactions.rules import State, Transaction
from offsetlake.serve.writes.rounds import Writes
from offsetlake.util.times import now_ms

Done = Callable[[int], None]


class Change:
    """A write of what is to stand of a transactional id; `done` hears an error code."""

    alone = False

    def __init__(
        self, new: Transaction, writes: Writes, log: TransactionLog, done: Callable[[int, bool], None]
    ) -> None:
        self.partition: LogPartition = partition_of(new.transactional_id)
        self._batch = state_batch([new])
        self._writes, self._log, self._done = writes, log, done

    def batches(self) -> Sequence[Batch]:
        """Give the one batch; the disk has it before what builds on it, whatever the `Flush` is."""
        self._writes.make_due()
        return (self._batch,)

    def written(self, _firsts: list[int]) -> None:
        """Tell that it stands."""
        self._done(NONE, self._log.grown(self.partition, self._batch))

    def failed(self, _error: LogUnavailable) -> None:
        """Tell that it does not."""
        self._done(NOT_COORDINATOR, False)


class Marker:
    """A write of the marker that ends a transaction in one log partition."""

    alone = False

    def __init__(self, partition: int, ends: Transaction, writes: Writes, store: Store, done: Done) -> None:
        self.partition, self._ends, self._writes, self._store, self._done = partition, ends, writes, store, done
        self._committed = ends.state is State.PREPARE_COMMIT

    def batches(self) -> Sequence[Batch]:
        """Give the one control batch."""
        self._writes.make_due()
        return (marker_batch(now_ms(), self._ends.producer, committed=self._committed),)

    def written(self, firsts: list[int]) -> None:
        """Serve what it commits."""
        self._store.end_transaction((self._ends.producer_id, self.partition), firsts[0], committed=self._committed)
        self._done(NONE)

    def failed(self, _error: LogUnavailable) -> None:
        """Tell that the transaction has not ended yet."""
        self._done(NOT_COORDINATOR)


class Cleaning:
    """A write of all that stands in a partition; ids that nobody has used for EXPIRES are left out, and forgotten."""

    alone = True

    def __init__(
        self, partition: LogPartition, standing: dict[str, Transaction], writes: Writes, log: TransactionLog, now: int
    ) -> None:
        self.partition, self._standing, self._writes, self._log, self._now = partition, standing, writes, log, now
        self._batch = state_batch(())

    def batches(self) -> Sequence[Batch]:
        """Give the one batch; the disk has it before what it stands for goes, whatever the `Flush` is."""
        self._writes.make_due()
        here = [of for name, of in self._standing.items() if partition_of(name) == self.partition]
        for of in here:
            if expired(of, self._now):
                del self._standing[of.transactional_id]
        self._batch = state_batch([of for of in here if not expired(of, self._now)])
        return (self._batch,) if self._batch.records else ()

    def written(self, firsts: list[int]) -> None:
        """Delete what was before."""
        if firsts:
            self._log.clean(self.partition, self._batch)

    def failed(self, _error: LogUnavailable) -> None:
        """Leave it to the next time."""
