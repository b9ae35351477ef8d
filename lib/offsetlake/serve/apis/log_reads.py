"""The log itself as a topic to read: Fetch and ListOffsets of `__consumer_offsets`.

Record batches are given as they stand on the disk, up to what is acknowledged. A thread of its own reads: a disk may be
slow, and the first look at a long log takes a while. There are no fetch sessions (KIP-227): who asks for one is told
that it has none, and names each time all it wants.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from offsetlake.errors import CorruptBatch, LogUnavailable
from offsetlake.kafka.error_codes import (
    CORRUPT_MESSAGE,
    FETCH_SESSION_ID_NOT_FOUND,
    INVALID_REQUEST,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
)
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.log.disk.partition_reader import OffsetOutOfRange, PartitionReader
from offsetlake.log.disk.segment_index import NO_EPOCH, NO_TIMESTAMP, RecordPosition
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.serve.auth.principals import RequestContext
from offsetlake.serve.logs import ClientLog
from offsetlake.serve.protocol.encoding import Lazy, Values
from offsetlake.serve.protocol.topics import INTERNAL, Topics
from offsetlake.serve.writes.watermarks import Watermarks

LOG = ClientLog(logging.getLogger(__name__))
MOST_BYTES = 4 << 20  # of batches in one answer, but for a single one that is larger
GATHERING = 0.01  # seconds: who waits for more gets in one answer what is written within them
LONGEST_WAIT = 60.0  # seconds
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
"""What stands for a timestamp, and since which version of ListOffsets."""

_READ_COMMITTED = 1
_ISOLATION_LEVELS = {0, _READ_COMMITTED}
_NAMES_ALL = {0, -1}  # session epochs
_NO_OFFSET = -1


class _NotHere(Exception):
    """The log has no such partition."""


class _NotLoaded(Exception):
    """The log is being loaded."""


_ERRORS: dict[type[Exception], int] = {
    _NotHere: UNKNOWN_TOPIC_OR_PARTITION,
    _NotLoaded: NOT_LEADER_OR_FOLLOWER,
    OffsetOutOfRange: OFFSET_OUT_OF_RANGE,
    CorruptBatch: CORRUPT_MESSAGE,
    FileNotFoundError: NOT_LEADER_OR_FOLLOWER,  # cut off this moment: the next try is told so
    OSError: KAFKA_STORAGE_ERROR,
    LogUnavailable: KAFKA_STORAGE_ERROR,
}


class _Wanted(NamedTuple):
    partition: int
    offset: int
    most: int


class _Fetch(NamedTuple):
    """What is kept of a Fetch while it waits: its request may be large."""

    topic: dict[str, Any]  # as it was named
    wanted: Sequence[_Wanted]
    least: int
    most: int
    isolation_level: int
    wait: float
    others: Sequence[Any]  # all other topics


class LogReads:
    """Reads the log in `folder`, up to the watermarks."""

    def __init__(self, folder: Path, topics: Topics, watermarks: Watermarks, loop: asyncio.AbstractEventLoop) -> None:
        self._folder, self._topics, self._watermarks, self._loop = folder, topics, watermarks, loop
        self._thread = ThreadPoolExecutor(1, "read")
        self._readers: dict[int, PartitionReader] = {}
        self._under_way: set[asyncio.Task[Values]] = set()

    def begin(self, work: Coroutine[Any, Any, Values], done: Callable[[Values], None], asked: RequestContext) -> None:
        """Have a request answered; `done` is called with the answer. Where there is none, its connection ends."""

        def end(task: "asyncio.Task[Values]") -> None:
            self._under_way.discard(task)
            if task.cancelled():
                return
            try:
                done(task.result())
            except Exception:
                LOG.exception(
                    "%(address)s asked for the log, and the program has a fault: its connection is closed",
                    {"address": asked.client.address},
                )
                asked.client.close_connection()

        task = self._loop.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(end)

    async def close(self) -> None:
        """Let go of those who wait."""
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def fetch(self, request: Any, asked: RequestContext) -> Coroutine[Any, Any, Values]:
        """Answer Fetch of the log, for who may read it; messages of other topics nobody may read here.

        They are answered because clients that commit fetch what they are assigned too, and some do not end well
        without it (aiokafka's `stop` raises). This error they tell whoever polls, and do not try again at once.
        """
        if getattr(request, "session_epoch", -1) not in _NAMES_ALL:
            return _given({"error_code": FETCH_SESSION_ID_NOT_FOUND, "responses": ()})
        logs: list[Any] = []
        others: list[Any] = []
        for topic in request.topics:
            (logs if self._is_log(topic) and asked.client.may_read_log() else others).append(topic)
        wanted = {
            of.partition: _Wanted(of.partition, of.fetch_offset, of.partition_max_bytes)
            for topic in logs
            for of in topic.partitions
        }
        most = min(request.max_bytes, MOST_BYTES)
        return self._fetched(
            _Fetch(
                topic=_named(logs[0]) if logs else {},
                wanted=[*wanted.values()],
                least=min(request.min_bytes, most),
                most=most,
                isolation_level=request.isolation_level,
                wait=min(request.max_wait.total_seconds(), LONGEST_WAIT),
                others=others,
            )
        )

    async def ends(self, partitions: Sequence[Any], isolation_level: int, version: int) -> list[Values]:
        """Answer ListOffsets of partitions of the log."""

        def find() -> list[Values]:
            return [self._end(of.partition_index, of.timestamp, isolation_level, version) for of in partitions]

        return await self._loop.run_in_executor(self._thread, find)

    async def _fetched(self, asked: _Fetch) -> Values:
        """Read until there is enough, a partition goes on behind what was read or has an error, or the time is over.

        What goes on is behind the end of a segment, or was not asked for: a broker does not wait for it either.
        """
        until = self._loop.time() + asked.wait
        while True:
            found, goes_on = await self._loop.run_in_executor(self._thread, self._read_all, asked)
            enough = goes_on or sum(len(of["records"]) for of in found) >= asked.least
            left = until - self._loop.time()
            if enough or asked.others or not found or left <= 0 or any(of["error_code"] for of in found):
                break
            seen = {of["partition_index"]: of["high_watermark"] for of in found}
            found = []  # who waits holds no memory
            await self._watermarks.wait(seen, left)
            await asyncio.sleep(min(GATHERING, left))
        log = [asked.topic | {"partitions": found}] if found else []
        responses = chain(log, map(_unreadable, asked.others))
        return {"error_code": NONE, "responses": Lazy(len(log) + len(asked.others), responses)}

    def _is_log(self, topic: Any) -> bool:
        """Tell whether a topic of a Fetch, named or by its id, is the log."""
        if hasattr(topic, "topic"):
            return bool(topic.topic == OFFSETS_TOPIC)
        return self._topics.name_of(topic.topic_id.bytes if topic.topic_id else ZERO_UUID) == INTERNAL

    def _read_all(self, asked: _Fetch) -> tuple[list[Values], bool]:
        """Read of all partitions; gives with it whether one of them goes on behind what was read of it."""
        found: list[Values] = []
        left, goes_on = asked.most, False
        for wanted in asked.wanted:
            answer = _partition(wanted.partition)
            try:
                read, more = self._read(wanted, asked.isolation_level, left, at_least_one=left == asked.most)
                answer |= read
                goes_on = goes_on or more
            except tuple(_ERRORS) as error:
                answer["error_code"] = _code(error)
            left -= len(answer["records"])
            found.append(answer)
        return found, goes_on

    def _read(self, wanted: _Wanted, isolation_level: int, most: int, *, at_least_one: bool) -> tuple[Values, bool]:
        if isolation_level not in _ISOLATION_LEVELS:
            return {"error_code": INVALID_REQUEST}, False
        committed = isolation_level == _READ_COMMITTED
        reader = self._reader(wanted.partition)
        limit = max(0, min(wanted.most, most))
        records, behind = reader.read(wanted.offset, limit, committed=committed, at_least_one=at_least_one)
        aborted = [
            {"producer_id": of.producer_id, "first_offset": of.first} for of in reader.aborted(wanted.offset, behind)
        ]
        answer = {
            "high_watermark": reader.end,
            "last_stable_offset": reader.stable_end(committed=True),
            "log_start_offset": reader.start,
            "aborted_transactions": aborted if committed else None,
            "records": records,
        }
        return answer, bool(records) and behind < reader.stable_end(committed=committed)

    def _end(self, partition: int, timestamp: int, isolation_level: int, version: int) -> Values:
        answer = {"partition_index": partition, "error_code": NONE}
        if timestamp < 0 and version < SINCE.get(timestamp, version + 1):
            return answer | {"error_code": UNSUPPORTED_VERSION}
        if isolation_level not in _ISOLATION_LEVELS:
            return answer | {"error_code": INVALID_REQUEST}
        try:
            found = _find(self._reader(partition), timestamp, committed=isolation_level == _READ_COMMITTED)
        except tuple(_ERRORS) as error:
            return answer | {"error_code": _code(error)}
        return answer | {"timestamp": found.timestamp, "offset": found.offset, "leader_epoch": found.epoch}

    def _reader(self, partition: int) -> PartitionReader:
        """Give what reads a partition, having looked at all that is acknowledged."""
        if not self._topics.has_partition(INTERNAL, partition):
            raise _NotHere
        end = self._watermarks.of(partition)
        if end is None:
            raise _NotLoaded
        reader = self._readers.get(partition)
        if reader is None:
            reader = PartitionReader(self._folder / str(LogPartition(OFFSETS_TOPIC, partition)))
            self._readers[partition] = reader
        reader.refresh(end)
        return reader


def _find(reader: PartitionReader, timestamp: int, *, committed: bool) -> RecordPosition:
    """Find what a timestamp of ListOffsets asks for."""
    if timestamp == LATEST:
        return RecordPosition(NO_TIMESTAMP, reader.stable_end(committed=committed), reader.epoch)
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return RecordPosition(NO_TIMESTAMP, reader.start, reader.start_epoch)
    if timestamp == MAX_TIMESTAMP:
        timestamp = reader.max_timestamp
    found = reader.first_since(timestamp, committed=committed) if timestamp >= 0 else None
    return found or RecordPosition(NO_TIMESTAMP, _NO_OFFSET, NO_EPOCH)


async def _given(values: Values) -> Values:
    return values


def _code(error: Exception) -> int:
    return next(code for kind, code in _ERRORS.items() if isinstance(error, kind))


def _named(topic: Any) -> dict[str, Any]:
    """Give the name of a topic of a Fetch, or its id, whichever it came by."""
    return {"topic": getattr(topic, "topic", None), "topic_id": getattr(topic, "topic_id", None)}


def _partition(number: int) -> dict[str, Any]:
    return {
        "partition_index": number,
        "error_code": NONE,
        "high_watermark": _NO_OFFSET,
        "aborted_transactions": None,
        "records": b"",
    }


def _unreadable(topic: Any) -> Values:
    """Answer for a topic that is not the log."""
    refused = {"error_code": TOPIC_AUTHORIZATION_FAILED}
    partitions = (_partition(of.partition) | refused for of in topic.partitions)
    return _named(topic) | {"partitions": Lazy(len(topic.partitions), partitions)}
