"""The state transitions of a transactional id, as in a broker's coordinator (Kafka's `TransactionMetadata`).

They are those of a 4.x broker with transaction.version 2 (KIP-98, KIP-360, KIP-890). Each function takes the current
state and returns the new state or the error code of the request; nothing is changed in place.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum

from offsetlake.kafka.batches.writer import Producer
from offsetlake.kafka.error_codes import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NONE,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
)

NO_ID, NO_EPOCH, NO_TIME = -1, -1, -1
EPOCH_BUMP_VERSION = 2
"""The first transaction.version with which each end of a transaction raises the epoch (KIP-890)."""

_FIRST_ABORTABLE_VERSION = 4  # version of TxnOffsetCommit
_MAX_EPOCH = 2**15 - 1
_EXHAUSTED_EPOCH = _MAX_EPOCH - 1  # a producer id with this epoch gets no further epoch


class State(IntEnum):
    """The states of a transaction, with their numbers in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


PREPARED = {State.PREPARE_COMMIT, State.PREPARE_ABORT}
_ABORTS, _NOT_ENDED = {State.PREPARE_ABORT, State.COMPLETE_ABORT}, {State.EMPTY, State.ONGOING}
ENDED = {State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The state of a transactional id.

    | Field                | Description |
    |----------------------|-------------|
    | producer_id, epoch   | Those of its producer; the epoch is NO_EPOCH before the first InitProducerId |
    | timeout              | The transaction timeout in ms |
    | partitions           | The partitions of `__consumer_offsets` in the transaction |
    | started, updated     | ms since the epoch |
    | last_epoch           | The previous epoch of the same producer; not in the log |
    | previous_producer_id | The producer id before, if its epochs are exhausted |
    | next_producer_id     | The producer id after the transaction, if the epochs of the current one are exhausted |
    | version              | The transaction.version of the client that ended the transaction |
    """

    transactional_id: str
    producer_id: int
    epoch: int = NO_EPOCH
    timeout: int
    state: State = State.EMPTY
    partitions: frozenset[int] = frozenset()
    started: int = NO_TIME
    updated: int
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    version: int = 0

    @property
    def producer(self) -> Producer:
        """The producer id and epoch in record batches and markers."""
        return Producer(self.producer_id, self.epoch)


NewId = Callable[[], int]


def initialized(
    current: Transaction, expected: Producer | None, timeout: int, now: int, new_id: NewId
) -> Transaction | int:
    """Initialize a producer, either a new one or the one that the client `expected` to continue.

    If a transaction is open, it has to be aborted first: the new state is PREPARE_ABORT.
    """
    if expected is not None and not _can_continue(current, expected):
        return PRODUCER_FENCED
    if current.state in PREPARED:
        return CONCURRENT_TRANSACTIONS
    if current.state is State.ONGOING:
        return fenced(current, now)
    restarted = replace(
        current, state=State.EMPTY, timeout=timeout, partitions=frozenset(), started=NO_TIME, updated=now, version=0
    )
    if expected is None:
        return _next_epoch(restarted, NO_EPOCH, new_id)
    if current.epoch in {expected.epoch, NO_EPOCH}:
        return _next_epoch(restarted, current.epoch, new_id)
    is_retry = expected.epoch == current.last_epoch  # the answer of the first request was lost
    return restarted if is_retry else PRODUCER_FENCED


def _next_epoch(current: Transaction, last_epoch: int, new_id: NewId) -> Transaction:
    """Return the state with the next epoch, or with a new producer id if the epochs are exhausted."""
    if current.epoch < _EXHAUSTED_EPOCH:
        return replace(current, epoch=current.epoch + 1, last_epoch=last_epoch)
    return replace(
        current, producer_id=new_id(), previous_producer_id=current.producer_id, epoch=0, last_epoch=last_epoch
    )


def _can_continue(current: Transaction, expected: Producer) -> bool:
    if current.epoch == NO_EPOCH or expected.id == current.producer_id:
        return True
    return expected.id == current.previous_producer_id and expected.epoch >= _EXHAUSTED_EPOCH


def joined(current: Transaction | None, producer: Producer, partition: int, now: int) -> Transaction | int:
    """Add a partition to the transaction of a producer, or begin one with it; NONE if it is in the transaction."""
    error = _producer_error(current, producer)
    if current is None or error:
        return error
    if current.state is State.ONGOING:
        if partition in current.partitions:
            return NONE
        return replace(current, partitions=current.partitions | {partition}, updated=now)
    return replace(current, state=State.ONGOING, partitions=frozenset([partition]), started=now, updated=now)


def write_error(current: Transaction | None, producer: Producer, partition: int, version: int) -> int:
    """Return the error code of a TxnOffsetCommit to a partition, which must be in the transaction."""
    error = _producer_error(current, producer)
    if current is None or error:
        return error
    if partition in current.partitions:
        return NONE
    return TRANSACTION_ABORTABLE if version >= _FIRST_ABORTABLE_VERSION else INVALID_TXN_STATE


def _producer_error(current: Transaction | None, producer: Producer) -> int:
    if current is None or current.producer_id != producer.id:
        return INVALID_PRODUCER_ID_MAPPING
    if current.epoch != producer.epoch:
        return PRODUCER_FENCED
    return CONCURRENT_TRANSACTIONS if current.state in PREPARED else NONE


def ended(
    current: Transaction | None, producer: Producer, version: int, now: int, new_id: NewId, *, commits: bool
) -> Transaction | int:
    """Prepare the end of a transaction for a client with that transaction.version; NONE if it has already ended so."""
    if current is None:
        return INVALID_PRODUCER_ID_MAPPING
    if version < EPOCH_BUMP_VERSION:
        return _ended_without_bump(current, producer, now, commits=commits)
    overflowed = current.previous_producer_id == producer.id and producer.epoch == _EXHAUSTED_EPOCH
    overflowed = overflowed and current.epoch == 0
    if current.producer_id != producer.id and not overflowed:
        return INVALID_PRODUCER_ID_MAPPING
    if current.epoch == producer.epoch and current.state not in PREPARED:
        return _ended_with_bump(current, now, new_id, commits=commits)
    is_bumped = overflowed or current.epoch == producer.epoch + 1
    if is_bumped and current.state not in _NOT_ENDED:
        return _retried_end_error(current, commits=commits)
    return PRODUCER_FENCED


def _ended_with_bump(current: Transaction, now: int, new_id: NewId, *, commits: bool) -> Transaction | int:
    if current.state is not State.ONGOING:
        if commits:
            return INVALID_TXN_STATE
        current = replace(current, started=now)  # an abort without writes only raises the epoch
    next_id = new_id() if current.epoch >= _EXHAUSTED_EPOCH else NO_ID
    return _prepared(replace(current, next_producer_id=next_id), now, commits=commits)


def _ended_without_bump(current: Transaction, producer: Producer, now: int, *, commits: bool) -> Transaction | int:
    """Prepare the end of a transaction for a client that keeps its epoch."""
    if current.producer_id != producer.id:
        return INVALID_PRODUCER_ID_MAPPING
    if current.epoch != producer.epoch:
        return PRODUCER_FENCED
    if current.state is State.ONGOING:
        return replace(current, state=State.PREPARE_COMMIT if commits else State.PREPARE_ABORT, updated=now, version=0)
    return INVALID_TXN_STATE if current.state is State.EMPTY else _retried_end_error(current, commits=commits)


def _retried_end_error(current: Transaction, *, commits: bool) -> int:
    """Return the error code of a retried EndTxn for an end that is already prepared or complete."""
    if (current.state in _ABORTS) is commits:
        return INVALID_TXN_STATE
    return CONCURRENT_TRANSACTIONS if current.state in PREPARED else NONE


def fenced(current: Transaction, now: int) -> Transaction:
    """Prepare the abort of an open transaction with the next epoch, which fences its producer."""
    return _prepared(current, now, commits=False)


def _prepared(current: Transaction, now: int, *, commits: bool) -> Transaction:
    """Prepare an end with the next epoch; the maximal epoch is reserved for this."""
    state = State.PREPARE_COMMIT if commits else State.PREPARE_ABORT
    epoch = min(current.epoch + 1, _MAX_EPOCH)
    return replace(current, state=state, epoch=epoch, last_epoch=current.epoch, updated=now, version=EPOCH_BUMP_VERSION)


def completed(current: Transaction, now: int) -> Transaction:
    """Return the state after the markers of a prepared end have been written."""
    state = State.COMPLETE_COMMIT if current.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
    current = replace(current, state=state, partitions=frozenset(), updated=now)
    if current.next_producer_id == NO_ID:
        return current
    return replace(
        current,
        producer_id=current.next_producer_id,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_ID,
        epoch=0,
    )
