"""The share coordinator over the log: keeps the states of share partitions, and writes their records.

A state changes at once, as in a broker, so that the next request sees it. A result is returned when the records of its
request and of all earlier requests for the share partition are durable. If they cannot be written, the state becomes
that before them, and the results of all these requests are NOT_COORDINATOR (16).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.share_state.handling import Handling, StateOutcome, cold_snapshot
from offsetlake.coordinator.share_state.requests import (
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
from offsetlake.coordinator.share_state.stored_state import Record, StoredState, replayed
from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches.writer import record_batch
from offsetlake.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    UNKNOWN_SERVER_ERROR,
)
from offsetlake.kafka.records.coordinator_records import SHARE_STATE_TOPIC
from offsetlake.kafka.uuid import ZERO_UUID, uuid_bytes, uuid_text
from offsetlake.serve.protocol.request_limits import MAX_COMMIT_BATCH_BYTES
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.steps import Share, Steps, complete_in_turns
from offsetlake.serve.writes.rounds import Writes
from offsetlake.share.state.log import ShareStateLog, States
from offsetlake.share.state.packed import packed, placed, times_of, topic_id_of, unpacked
from offsetlake.share.state.records import encoded_value, record_type
from offsetlake.share.state.state_write import ShareStateWrite
from offsetlake.util.times import now_ms

MAX_SIZE_BYTES = 2 << 30
"""Maximum approximate size of all states, above which no state may grow."""

CONFIRMED_AFTER_SECONDS = 60.0
"""How long a topic must have been seen with another id until the states of the former one are removed."""

_ENTRY_BYTES = 180  # approximate memory of an entry besides the bytes of the key and of the state
_STATES_PER_STEP = 100

_Result = TypeVar("_Result", bound=ShareStateResult)


class _Queued:
    """A queued record of a share partition: its write, the state before it, and the replies that wait for it."""

    __slots__ = ("before", "replies", "write")

    def __init__(self, write: ShareStateWrite, before: bytes | None) -> None:
        self.write, self.before = write, before
        self.replies: list[Callable[[LogUnavailable | None], None]] = []


class ShareStates:
    """The states of all share partitions; requests fail with COORDINATOR_LOAD_IN_PROGRESS (14) until they are loaded.

    Every method that handles a request returns protocol errors in the `error_code` of its result.
    """

    def __init__(
        self, writes: Writes, topics: Topics, settings: CoordinatorSettings, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._writes, self._topics, self._settings, self._loop = writes, topics, settings, loop
        self._states: list[States] = []  # by log partition
        self._queued: dict[bytes, deque[_Queued]] = {}
        self._share = Share()
        self._topic_names: dict[bytes, bytes] = {}  # of the topics that were seen, by id
        self._replaced: asyncio.Queue[frozenset[bytes]] = asyncio.Queue()
        self.not_read: frozenset[int] = frozenset()
        """The numbers of the log partitions that the folder of the log lacks."""
        self.size_bytes = 0
        """The approximate memory of all states."""

    def __len__(self) -> int:
        """Return the number of share partitions with a state."""
        return sum(map(len, self._states))

    async def load(self, log: ShareStateLog) -> None:
        """Load the log, while the event loop handles other work.

        Raises:
            LogMismatch: A share partition is in another log partition than the one that belongs to it.
            LogUnavailable: A segment is corrupt, has a torn batch at its end or cannot be read.
        """
        await complete_in_turns(log.read())
        for states in log.states:
            self.size_bytes += sum(_size(key, state) for key, state in states.items())
            for topic_id in {topic_id_of(key) for key in states}:
                self._name_of(topic_id)
            await asyncio.sleep(0)  # a log partition has 20,000 states if there are a million
        self._states = log.states

    def initialize(self, request: InitializeRequest) -> "asyncio.Future[ShareStateResult]":
        """Handle InitializeShareGroupState for one share partition."""
        return self._handle(
            request.key, lambda handling, stored: handling.initialize(stored, request), ShareStateResult, "initialize"
        )

    def read(self, request: ReadRequest) -> "asyncio.Future[ReadResult]":
        """Handle ReadShareGroupState for one share partition."""
        return self._handle(request.key, lambda handling, stored: handling.read(stored, request), ReadResult, "read")

    def write(self, request: WriteRequest) -> "asyncio.Future[ShareStateResult]":
        """Handle WriteShareGroupState for one share partition."""
        return self._handle(
            request.key, lambda handling, stored: handling.write(stored, request), ShareStateResult, "write"
        )

    def delete(self, request: DeleteRequest) -> "asyncio.Future[ShareStateResult]":
        """Handle DeleteShareGroupState for one share partition."""
        return self._handle(
            request.key, lambda handling, stored: handling.delete(stored, request), ShareStateResult, "delete"
        )

    def summary(self, request: SummaryRequest) -> "asyncio.Future[SummaryResult]":
        """Handle ReadShareGroupStateSummary for one share partition."""
        return self._handle(
            request.key, lambda handling, stored: handling.summary(stored, request), SummaryResult, "read"
        )

    def _handle(
        self,
        key: SharePartitionKey,
        act: "Callable[[Handling, StoredState | None], StateOutcome[_Result]]",
        failed: Callable[[int, str], _Result],
        operation: str,
    ) -> "asyncio.Future[_Result]":
        """Handle a request at once; the future is done when the result may be sent."""
        future: asyncio.Future[_Result] = self._loop.create_future()

        def refuse(error: int, reason: str) -> _Result:
            return failed(error, f"Unable to {operation} share group state: {reason}")

        if not self._states:
            future.set_result(
                refuse(COORDINATOR_LOAD_IN_PROGRESS, "The coordinator is loading and hence can't process requests.")
            )
            return future
        try:
            number, name = placed(key)
        except ValueError as invalid:
            future.set_result(refuse(UNKNOWN_SERVER_ERROR, str(invalid)))
            return future
        if number in self.not_read:
            future.set_result(refuse(NOT_COORDINATOR, f"The log lacks {SHARE_STATE_TOPIC}-{number}."))
            return future
        state = self._states[number].get(name)
        stored = None if state is None else unpacked(state)
        handling = Handling(self._exists, self._settings.share_updates_per_snapshot, now_ms())
        outcome = act(handling, stored)
        for record in outcome.records:
            error, reason = self._append(number, name, record, stored)
            if error:
                future.set_result(refuse(error, reason))
                return future
        queued = self._queued.get(name)

        def reply(failure: LogUnavailable | None) -> None:
            if not future.done():  # it is cancelled if its connection was closed
                future.set_result(outcome.result if failure is None else refuse(NOT_COORDINATOR, str(failure)))

        if queued:
            queued[-1].replies.append(reply)
        else:
            reply(None)
        return future

    def _exists(self, key: SharePartitionKey) -> bool:
        name = self._name_of(uuid_bytes(key.topic_id))
        return name is not None and self._topics.has_partition(name, key.partition)

    def _name_of(self, topic_id: bytes) -> bytes | None:
        name = self._topics.name_of(topic_id)
        if name is not None:
            self._topic_names[topic_id] = name
        return name

    def _append(self, number: int, name: bytes, record: Record, stored: StoredState | None) -> tuple[int, str]:
        """Replay a record over the stored state and queue its write.

        Returns:
            An error code and the reason if it is refused, else NONE.

        """
        before = self._states[number].get(name)
        after = replayed(stored, record, self._settings.share_updates_per_snapshot)
        state = None if after is None else packed(after)
        batch = record_batch(now_ms(), [(record_type(record) + name, encoded_value(record))])
        if max(len(batch.data), len(state or b"")) > MAX_COMMIT_BATCH_BYTES:
            return UNKNOWN_SERVER_ERROR, f"A record or state would have more than {MAX_COMMIT_BATCH_BYTES} bytes."
        growth = _size(name, state) - _size(name, before)
        if growth > 0 and self.size_bytes + growth > MAX_SIZE_BYTES:
            return COORDINATOR_NOT_AVAILABLE, f"The states of all share partitions use {MAX_SIZE_BYTES} bytes."
        write = ShareStateWrite(number, batch, lambda error: self._written(number, name, error))
        self._queued.setdefault(name, deque()).append(_Queued(write, before))
        self._set(number, name, state)
        self._writes.add(write, self._share)
        return 0, ""

    def _set(self, number: int, name: bytes, state: bytes | None) -> None:
        states = self._states[number]
        self.size_bytes += _size(name, state) - _size(name, states.get(name))
        if state is None:
            states.pop(name, None)
        else:
            states[name] = state

    def _written(self, number: int, name: bytes, error: LogUnavailable | None) -> None:
        """Handle that the first queued record of a share partition is durable, or could not be written."""
        queued = self._queued[name]
        if error is not None:
            del self._queued[name]
            self._set(number, name, queued[0].before)
            for each in queued:
                each.write.cancelled = True
        done = [*queued] if error is not None else [queued.popleft()]
        if not queued:
            self._queued.pop(name, None)
        for each in done:
            for reply in each.replies:
                reply(error)

    def topics_changed(self, names: frozenset[str]) -> None:
        """Remove later the states of the topics among `names` that were created again with another id."""
        changed = {name.encode() for name in names}
        replaced = [topic_id for topic_id, name in self._topic_names.items() if name in changed]
        if any(map(self._is_replaced, replaced)):
            self._replaced.put_nowait(frozenset(replaced))

    def _is_replaced(self, topic_id: bytes) -> bool:
        """Return whether the name of a topic has another id; without one, it may be hidden from this principal."""
        name = self._topic_names.get(topic_id)
        return name is not None and self._topics.name_of(topic_id) is None and self._topics.id_of(name) != ZERO_UUID

    async def remove_replaced(self) -> frozenset[str]:
        """Wait until topics are created again, write tombstones for their former states, and return the former IDs.

        A broker whose metadata lags can show a former id. So the topics are compared again after a while.
        """
        candidates = await self._replaced.get()
        await asyncio.sleep(CONFIRMED_AFTER_SECONDS)
        topic_ids = frozenset(filter(self._is_replaced, candidates))
        for topic_id in topic_ids:
            del self._topic_names[topic_id]
        await complete_in_turns(self._remove(topic_ids))
        return frozenset(map(uuid_text, topic_ids))

    def _remove(self, topic_ids: frozenset[bytes]) -> Steps[None]:
        for number, name in self._keys():
            if topic_id_of(name) in topic_ids and name in self._states[number]:
                self._append(number, name, None, unpacked(self._states[number][name]))
            yield 0

    async def snapshot_cold(self) -> None:
        """Write cold snapshots in intervals until the task is cancelled."""
        while True:
            await asyncio.sleep(self._settings.share_cold_snapshot_interval_ms / 1000)
            await complete_in_turns(self.cold_snapshots(now_ms()))

    def cold_snapshots(self, time_ms: int) -> Steps[None]:
        """Write a snapshot of each state whose last one is older than the interval.

        A log partition in which all states have a cold snapshot is skipped, because nothing has changed in it.
        """
        oldest_ms = time_ms - self._settings.share_cold_snapshot_interval_ms
        for number, states in enumerate(self._states):
            due, is_active = [], False
            for count, (name, state) in enumerate([*states.items()]):
                created, written = times_of(state)
                is_active = is_active or created == written
                if written <= oldest_ms:
                    due.append(name)
                if count % _STATES_PER_STEP == 0:
                    yield 0
            for name in due if is_active else ():
                if name in states and times_of(states[name])[1] <= oldest_ms:
                    stored = unpacked(states[name])
                    self._append(number, name, cold_snapshot(stored, time_ms), stored)
                    yield 0

    def _keys(self) -> Iterator[tuple[int, bytes]]:
        for number, states in enumerate(self._states):
            for name in [*states]:
                yield number, name


def _size(key: bytes, state: bytes | None) -> int:
    return 0 if state is None else len(key) + len(state) + _ENTRY_BYTES
