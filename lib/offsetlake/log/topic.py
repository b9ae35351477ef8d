"""The log as a live Kafka topic: what it holds now, and the raw record batches of one of its partitions.

Only requests that read are sent (Metadata, ListOffsets, Fetch), and none of them makes the broker create a topic.
"""

import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING

import numpy as np
from aiokafka.protocol.fetch import FetchRequest

from offsetlake.errors import CorruptBatch, LogUnavailable
from offsetlake.kafka import kernels
from offsetlake.log.cluster import READ_UNCOMMITTED, Address, Cluster, LoopThread, TryAgainError
from offsetlake.log.connection import KafkaConnection
from offsetlake.log.positions import OFFSETS_TOPIC, LogExtent, LogPartition, OffsetRange

if TYPE_CHECKING:
    from concurrent.futures import Future

RESPONSE_BYTES = 16 * 1024 * 1024
"""Size of a Fetch response: larger ones come no faster, and two of them are held at a time."""

MAX_WAIT_MS = 500
OFFSET_OUT_OF_RANGE = 1
BASE_OFFSET_AND_MAGIC = struct.Struct(">q8xb")
LAST_OFFSET_DELTA = struct.Struct(">23xi")  # magic 2


def describe(connection: KafkaConnection, topics: Iterable[str]) -> LogExtent:
    """Ask a live cluster for its id, and what each partition of those of `topics` that exist holds now.

    A range goes from the log start offset to the high watermark: records of open transactions are in it.
    Raises LogUnavailable within the request timeout: brokers not reached, `__consumer_offsets` asked for and not
    there, no right to see a topic; BadRequest for certificate files that cannot be read here.
    """
    with LoopThread() as thread:
        return thread.start(_describe(connection, list(topics))).result()


def fetch(
    connection: KafkaConnection, log_partition: LogPartition, offsets: OffsetRange, max_bytes: int = RESPONSE_BYTES
) -> Generator[bytes, None, None]:
    """Yield the record batches that hold `offsets` of one partition, byte for byte as in the broker's segments.

    Each piece is whole batches one behind the other, up to `max_bytes` of them or one larger batch. The first may
    begin below `offsets.start`, the last end beyond `offsets.end`: a batch across the border of two ranges comes with
    both. Nothing is decoded, checked or left out: any magic and codec, transaction markers, aborted transactions.
    The next piece comes in while the caller works on this one, no further ahead than that. Closing the generator
    ends its thread and connections.

    Raises LogUnavailable where the next piece does not come within the request timeout, `offsets` are not in the
    log or no longer, or the right to read is missing; CorruptBatch where the log goes on with no record batch;
    BadRequest for certificate files that cannot be read here.
    """
    if offsets.start >= offsets.end:
        return
    with LoopThread() as thread:
        reader = _PartitionReader(connection, log_partition, offsets.end, max_bytes)
        coming: Future[tuple[bytes, int]] | None = thread.start(reader.read(offsets.start))
        try:
            while coming is not None:
                data, position = coming.result()
                coming = thread.start(reader.read(position)) if position < offsets.end else None
                if data:
                    yield data
                del data  # it is the caller's now: a third piece must not stay in memory
        finally:
            if coming is not None:
                coming.cancel()
            thread.start(reader.close()).result()


async def _describe(connection: KafkaConnection, topics: list[str]) -> LogExtent:
    cluster = Cluster(connection)

    async def attempt() -> LogExtent:
        identity, partitions = await cluster.partitions(topics)
        if OFFSETS_TOPIC in topics and all(each.topic != OFFSETS_TOPIC for each in partitions):
            raise cluster.unavailable(
                f"cluster {identity} has no topic {OFFSETS_TOPIC}: either no group has ever committed an offset to it, "
                "or it is another cluster than the one you mean; check bootstrap.servers"
            )
        led = defaultdict(list)
        for each in partitions:
            led[await cluster.leader(each)].append(each)
        ranges: dict[LogPartition, OffsetRange] = {}
        for leader, of_leader in led.items():
            ranges |= await cluster.ranges(leader, of_leader)
        return LogExtent(identity, dict(sorted(ranges.items())))

    try:
        return await cluster.within_timeout(attempt)
    finally:
        await cluster.close()


class _PartitionReader:
    """Fetch requests to the leader of one partition, one response at a time."""

    def __init__(self, connection: KafkaConnection, log_partition: LogPartition, end: int, max_bytes: int) -> None:
        self._cluster = Cluster(connection)
        self._partition = log_partition
        self._end = end
        self._max_bytes = max_bytes

    async def read(self, start: int) -> tuple[bytes, int]:
        """Get whole batches from the one that holds `start` on, and the offset to go on from: `end` after the last."""
        return await self._cluster.within_timeout(lambda: self._attempt(start))

    async def close(self) -> None:
        await self._cluster.close()

    async def _attempt(self, start: int) -> tuple[bytes, int]:
        leader = await self._cluster.leader(self._partition)
        topic, partition = self._partition
        asked = [(topic, [(partition, start, self._max_bytes)])]
        answer = await self._cluster.send(
            leader, FetchRequest(MAX_WAIT_MS, 1, self._max_bytes, READ_UNCOMMITTED, asked)
        )
        if not answer.topics:
            why = f"{self._partition}: the broker holds data back by a quota of this user or client"
            raise TryAgainError(why, answer.throttle_time_ms / 1000)
        [(_, [(_, error, high_watermark, *_, data)])] = answer.topics
        if error == OFFSET_OUT_OF_RANGE:
            raise await self._out_of_range(leader, start)
        self._cluster.check(error, topic, self._partition)
        if data:
            return self._whole_batches(data, start)
        if high_watermark < self._end:
            raise TryAgainError(f"{self._partition} ends at offset {high_watermark}, before {self._end}")
        return b"", self._end  # compaction has removed the rest

    def _whole_batches(self, data: bytes, start: int) -> tuple[bytes, int]:
        """Leave out the batch that the response cuts off, and those from `end` on."""
        positions, size, _ = kernels.walk_batches(np.frombuffer(data, np.uint8))
        last = bisect_left(positions, self._end - 1, key=lambda at: _offsets(data, at)[1])
        if last < len(positions):
            # Below magic 2 a batch states its last offset alone, so one from `end` on may begin before it.
            if _offsets(data, positions[last])[0] < self._end or data[positions[last] + kernels.MAGIC_AT] < 2:
                last += 1
            return data[: positions[last] if last < len(positions) else size], self._end
        following = _offsets(data, positions[-1])[1] + 1 if size else start
        if following <= start:
            raise CorruptBatch(f"{self._partition}: the broker sends no record batch that holds offset {start}")
        return data[:size], following

    async def _out_of_range(self, leader: Address, start: int) -> LogUnavailable:
        held = (await self._cluster.ranges(leader, [self._partition]))[self._partition]
        return self._cluster.unavailable(
            f"{self._partition} does not hold offset {start}: it holds {held.start} to {held.end} now. The broker has "
            "deleted older records, or the topic was deleted and made again"
        )


def _offsets(data: bytes, at: int) -> tuple[int, int]:
    """First and last offset of the batch at `at`, the last one for both below magic 2."""
    base, magic = BASE_OFFSET_AND_MAGIC.unpack_from(data, at)
    return base, base + LAST_OFFSET_DELTA.unpack_from(data, at)[0] if magic == 2 else base
