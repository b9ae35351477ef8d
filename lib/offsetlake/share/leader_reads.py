"""Fetch and ListOffsets at a broker of the cluster, for the partitions that it leads.

Reads that are requested while a Fetch is under way are combined in the next one. A Fetch that waits for new records
blocks its connection for up to MAX_WAIT, so such reads have connections of their own. Fetch sessions (KIP-227) are not
used: each request names its partitions.
"""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from offsetlake.coordinator.share_partition.requests import FetchedAbortedTransaction
from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import BROKER_NOT_AVAILABLE, NONE
from offsetlake.log.cluster.connection import CONNECT_FAILURES, KafkaConnection, likely_cause, open_broker
from offsetlake.node import requests
from offsetlake.serve.protocol.api_keys import FETCH, LIST_OFFSETS
from offsetlake.serve.protocol.wire import Malformed
from offsetlake.share.sessions import IdPartition

if TYPE_CHECKING:
    from aiokafka.conn import AIOKafkaConnection

LOG = logging.getLogger(__name__)

MAX_WAIT = timedelta(milliseconds=500)
MAX_PARTITION_BYTES, MAX_RESPONSE_BYTES = 1 << 20, 8 << 20
MAX_READING, MAX_WAITING = 2, 4
"""The number of connections to a broker for reads that do not wait, and for those that do."""

_FETCH_VERSIONS = range(13, 18)  # with topic ids, since Kafka 3.1
_LIST_VERSIONS = range(1, 12)
_WITHOUT_SESSION = -1
_NO_EPOCH = -1

_FAILURES = (*CONNECT_FAILURES, Malformed, IndexError, struct.error)

Connect = Callable[[], Awaitable["AIOKafkaConnection"]]


class Fetched(NamedTuple):
    """What a broker returned for a partition; `end` is the high watermark, or the last stable offset.

    The error code is BROKER_NOT_AVAILABLE (8) if the broker did not answer.
    """

    error_code: int
    end: int = -1
    aborted: Sequence[FetchedAbortedTransaction] = ()
    records: bytes = b""


class _Read(NamedTuple):
    partition: IdPartition
    offset: int
    result: "asyncio.Future[Fetched]"


class _Lane:
    """Reads over up to a number of connections, each of which sends one Fetch after the other while reads wait."""

    def __init__(self, connect: Connect, max_wait: timedelta, max_connections: int, *, committed: bool) -> None:
        self._connect, self._max_wait, self._max, self._committed = connect, max_wait, max_connections, committed
        self._pending: list[_Read] = []
        self._idle: list[AIOKafkaConnection] = []
        self._running: set[asyncio.Task[None]] = set()

    def read(self, partition: IdPartition, offset: int) -> "asyncio.Future[Fetched]":
        result: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
        self._pending.append(_Read(partition, offset, result))
        if len(self._running) < self._max:
            task = asyncio.create_task(self._run())
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return result

    async def _run(self) -> None:
        while self._pending:
            reads = self._next()
            offsets = {read.partition: read.offset for read in reads}
            fetched: dict[IdPartition, Fetched] = {}
            try:
                fetched = await self._fetch(offsets) if offsets else {}
            except _FAILURES as failure:
                LOG.info("Fetch from a broker of the cluster failed: %s", failure)
            except Exception:
                LOG.exception("Fetch from a broker of the cluster failed")
            finally:
                _finish(reads, fetched)

    def _next(self) -> list[_Read]:
        """Return the reads of the next Fetch, in which a partition has one offset; others remain pending."""
        pending, self._pending = self._pending, []
        offsets: dict[IdPartition, int] = {}
        reads: list[_Read] = []
        for read in pending:
            if read.result.done():
                continue
            is_next = offsets.setdefault(read.partition, read.offset) == read.offset
            (reads if is_next else self._pending).append(read)
        return reads

    async def _connection(self) -> "AIOKafkaConnection":
        while self._idle:
            connection = self._idle.pop()
            if connection.connected():
                return connection
        return await self._connect()

    async def _fetch(self, offsets: dict[IdPartition, int]) -> dict[IdPartition, Fetched]:
        connection = await self._connection()
        try:
            values = _fetch_values(offsets, self._max_wait, committed=self._committed)
            entity = (await requests.send(connection, FETCH, _FETCH_VERSIONS, values)).entity()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        error = int(entity.error_code)
        found = dict.fromkeys(offsets, Fetched(error)) if error else {}
        for topic in entity.responses:
            for each in topic.partitions:
                found[IdPartition(topic.topic_id.bytes, each.partition_index)] = self._fetched(each)
        return found

    def _fetched(self, each: Any) -> Fetched:
        end = each.last_stable_offset if self._committed else each.high_watermark
        aborted = [
            FetchedAbortedTransaction(one.producer_id, one.first_offset) for one in each.aborted_transactions or ()
        ]
        return Fetched(int(each.error_code), end, aborted, each.records or b"")

    def close(self) -> None:
        for task in self._running:
            task.cancel()
        _finish(self._pending, {})
        self._pending.clear()
        for connection in self._idle:
            connection.close()


def _finish(reads: Sequence[_Read], fetched: Mapping[IdPartition, Fetched]) -> None:
    for read in reads:
        if not read.result.done():
            read.result.set_result(fetched.get(read.partition) or Fetched(BROKER_NOT_AVAILABLE))


class LeaderReads:
    """Reads partitions from one broker, from records of committed transactions only if `committed`.

    Raises:
        BadRequest: A certificate file cannot be used.
    """

    def __init__(self, settings: KafkaConnection, address: tuple[str, int], *, committed: bool) -> None:
        self._settings, self.address, self._context = settings, address, settings.ssl_context()
        self._reading = _Lane(self._connect, timedelta(0), MAX_READING, committed=committed)
        self._waiting = _Lane(self._connect, MAX_WAIT, MAX_WAITING, committed=committed)
        self._committed = committed

    def read(self, partition: IdPartition, offset: int, *, wait: bool) -> "asyncio.Future[Fetched]":
        """Read a partition from an offset on; with `wait`, the result comes with new records, or after MAX_WAIT."""
        return (self._waiting if wait else self._reading).read(partition, offset)

    async def list_offset(self, topic: str, partition: int, timestamp: int) -> int:
        """Return the offset for a timestamp in ms since the epoch, or for one of the special values of ListOffsets.

        Raises:
            LogUnavailable: The broker does not answer, or answers with an error.
        """
        values = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": partition, "current_leader_epoch": _NO_EPOCH, "timestamp": timestamp}
                    ],
                }
            ],
        }
        try:
            connection = await self._connect()
            try:
                entity = (await requests.send(connection, LIST_OFFSETS, _LIST_VERSIONS, values)).entity()
            finally:
                connection.close()
        except CONNECT_FAILURES as failure:
            reason = likely_cause(self._settings, failure)
            raise LogUnavailable(f"Kafka at {self.address[0]}:{self.address[1]}: {reason}") from failure
        answer = entity.topics[0].partitions[0]
        if int(answer.error_code) != NONE:
            raise LogUnavailable(
                f"ListOffsets of partition {partition} of topic {topic} failed with the error code "
                f"{int(answer.error_code)}."
            )
        return int(answer.offset)

    def close(self) -> None:
        """Close the connections."""
        self._reading.close()
        self._waiting.close()

    async def _connect(self) -> "AIOKafkaConnection":
        return await open_broker(self._settings, self.address, self._context, self._settings.request_timeout)


def _fetch_values(offsets: dict[IdPartition, int], max_wait: timedelta, *, committed: bool) -> dict[str, Any]:
    topics: dict[bytes, list[dict[str, int]]] = {}
    for (topic_id, partition), offset in offsets.items():
        topics.setdefault(topic_id, []).append(
            {
                "partition": partition,
                "current_leader_epoch": _NO_EPOCH,
                "fetch_offset": offset,
                "last_fetched_epoch": _NO_EPOCH,
                "log_start_offset": -1,
                "partition_max_bytes": MAX_PARTITION_BYTES,
            }
        )
    return {
        "max_wait": max_wait,
        "min_bytes": 1,
        "max_bytes": MAX_RESPONSE_BYTES,
        "isolation_level": int(committed),
        "session_id": 0,
        "session_epoch": _WITHOUT_SESSION,
        "topics": [{"topic_id": UUID(bytes=id_), "partitions": partitions} for id_, partitions in topics.items()],
        "forgotten_topics_data": [],
    }
