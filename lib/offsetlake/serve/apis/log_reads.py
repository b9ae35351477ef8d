"""Fetch and ListOffsets for the log itself, the topic `__consumer_offsets`.

Record batches are returned as they are on disk, up to the acknowledged end. A separate thread reads them, because a
disk can be slow and indexing a long log takes a while. Fetch sessions (KIP-227) are not supported: each request names
all partitions.
"""

import asyncio
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
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handlers, awaited
from offsetlake.serve.net.request_tasks import RequestTasks
from offsetlake.serve.protocol.api_keys import FETCH
from offsetlake.serve.protocol.encoding import Lazy, Values
from offsetlake.serve.protocol.topics import INTERNAL, Topics
from offsetlake.serve.writes.watermarks import Watermarks

MAX_FETCH_BYTES = 4 << 20  # of record batches in one response; a single larger batch is returned too
GATHER_SECONDS = 0.01  # after a write, in which further writes are added to the response to a waiting Fetch
MAX_WAIT_SECONDS = 60.0
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
"""The first version of ListOffsets by special timestamp."""

_READ_COMMITTED = 1
_ISOLATION_LEVELS = {0, _READ_COMMITTED}
_WITHOUT_SESSION = {0, -1}  # session epochs of requests that name all partitions
_NO_OFFSET = -1


class _UnknownPartition(Exception):
    """The log does not have the partition."""


class _NotLoaded(Exception):
    """The log is being loaded."""


_ERRORS: dict[type[Exception], int] = {
    _UnknownPartition: UNKNOWN_TOPIC_OR_PARTITION,
    _NotLoaded: NOT_LEADER_OR_FOLLOWER,
    OffsetOutOfRange: OFFSET_OUT_OF_RANGE,
    CorruptBatch: CORRUPT_MESSAGE,
    FileNotFoundError: NOT_LEADER_OR_FOLLOWER,  # the segment was deleted meanwhile: a retry gets OFFSET_OUT_OF_RANGE
    OSError: KAFKA_STORAGE_ERROR,
    LogUnavailable: KAFKA_STORAGE_ERROR,
}


class _PartitionFetch(NamedTuple):
    partition: int
    offset: int
    max_bytes: int


class _Fetch(NamedTuple):
    """The fields of a Fetch that are kept while it waits; the request itself can be large."""

    topic: dict[str, Any]  # name and id of the log, as in the request
    partitions: Sequence[_PartitionFetch]
    min_bytes: int
    max_bytes: int
    isolation_level: int
    wait: float  # seconds
    others: Sequence[Any]  # all other topics


class LogReads:
    """Reads the log in `folder`, up to the high watermarks."""

    def __init__(self, folder: Path, topics: Topics, watermarks: Watermarks, loop: asyncio.AbstractEventLoop) -> None:
        self._folder, self._topics, self._watermarks, self._loop = folder, topics, watermarks, loop
        self._thread = ThreadPoolExecutor(1, "read")
        self._readers: dict[int, PartitionReader] = {}
        self.tasks = RequestTasks(loop)
        self.followers: dict[tuple[int, int], int] = {}
        """The offset of the latest Fetch of each follower, by partition and node id."""

    def handlers(self) -> Handlers:
        """Return the handler by API key."""
        return {FETCH: awaited(self.tasks, self.fetch)}

    async def close(self) -> None:
        """Cancel the requests that wait."""
        await self.tasks.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def fetch(self, request: Any, context: RequestContext) -> Coroutine[Any, Any, Values]:
        """Answer Fetch for the log, if the client may read it; other topics get TOPIC_AUTHORIZATION_FAILED (29).

        As a broker of a cluster, they get NOT_LEADER_OR_FOLLOWER (6).
        Clients that commit also fetch the partitions that they are assigned, and some fail without a response (`stop`
        of aiokafka raises). They report this error to the application, and do not retry at once.
        """
        if getattr(request, "session_epoch", -1) not in _WITHOUT_SESSION:
            return self._refuse_session()
        logs: list[Any] = []
        others: list[Any] = []
        readable = context.client.may_read_log()
        for topic in request.topics:
            (logs if readable and self._is_log(topic) else others).append(topic)
        partitions = {
            fetch.partition: _PartitionFetch(fetch.partition, fetch.fetch_offset, fetch.partition_max_bytes)
            for topic in logs
            for fetch in topic.partitions
        }
        follower = _replica_id(request)
        if self._is_follower(follower, context):
            known = (each for each in partitions.values() if self._topics.has_partition(INTERNAL, each.partition))
            self.followers |= {(each.partition, follower): each.offset for each in known}
        max_bytes = min(request.max_bytes, MAX_FETCH_BYTES)
        return self._fetch(
            _Fetch(
                topic=_name_and_id(logs[0]) if logs else {},
                partitions=[*partitions.values()],
                min_bytes=min(request.min_bytes, max_bytes),
                max_bytes=max_bytes,
                isolation_level=request.isolation_level,
                wait=min(request.max_wait.total_seconds(), MAX_WAIT_SECONDS),
                others=others,
            )
        )

    async def _refuse_session(self) -> Values:
        return {"error_code": FETCH_SESSION_ID_NOT_FOUND, "responses": ()}

    async def ends(self, partitions: Sequence[Any], isolation_level: int, version: int) -> list[Values]:
        """Answer ListOffsets for partitions of the log."""

        def find() -> list[Values]:
            return [self._end(partition, isolation_level, version) for partition in partitions]

        return await self._loop.run_in_executor(self._thread, find)

    async def answers(self, numbers: Sequence[int], read: Callable[[int, PartitionReader], Values]) -> list[Values]:
        """Return what `read` returns about partitions of the log; of one that cannot be read, its error code."""

        def answer(number: int) -> Values:
            try:
                return {"error_code": NONE, **read(number, self._reader(number))}
            except tuple(_ERRORS) as error:
                return {"error_code": _code(error)}

        return await self._loop.run_in_executor(self._thread, lambda: [*map(answer, numbers)])

    async def _fetch(self, request: _Fetch) -> Values:
        """Read until `min_bytes` are available, a partition has an error or more records, or the wait is over.

        A partition has more records after the end of the segment that was read, or above the limit of bytes; a broker
        does not wait in these cases either.
        """
        until = self._loop.time() + request.wait
        while True:
            partitions, has_more = await self._loop.run_in_executor(self._thread, self._read_all, request)
            enough = has_more or sum(len(partition["records"]) for partition in partitions) >= request.min_bytes
            left = until - self._loop.time()
            failed = any(partition["error_code"] for partition in partitions)
            if enough or request.others or not partitions or left <= 0 or failed:
                break
            watermarks = {partition["partition_index"]: partition["high_watermark"] for partition in partitions}
            partitions = []  # a waiting request keeps no records in memory
            await self._watermarks.wait(watermarks, left)
            await asyncio.sleep(min(GATHER_SECONDS, left))
        log = [request.topic | {"partitions": partitions}] if partitions else []
        error = TOPIC_AUTHORIZATION_FAILED if self._topics.leads else NOT_LEADER_OR_FOLLOWER
        responses = chain(log, (_refuse_fetch(topic, error) for topic in request.others))
        return {"error_code": NONE, "responses": Lazy(len(log) + len(request.others), responses)}

    def _is_follower(self, node: int, context: RequestContext) -> bool:
        """Check whether a Fetch is one of another broker; a client can state any node id."""
        brokers = self._topics.now().brokers
        return any(broker.node_id == node for broker in brokers) and context.client.access.may_act_as_broker()

    def _is_log(self, topic: Any) -> bool:
        """Check whether a topic of a Fetch, identified by name or by id, is the log."""
        if hasattr(topic, "topic"):
            return bool(topic.topic == OFFSETS_TOPIC)
        return self._topics.name_of(topic.topic_id.bytes if topic.topic_id else ZERO_UUID) == INTERNAL

    def _read_all(self, request: _Fetch) -> tuple[list[Values], bool]:
        """Read all partitions of a request; return the answers, and whether one of them has more records."""
        answers: list[Values] = []
        left, has_more = request.max_bytes, False
        for fetch in request.partitions:
            answer = _empty_answer(fetch.partition)
            try:
                fields, more = self._read(fetch, request.isolation_level, left, at_least_one=left == request.max_bytes)
                answer |= fields
                has_more = has_more or more
            except tuple(_ERRORS) as error:
                answer["error_code"] = _code(error)
            left -= len(answer["records"])
            answers.append(answer)
        return answers, has_more

    def _read(
        self, fetch: _PartitionFetch, isolation_level: int, max_bytes: int, *, at_least_one: bool
    ) -> tuple[Values, bool]:
        if isolation_level not in _ISOLATION_LEVELS:
            return {"error_code": INVALID_REQUEST}, False
        committed = isolation_level == _READ_COMMITTED
        reader = self._reader(fetch.partition)
        limit = max(0, min(fetch.max_bytes, max_bytes))
        records, end = reader.read(fetch.offset, limit, committed=committed, at_least_one=at_least_one)
        transactions = reader.aborted(fetch.offset, end)
        aborted = [{"producer_id": each.producer_id, "first_offset": each.first} for each in transactions]
        answer = {
            "high_watermark": reader.end,
            "last_stable_offset": reader.stable_end(committed=True),
            "log_start_offset": reader.start,
            "aborted_transactions": aborted if committed else None,
            "records": records,
        }
        return answer, bool(records) and end < reader.stable_end(committed=committed)

    def _end(self, request: Any, isolation_level: int, version: int) -> Values:
        partition, timestamp = request.partition_index, request.timestamp
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
        """Return the reader of a partition, after it has indexed the partition up to the acknowledged end."""
        if not self._topics.has_partition(INTERNAL, partition):
            raise _UnknownPartition
        end = self._watermarks.get(partition)
        if end is None:
            raise _NotLoaded
        reader = self._readers.get(partition)
        if reader is None:
            reader = PartitionReader(self._folder / str(LogPartition(OFFSETS_TOPIC, partition)))
            self._readers[partition] = reader
        reader.refresh(end)
        return reader


def _find(reader: PartitionReader, timestamp: int, *, committed: bool) -> RecordPosition:
    """Return the offset that a timestamp of ListOffsets selects."""
    if timestamp == LATEST:
        return RecordPosition(NO_TIMESTAMP, reader.stable_end(committed=committed), reader.epoch)
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return RecordPosition(NO_TIMESTAMP, reader.start, reader.start_epoch)
    if timestamp == MAX_TIMESTAMP:
        timestamp = reader.max_timestamp
    found = reader.first_since(timestamp, committed=committed) if timestamp >= 0 else None
    return found or RecordPosition(NO_TIMESTAMP, _NO_OFFSET, NO_EPOCH)


def _replica_id(request: Any) -> int:
    """Return the node id of the follower that sent a Fetch, -1 for a consumer."""
    state = getattr(request, "replica_state", None)
    return int(request.replica_id if state is None else state.replica_id)


def _code(error: Exception) -> int:
    return next(code for kind, code in _ERRORS.items() if isinstance(error, kind))


def _name_and_id(topic: Any) -> dict[str, Any]:
    """Return name and id of a topic of a Fetch; each version has one of them."""
    return {"topic": getattr(topic, "topic", None), "topic_id": getattr(topic, "topic_id", None)}


def _empty_answer(number: int) -> dict[str, Any]:
    """Return the answer for a partition without records."""
    return {
        "partition_index": number,
        "error_code": NONE,
        "high_watermark": _NO_OFFSET,
        "aborted_transactions": None,
        "records": b"",
    }


def _refuse_fetch(topic: Any, error: int) -> Values:
    """Refuse a topic that is not the log."""
    partitions = (_empty_answer(partition.partition) | {"error_code": error} for partition in topic.partitions)
    return _name_and_id(topic) | {"partitions": Lazy(len(topic.partitions), partitions)}
