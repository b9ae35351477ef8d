"""How a transactional id goes from one state to the next: the rules of a broker's coordinator.

As a 4.x broker has them whose transaction.version is 2 (KIP-98, KIP-360, KIP-890). Each rule takes what stands, and
gives what is to stand, or the error code of the request. Nothing is changed in place.
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
BUMPING = 2  # transaction.version since which each end of a transaction raises the epoch
_ABORTABLE_SINCE = 4  # version of TxnOffsetCommit
_LAST_EPOCH = 2**15 - 1
_EXHAUSTED = _LAST_EPOCH - 1  # a producer id whose epoch is there gets no further one


class State(IntEnum):
    """States, by their numbers in the log."""

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
    """What stands of a transactional id.

    | field                | is |
    |----------------------|----|
    | producer_id, epoch   | of its producer; epoch NO_EPOCH of an id that nobody had before |
    | timeout              | ms a transaction may take |
    | partitions           | of `__consumer_offsets`, that the transaction has written to or may have |
    | started, updated     | ms since the epoch |
    | last_epoch           | the epoch before, where the same producer has gone on; not in the log |
    | previous_producer_id | the one before, where the epochs of that were used up |
    | next_producer_id     | the one that follows when the transaction has ended |
    | version              | transaction.version of the client that ended it |
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
        """Producer id and epoch, as batches and markers have them."""
        return Producer(self.producer_id, self.epoch)


NewId = Callable[[], int]


def initialised(of: Transaction, expected: Producer | None, timeout: int, now: int, new_id: NewId) -> Transaction | int:
    """Begin with a producer, a new one or one that goes on (`expected`).

    A transaction that is open is to be aborted instead: then what is given is PREPARE_ABORT.
    """
    if expected is not None and not _goes_on(of, expected):
        return PRODUCER_FENCED
    if of.state in PREPARED:
        return CONCURRENT_TRANSACTIONS
    if of.state is State.ONGOING:
        return fenced(of, now)
    begun = replace(
        of, state=State.EMPTY, timeout=timeout, partitions=frozenset(), started=NO_TIME, updated=now, version=0
    )
    if expected is None:
        return _raised(begun, NO_EPOCH, new_id)
    if of.epoch in {expected.epoch, NO_EPOCH}:
        return _raised(begun, of.epoch, new_id)
    return begun if expected.epoch == of.last_epoch else PRODUCER_FENCED  # told before, and not heard


def _raised(of: Transaction, last_epoch: int, new_id: NewId) -> Transaction:
    """Give the next epoch, or the next producer id where there is none."""
    if of.epoch < _EXHAUSTED:
        return replace(of, epoch=of.epoch + 1, last_epoch=last_epoch)
    return replace(of, producer_id=new_id(), previous_producer_id=of.producer_id, epoch=0, last_epoch=last_epoch)


def _goes_on(of: Transaction, expected: Producer) -> bool:
    if of.epoch == NO_EPOCH or expected.id == of.producer_id:
        return True
    return expected.id == of.previous_producer_id and expected.epoch >= _EXHAUSTED


def joined(of: Transaction | None, producer: Producer, partition: int, now: int) -> Transaction | int:
    """Take a partition into the transaction of a producer, which begins with it; NONE where it has it already."""
    error = _of_producer(of, producer)
    if of is None or error:
        return error
    if of.state is State.ONGOING:
        if partition in of.partitions:
            return NONE
        return replace(of, partitions=of.partitions | {partition}, updated=now)
    return replace(of, state=State.ONGOING, partitions=frozenset([partition]), started=now, updated=now)


def may_write(of: Transaction | None, producer: Producer, partition: int, version: int) -> int:
    """Give the error code of a TxnOffsetCommit to a partition that must be in the transaction, NONE if it is."""
    error = _of_producer(of, producer)
    if of is None or error:
        return error
    if partition in of.partitions:
        return NONE
    return TRANSACTION_ABORTABLE if version >= _ABORTABLE_SINCE else INVALID_TXN_STATE


def _of_producer(of: Transaction | None, producer: Producer) -> int:
    if of is None or of.producer_id != producer.id:
        return INVALID_PRODUCER_ID_MAPPING
    if of.epoch != producer.epoch:
        return PRODUCER_FENCED
    return CONCURRENT_TRANSACTIONS if of.state in PREPARED else NONE


def ended(
    of: Transaction | None, producer: Producer, version: int, now: int, new_id: NewId, *, commits: bool
) -> Transaction | int:
    """Prepare the end of a transaction, by a client of that transaction.version; NONE where it has ended so before."""
    if of is None:
        return INVALID_PRODUCER_ID_MAPPING
    if version < BUMPING:
        return _ended_as_before(of, producer, now, commits=commits)
    overflowed = of.previous_producer_id == producer.id and producer.epoch == _EXHAUSTED and of.epoch == 0
    if of.producer_id != producer.id and not overflowed:
        return INVALID_PRODUCER_ID_MAPPING
    if of.epoch == producer.epoch and of.state not in PREPARED:
        return _ended_now(of, now, new_id, commits=commits)
    raised = overflowed or of.epoch == producer.epoch + 1
    return _ended_before(of, commits=commits) if raised and of.state not in _NOT_ENDED else PRODUCER_FENCED


def _ended_now(of: Transaction, now: int, new_id: NewId, *, commits: bool) -> Transaction | int:
    if of.state is not State.ONGOING:
        if commits:
            return INVALID_TXN_STATE
        of = replace(of, started=now)  # nothing was written: there is nothing to abort but the epoch
    next_id = new_id() if of.epoch >= _EXHAUSTED else NO_ID
    return _prepared(replace(of, next_producer_id=next_id), now, commits=commits)


def _ended_as_before(of: Transaction, producer: Producer, now: int, *, commits: bool) -> Transaction | int:
    """Prepare the end for a client that keeps its epoch."""
    if of.producer_id != producer.id:
        return INVALID_PRODUCER_ID_MAPPING
    if of.epoch != producer.epoch:
        return PRODUCER_FENCED
    if of.state is State.ONGOING:
        return replace(of, state=State.PREPARE_COMMIT if commits else State.PREPARE_ABORT, updated=now, version=0)
    return INVALID_TXN_STATE if of.state is State.EMPTY else _ended_before(of, commits=commits)


def _ended_before(of: Transaction, *, commits: bool) -> int:
    """Answer who asks again for an end that is prepared or complete."""
    if (of.state in _ABORTS) is commits:
        return INVALID_TXN_STATE
    return CONCURRENT_TRANSACTIONS if of.state in PREPARED else NONE


def fenced(of: Transaction, now: int) -> Transaction:
    """Prepare the end of an open transaction that its producer does not end: its epoch counts no more."""
    return _prepared(of, now, commits=False)


def _prepared(of: Transaction, now: int, *, commits: bool) -> Transaction:
    """Prepare an end with the next epoch; the last there is remains for that where others were used up."""
    state = State.PREPARE_COMMIT if commits else State.PREPARE_ABORT
    epoch = min(of.epoch + 1, _LAST_EPOCH)
    return replace(of, state=state, epoch=epoch, last_epoch=of.epoch, updated=now, version=BUMPING)


def completed(of: Transaction, now: int) -> Transaction:
    """Give what stands when the markers of a prepared end are in the log."""
    state = State.COMPLETE_COMMIT if of.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
    of = replace(of, state=state, partitions=frozenset(), updated=now)
    if of.next_producer_id == NO_ID:
        return of
    return replace(
        of, producer_id=of.next_producer_id, previous_producer_id=of.producer_id, next_producer_id=NO_ID, epoch=0
    )
