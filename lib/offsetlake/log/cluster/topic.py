"""Reads logs from live Kafka topics: their extent, and the record batches of their partitions.

Only Metadata, ListOffsets and Fetch are sent, in versions that never create a topic.
"""

import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from aiokafka.protocol.fetch import FetchRequest

from offsetlake.errors import CorruptBatch, LogUnavailable
from offsetlake.kafka.batches import kernels
from offsetlake.kafka.error_codes import OFFSET_OUT_OF_RANGE
from offsetlake.log.cluster.cluster import READ_UNCOMMITTED, Address, BrokerConnections, LoopThread, TryAgainError
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.positions import OFFSETS_TOPIC, LogExtent, LogPartition, OffsetRange

if TYPE_CHECKING:
    from concurrent.futures import Future

RESPONSE_BYTES = 16 * 1024 * 1024
"""The size of a Fetch response: larger ones are not faster, and two of them are in memory at a time."""

PartitionRange = tuple[LogPartition, OffsetRange]
"""Offsets of a partition."""

MAX_WAIT_MS = 500
BASE_OFFSET_AND_MAGIC = struct.Struct(">q8xb")
LAST_OFFSET_DELTA = struct.Struct(">23xi")  # with magic 2


def describe(connection: KafkaConnection, topics: Iterable[str]) -> LogExtent:
    """Return the cluster ID, and the extent of each partition of the existing `topics`.

    A range extends from the log start offset to the high watermark, so it includes records of open transactions.

    Raises:
        LogUnavailable: No broker is reachable, `__consumer_offsets` is requested but does not exist, or the client is
            not authorized for a topic.
        BadRequest: A certificate file cannot be read.
    """
    with LoopThread() as thread:
        return thread.start(_describe(connection, list(topics))).result()


def names(connection: KafkaConnection) -> list[str]:
    """Return the names of all topics that are visible to this user.

    Raises:
        LogUnavailable: No broker is reachable.
        BadRequest: A certificate file cannot be read.
    """

    async def request() -> list[str]:
        cluster = BrokerConnections(connection)
        try:
            return await cluster.within_timeout(cluster.topics)
        finally:
            await cluster.close()

    with LoopThread() as thread:
        return thread.start(request()).result()


def fetch(
    connection: KafkaConnection, ranges: Sequence[PartitionRange], max_bytes: int = RESPONSE_BYTES
) -> Generator[tuple[int, bytes], None, None]:
    """Yield the record batches of some ranges of partitions, with the same bytes as in the broker's segments.

    Each chunk is yielded with the number of its range. It contains whole consecutive batches, at most `max_bytes` or
    one larger batch. A batch that spans the limit of two ranges is yielded for both. Nothing is decoded, verified or
    omitted: the chunks contain any magic and codec, transaction markers and aborted transactions. The next chunk, but
    no more, is fetched while the caller processes the current one. Closing the generator stops its thread and closes
    the connections.

    Raises:
        LogUnavailable: The next chunk does not arrive within the request timeout, offsets are not in the log, or the
            client is not authorized to read.
        CorruptBatch: The broker returned bytes that are not a record batch.
        BadRequest: A certificate file cannot be read.
    """
    position = _position_from(ranges, 0)
    if position is None:
        return
    with LoopThread() as thread:
        reader = _Reader(connection, ranges, max_bytes)
        pending: Future[tuple[bytes, _Position | None]] | None = thread.start(reader.read(position))
        try:
            while pending is not None:
                number = position.range_number
                data, next_position = pending.result()
                pending = None
                if next_position is not None:
                    position, pending = next_position, thread.start(reader.read(next_position))
                if data:
                    yield number, data
                del data  # a third chunk must not stay in memory
        finally:
            if pending is not None:
                pending.cancel()
            thread.start(reader.close()).result()


async def _describe(connection: KafkaConnection, topics: list[str]) -> LogExtent:
    cluster = BrokerConnections(connection)

    async def attempt() -> LogExtent:
        identity, partitions = await cluster.partitions(topics)
        if OFFSETS_TOPIC in topics and all(partition.topic != OFFSETS_TOPIC for partition in partitions):
            raise cluster.unavailable(
                f"cluster {identity} has no topic {OFFSETS_TOPIC}. No group has committed an offset yet, or this is "
                "the wrong cluster; check bootstrap.servers"
            )
        led = defaultdict(list)
        for partition in partitions:
            led[await cluster.leader(partition)].append(partition)
        ranges: dict[LogPartition, OffsetRange] = {}
        for leader, led_partitions in led.items():
            ranges |= await cluster.ranges(leader, led_partitions)
        return LogExtent(identity, dict(sorted(ranges.items())))

    try:
        return await cluster.within_timeout(attempt)
    finally:
        await cluster.close()


class _Position(NamedTuple):
    """The next offset to read in a range."""

    range_number: int
    offset: int


def _position_from(ranges: Sequence[PartitionRange], number: int) -> _Position | None:
    """Return the start of the first range that is not empty, from a range number on."""
    for i in range(number, len(ranges)):
        offsets = ranges[i][1]
        if offsets.start < offsets.end:
            return _Position(i, offsets.start)
    return None


class _Reader:
    """Sends Fetch requests to the leaders of partitions, one at a time."""

    def __init__(self, connection: KafkaConnection, ranges: Sequence[PartitionRange], max_bytes: int) -> None:
        self._cluster = BrokerConnections(connection)
        self._ranges = ranges
        self._max_bytes = max_bytes

    async def read(self, position: _Position) -> tuple[bytes, _Position | None]:
        """Return whole batches from a position on, and the next position, None after the last range."""
        partition, offsets = self._ranges[position.range_number]
        data, next_offset = await self._cluster.within_timeout(
            lambda: self._attempt(partition, OffsetRange(position.offset, offsets.end))
        )
        if next_offset < offsets.end:
            return data, _Position(position.range_number, next_offset)
        return data, _position_from(self._ranges, position.range_number + 1)

    async def close(self) -> None:
        await self._cluster.close()

    async def _attempt(self, log_partition: LogPartition, offsets: OffsetRange) -> tuple[bytes, int]:
        leader = await self._cluster.leader(log_partition)
        requested = [(log_partition.topic, [(log_partition.partition, offsets.start, self._max_bytes)])]
        response = await self._cluster.send(
            leader, FetchRequest(MAX_WAIT_MS, 1, self._max_bytes, READ_UNCOMMITTED, requested)
        )
        if not response.topics:
            reason = f"{log_partition}: the broker throttles this user or client by a quota"
            raise TryAgainError(reason, response.throttle_time_ms / 1000)
        [(_, [(_, error, high_watermark, *_, data)])] = response.topics
        if error == OFFSET_OUT_OF_RANGE:
            raise await self._out_of_range(leader, log_partition, offsets.start)
        self._cluster.check(error, log_partition.topic, log_partition)
        if data:
            return _whole_batches(data, log_partition, offsets)
        if high_watermark < offsets.end:
            raise TryAgainError(f"{log_partition} ends at offset {high_watermark}, before {offsets.end}")
        return b"", offsets.end  # compaction removed the rest

    async def _out_of_range(self, leader: Address, log_partition: LogPartition, start: int) -> LogUnavailable:
        available = (await self._cluster.ranges(leader, [log_partition]))[log_partition]
        return self._cluster.unavailable(
            f"{log_partition} does not contain offset {start}, only {available.start} to {available.end}. The broker "
            "deleted older records, or the topic was deleted and created again"
        )


def _whole_batches(data: bytes, log_partition: LogPartition, offsets: OffsetRange) -> tuple[bytes, int]:
    """Return the whole batches of a response up to the end of `offsets`, and the next offset to fetch."""
    positions, size, _ = kernels.walk_batches(np.frombuffer(data, np.uint8))
    last = bisect_left(positions, offsets.end - 1, key=lambda position: _offsets(data, position)[1])
    if last < len(positions):
        # A batch with magic 0 or 1 states only its last offset, so its first one may be before the end.
        if _offsets(data, positions[last])[0] < offsets.end or data[positions[last] + kernels.MAGIC_AT] < 2:
            last += 1
        return data[: positions[last] if last < len(positions) else size], offsets.end
    next_offset = _offsets(data, positions[-1])[1] + 1 if size else offsets.start
    if next_offset <= offsets.start:
        raise CorruptBatch(f"{log_partition}: the broker returned no record batch that contains offset {offsets.start}")
    return data[:size], next_offset


def _offsets(data: bytes, position: int) -> tuple[int, int]:
    """Return the first and the last offset of a batch; with magic 0 and 1 the last one for both."""
    base, magic = BASE_OFFSET_AND_MAGIC.unpack_from(data, position)
    return base, base + LAST_OFFSET_DELTA.unpack_from(data, position)[0] if magic == 2 else base
