"""A partition as one share group reads it: the state machine with its persister, its timer and its log start."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from offsetlake.coordinator.settings import CoordinatorSettings, ShareIsolation
from offsetlake.coordinator.share_partition.partition import SharePartition
from offsetlake.coordinator.share_partition.requests import (
    AcknowledgementBatch,
    AcquiredRecords,
    AcquireRequest,
    PersisterWrite,
)
from offsetlake.coordinator.share_partition.window import InvalidShareState
from offsetlake.coordinator.share_state import requests as states
from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    FENCED_LEADER_EPOCH,
    FENCED_STATE_EPOCH,
    GROUP_ID_NOT_FOUND,
    NONE,
    NOT_COORDINATOR,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.kafka.uuid import uuid_text
from offsetlake.rules.share_state import UNKNOWN, ShareSnapshot
from offsetlake.serve.steps import complete_in_turns
from offsetlake.share.group_settings import EARLIEST, LATEST, GroupSettings, limits_of, reset_timestamp
from offsetlake.share.record_cache import RETRY_SECONDS, RecordCache, wake
from offsetlake.share.sessions import IdPartition
from offsetlake.share.state.share_states import ShareStates
from offsetlake.util.times import now_ms

T = TypeVar("T")
LOG = logging.getLogger(__name__)
Reads = Mapping[str, RecordCache]
"""The reads of partitions by isolation level."""

_RETRIED = {NONE, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR}
"""The results of the persister after which the share partition can still be used."""

_CLIENT_ERRORS = {
    NONE: NONE,
    COORDINATOR_LOAD_IN_PROGRESS: COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_NOT_AVAILABLE: COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR: COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND: GROUP_ID_NOT_FOUND,
    UNKNOWN_TOPIC_OR_PARTITION: UNKNOWN_TOPIC_OR_PARTITION,
    FENCED_LEADER_EPOCH: NOT_LEADER_OR_FOLLOWER,
    FENCED_STATE_EPOCH: NOT_LEADER_OR_FOLLOWER,
}


@dataclass(eq=False, slots=True)
class _Acknowledging:
    """Acknowledgements that are being applied; a member may send several requests, by several connections."""

    member: str
    member_left: bool = False


class PartitionLease:
    """The leader of one share partition.

    Attributes:
        reads: The reads of partitions in the isolation level of the group.
        records: The records in flight; None until the state is loaded.
        error_code: Why the state could not be loaded or written; NONE as long as the share partition can be used.
        waiting: The events that are set when records may have become available.
    """

    def __init__(
        self, group: str, partition: IdPartition, reads: Reads, persister: ShareStates, settings: GroupSettings
    ) -> None:
        self._key = states.SharePartitionKey(group, uuid_text(partition.topic_id), partition.partition)
        self._partition, self._all_reads, self._persister, self._settings = partition, reads, persister, settings
        self.reads = reads[ShareIsolation.READ_UNCOMMITTED]
        self.records: SharePartition | None = None
        self.error_code = NONE
        self.waiting: set[asyncio.Event] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_checking_start = False
        self._acknowledging: list[_Acknowledging] = []

    def load(self) -> None:
        """Load the state; a start offset that is not decided yet is that of `share.auto.offset.reset`."""
        self._start(self._load())

    def configure(self, settings: CoordinatorSettings) -> None:
        """Apply settings of the group; what is acquired keeps its lock, and a decided start offset stays."""
        self.reads = self._all_reads[settings.share_isolation_level]
        if self.records is not None:
            self.records.settings = limits_of(settings)
        wake(self.waiting)

    def acquire(self, request: AcquireRequest) -> Sequence[AcquiredRecords]:
        """Acquire fetched records for a member; the state must be loaded."""
        if self.records is None:
            return ()
        acquired = self.records.acquire(_clock_ms(), request)
        self._set_timer()
        return acquired

    async def acknowledge(
        self, member: str, batches: Sequence[AcknowledgementBatch], *, allows_renew: bool
    ) -> "asyncio.Future[int]":
        """Acknowledge records of a member; the result is an error code, when the change is durable.

        Many acknowledgements are applied in steps. If the member leaves between these, all of them are refused, and
        the records are released. Nothing is written if the share partition is closed between them.
        """
        error_code = self.error_code or NOT_LEADER_OR_FOLLOWER
        if self.records is not None and not self.error_code:
            current = _Acknowledging(member)
            self._acknowledging.append(current)
            acknowledged = await complete_in_turns(self.records.acknowledge(_clock_ms(), member, batches, allows_renew))
            self._acknowledging.remove(current)
            if current.member_left:
                self.release(member)
            if acknowledged.write is not None and not self.error_code:
                return self._start(self._write(acknowledged.write))
            self._changed()
            error_code = self.error_code or acknowledged.error_code
        done = asyncio.get_running_loop().create_future()
        done.set_result(error_code)
        return done

    def release(self, member: str) -> bool:
        """Release all records that a member has acquired; they are available when the change is durable.

        Returns:
            Whether there were any.

        """
        for each in self._acknowledging:
            each.member_left |= each.member == member
        write = None if self.records is None or self.error_code else self.records.release(member)
        if write is not None:
            self._start(self._write(write))
        return write is not None

    def check_log_start(self) -> None:
        """Move the start offset to the log start offset, because an offset that was read is out of range."""
        if not self._is_checking_start:
            self._is_checking_start = True
            self._start(self._check_log_start())

    def close(self) -> None:
        """Stop the timer, and wake what waits for records."""
        if self._timer is not None:
            self._timer.cancel()
        self.error_code = self.error_code or NOT_LEADER_OR_FOLLOWER
        wake(self.waiting)

    async def _load(self) -> None:
        while not self.error_code and self.records is None:
            try:
                settings = await self._settings.read(self._key.group_id)
                self.records = await self._read(settings)
                self.configure(self._settings.of(self._key.group_id))
            except LogUnavailable as error:
                LOG.warning("Share partition %s is not loaded yet: %s", self._key, error)
                await asyncio.sleep(RETRY_SECONDS)
            except InvalidShareState as error:
                self._fail(UNKNOWN_SERVER_ERROR, str(error))
        wake(self.waiting)

    async def _read(self, settings: CoordinatorSettings) -> SharePartition | None:
        """Return the records in flight according to the persisted state; None if that cannot be used.

        Raises:
            LogUnavailable: The leader of the partition or the persister is not available.
            InvalidShareState: The persisted state is invalid.
        """
        leader, epoch = self.reads.leader(self._partition)
        if leader is None:
            raise LogUnavailable("The partition has no leader.")
        result = await self._persister.read(states.ReadRequest(self._key, epoch))
        if result.error_code in _RETRIED - {NONE}:
            raise LogUnavailable(result.error_message or "The persister is not available.")
        if result.error_code:
            self._fail(result.error_code, result.error_message)
            return None
        start = result.start_offset
        if start == UNKNOWN:
            start = await self._list_offset(reset_timestamp(settings.share_auto_offset_reset, now_ms()))
        return SharePartition(limits_of(settings), ShareSnapshot(0, result.state_epoch, epoch, start, result.batches))

    async def _list_offset(self, timestamp: int) -> int:
        leader, _ = self.reads.leader(self._partition)
        name = self.reads.topic_name(self._partition)
        if leader is None or name is None:
            raise LogUnavailable("The partition has no leader.")
        end = UNKNOWN
        if timestamp >= 0:  # read the end first, so that a record that arrives in between is not skipped
            end = await leader.list_offset(name, self._partition.partition, LATEST)
        offset = await leader.list_offset(name, self._partition.partition, timestamp)
        if offset < 0:  # there is no record of that time or a later one
            offset = end
        if offset < 0:
            raise LogUnavailable("The leader of the partition does not know the offset yet.")
        return offset

    async def _check_log_start(self) -> None:
        try:
            start = await self._list_offset(EARLIEST)
            if self.records is not None:
                if start <= self.records.start_offset:  # the offset is after the end of the log
                    await asyncio.sleep(RETRY_SECONDS)
                self.records.log_start_moved(start)
        except LogUnavailable as error:
            LOG.warning("The log start offset of share partition %s cannot be read: %s", self._key, error)
            await asyncio.sleep(RETRY_SECONDS)
        self._is_checking_start = False
        wake(self.waiting)

    async def _write(self, write: PersisterWrite) -> int:
        request = states.WriteRequest(
            self._key,
            write.state_epoch,
            write.leader_epoch,
            write.start_offset,
            write.batches,
            write.delivery_complete_count,
        )
        result = await self._persister.write(request)
        if self.records is not None and result.error_code == NONE:
            self.records.persisted(_clock_ms(), write)
        elif self.records is not None:
            self.records.not_persisted(_clock_ms(), write)
        if result.error_code not in _RETRIED:
            self._fail(result.error_code, result.error_message)
        self._changed()
        return _client_error(result.error_code)

    def _fail(self, error_code: int, reason: str | None) -> None:
        """Close the share partition, whose state is read again for the next request."""
        LOG.warning("Share partition %s is closed: %s", self._key, reason or error_code)
        self.error_code = _client_error(error_code)
        self.close()

    def _changed(self) -> None:
        self._set_timer()
        wake(self.waiting)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        expires_ms = None if self.records is None or self.error_code else self.records.next_timeout_ms
        if expires_ms is not None:
            delay = max(0, expires_ms - _clock_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay, self._time_out)

    def _time_out(self) -> None:
        self._timer = None
        if self.records is None:
            return
        write = self.records.time_out(_clock_ms())
        if write is not None:
            self._start(self._write(write))
        self._changed()

    def _start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            LOG.error("Share partition %s is closed: internal error", self._key, exc_info=task.exception())
            self.error_code = UNKNOWN_SERVER_ERROR
            self.close()


def _clock_ms() -> int:
    """Return the time of locks in ms, by a clock that is not set: they must not expire when the system's time jumps."""
    return time.monotonic_ns() // 1_000_000


def _client_error(error_code: int) -> int:
    """Return the error code for a member, as `SharePartition.fetchPersisterError` of Kafka does."""
    return _CLIENT_ERRORS.get(error_code, UNKNOWN_SERVER_ERROR)
