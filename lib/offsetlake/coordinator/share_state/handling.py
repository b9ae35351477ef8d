"""Handles requests for the state of a share partition: from its state and a request to a result and a record.

The checks, their order and their messages are those of `ShareCoordinatorShard` of Kafka 4.2.0. A topic ID of zeros is
an unknown topic.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from offsetlake.coordinator.share_state.requests import (
    SUCCESS,
    DeleteRequest,
    InitializeRequest,
    ReadRequest,
    ReadResult,
    SharePartitionKey,
    ShareStateResult,
    SummaryRequest,
    SummaryResult,
    WriteRequest,
)
from offsetlake.coordinator.share_state.stored_state import Record, StoredState
from offsetlake.kafka.error_codes import (
    FENCED_LEADER_EPOCH,
    FENCED_STATE_EPOCH,
    INVALID_REQUEST,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.rules.share_state import UNKNOWN, ShareSnapshot, ShareUpdate, combine

NO_LEADER_EPOCH = 0
"""The leader epoch of an initialized share partition."""

_NEGATIVE_PARTITION = "The partition id cannot be a negative number."
_NOT_INITIALIZED = "{} operation on uninitialized share partition not allowed."
_MESSAGES = {
    FENCED_LEADER_EPOCH: "The leader epoch in the request is older than the epoch on the broker.",
    FENCED_STATE_EPOCH: "The share coordinator rejected the request because the share-group state epoch did not match.",
    UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
}
_Result = TypeVar("_Result", bound=ShareStateResult)


class StateOutcome(NamedTuple, Generic[_Result]):
    """The result of a request, and the record to write before it is sent; none if the state does not change."""

    result: _Result
    records: tuple[Record, ...] = ()


class Handling(NamedTuple):
    """The circumstances in which a request is handled.

    | Field                | Description |
    |----------------------|-------------|
    | exists               | Returns whether a topic has the partition |
    | updates_per_snapshot | `share.coordinator.snapshot.update.records.per.snapshot` |
    | now_ms               | The time, in ms since the epoch |
    """

    exists: Callable[[SharePartitionKey], bool]
    updates_per_snapshot: int
    now_ms: int

    def initialize(self, stored: StoredState | None, request: InitializeRequest) -> StateOutcome[ShareStateResult]:
        """Replace the state by a new one without batches."""
        error = _partition_error(request.key)
        if not error and stored is not None and _is_older(request.state_epoch, stored.state.highest_state_epoch):
            error = _error(FENCED_STATE_EPOCH)
        if error := error or self._topic_error(request.key):
            return StateOutcome(ShareStateResult(*error))
        snapshot_epoch = 0 if stored is None else stored.state.snapshot.snapshot_epoch + 1
        snapshot = ShareSnapshot(
            snapshot_epoch,
            request.state_epoch,
            NO_LEADER_EPOCH,
            request.start_offset,
            create_timestamp=self.now_ms,
            write_timestamp=self.now_ms,
        )
        return StateOutcome(SUCCESS, (snapshot,))

    def write(self, stored: StoredState | None, request: WriteRequest) -> StateOutcome[ShareStateResult]:
        """Add batches to the state, and set the start offset and the delivery complete count."""
        if error := _partition_error(request.key):
            return StateOutcome(ShareStateResult(*error))
        if stored is None:
            return StateOutcome(ShareStateResult(INVALID_REQUEST, _NOT_INITIALIZED.format("Write")))
        if _is_older(request.leader_epoch, stored.state.highest_leader_epoch):
            error = _error(FENCED_LEADER_EPOCH)
        elif _is_older(request.state_epoch, stored.state.highest_state_epoch):
            error = _error(FENCED_STATE_EPOCH)
        if error := error or self._topic_error(request.key):
            return StateOutcome(ShareStateResult(*error))
        change = ShareUpdate(
            stored.state.snapshot.snapshot_epoch,
            stored.state.snapshot.leader_epoch,
            request.start_offset,
            tuple([batch for batch in request.batches if batch.last_offset >= batch.first_offset]),
            request.delivery_complete_count,
        )
        return StateOutcome(SUCCESS, (self._record(stored, change),))

    def read(self, stored: StoredState | None, request: ReadRequest) -> StateOutcome[ReadResult]:
        """Return the state, and write the leader epoch if it is a new one."""
        if error := _partition_error(request.key):
            return StateOutcome(ReadResult(*error))
        if stored is None:
            return StateOutcome(ReadResult(INVALID_REQUEST, _NOT_INITIALIZED.format("Read")))
        highest_epoch, snapshot = stored.state.highest_leader_epoch, stored.state.snapshot
        if highest_epoch > request.leader_epoch:
            error = _error(FENCED_LEADER_EPOCH)
        if error := error or self._topic_error(request.key):
            return StateOutcome(ReadResult(*error))
        result = ReadResult(NONE, None, snapshot.state_epoch, snapshot.start_offset, snapshot.batches)
        if request.leader_epoch in {UNKNOWN, highest_epoch}:
            return StateOutcome(result)
        change = ShareUpdate(
            snapshot.snapshot_epoch,
            request.leader_epoch,
            snapshot.start_offset,
            delivery_complete_count=snapshot.delivery_complete_count,
        )
        return StateOutcome(result, (self._record(stored, change),))

    def delete(self, stored: StoredState | None, request: DeleteRequest) -> StateOutcome[ShareStateResult]:
        """Remove the state, if there is one."""
        if error := _partition_error(request.key) or self._topic_error(request.key):
            return StateOutcome(ShareStateResult(*error))
        return StateOutcome(SUCCESS, () if stored is None else (None,))

    def summary(self, stored: StoredState | None, request: SummaryRequest) -> StateOutcome[SummaryResult]:
        """Return the epochs and the start offset, which is UNKNOWN without a state."""
        if error := _partition_error(request.key) or self._topic_error(request.key):
            return StateOutcome(SummaryResult(*error))
        if stored is None:
            return StateOutcome(SummaryResult(start_offset=UNKNOWN))
        snapshot = stored.state.snapshot
        epochs = snapshot.state_epoch, snapshot.leader_epoch
        return StateOutcome(SummaryResult(NONE, None, *epochs, snapshot.start_offset, snapshot.delivery_complete_count))

    def _topic_error(self, key: SharePartitionKey) -> "tuple[int, str] | None":
        return None if self.exists(key) else _error(UNKNOWN_TOPIC_OR_PARTITION)

    def _record(self, stored: StoredState, change: ShareUpdate) -> ShareSnapshot | ShareUpdate:
        """Return the record with a change: a snapshot if one is due, otherwise an update with combined batches."""
        snapshot = stored.state.snapshot
        if max(stored.updates, 0) < self.updates_per_snapshot:
            return change._replace(batches=combine(change.batches, change.start_offset))
        start_offset = snapshot.start_offset if change.start_offset == UNKNOWN else change.start_offset
        return ShareSnapshot(
            snapshot.snapshot_epoch + 1,
            snapshot.state_epoch,
            change.leader_epoch,
            start_offset,
            combine((*snapshot.batches, *change.batches), start_offset),
            change.delivery_complete_count,
            self.now_ms,
            self.now_ms,
        )


def cold_snapshot(stored: StoredState, now_ms: int) -> ShareSnapshot:
    """Return a snapshot of a state that has not changed, which allows deleting the records before it."""
    snapshot = stored.state.snapshot
    return snapshot._replace(snapshot_epoch=snapshot.snapshot_epoch + 1, write_timestamp=now_ms)


def _partition_error(key: SharePartitionKey) -> "tuple[int, str] | None":
    return (INVALID_REQUEST, _NEGATIVE_PARTITION) if key.partition < 0 else None


def _error(code: int) -> tuple[int, str]:
    return code, _MESSAGES[code]


def _is_older(epoch: int, highest_epoch: int) -> bool:
    """Check whether the epoch of a request is fenced; UNKNOWN never is."""
    return epoch != UNKNOWN and epoch < highest_epoch
