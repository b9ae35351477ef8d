"""The log as a live Kafka topic: what it holds now, and the raw record batches of one of its partitions.

Only requests that read are sent (Metadata, ListOffsets, Fetch), and none of them makes the broker create a topic.
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
from offsetlake.log.cluster.cluster import READ_UNCOMMITTED, Address, Cluster, LoopThread, TryAgainError
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.positions import OFFSETS_TOPIC, LogExtent, LogPartition, OffsetRange

if TYPE_CHECKING:
    from concurrent.futures import Future

RESPONSE_BYTES = 16 * 1024 * 1024
"""Size of a Fetch response: larger ones come no faster, and two of them are held at a time."""

Stretch = tuple[LogPartition, OffsetRange]
"""Offsets of one partition."""

MAX_WAIT_MS = 500
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
    connection: KafkaConnection, stretches: Sequence[Stretch], max_bytes: int = RESPONSE_BYTES
) -> Generator[tuple[int, bytes], None, None]:
    """Yield the record batches of some stretches of partitions, byte for byte as in the broker's segments.

    Each piece comes with the number of its stretch: whole batches one behind the other, up to `max_bytes` of them or
    one larger batch. The first of a stretch may begin below its start, the last end beyond its end: a batch across the
    border of two stretches comes with both. Nothing is decoded, checked or left out: any magic and codec, transaction
    markers, aborted transactions. The next piece comes in while the caller works on this one, no further ahead than
    that. Closing the generator ends its thread and connections.

    Raises LogUnavailable where the next piece does not come within the request timeout, offsets are not in the
    log or no longer, or the right to read is missing; CorruptBatch where the log goes on with no record batch;
    BadRequest for certificate files that cannot be read here.
    """
    position = _position_from(stretches, 0)
    if position is None:
        return
    with LoopThread() as thread:
        reader = _Reader(connection, stretches, max_bytes)
        coming: Future[tuple[bytes, _Position | None]] | None = thread.start(reader.read(position))
        try:
            while coming is not None:
                number = position.stretch
                data, following = coming.result()
                coming = None
                if following is not None:
                    position, coming = following, thread.start(reader.read(following))
                if data:
                    yield number, data
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


class _Position(NamedTuple):
    """The offset to go on from in the stretch of this number."""

    stretch: int
    offset: int


def _position_from(stretches: Sequence[Stretch], number: int) -> _Position | None:
    """Give the start of the first stretch from this number on that wants anything."""
    wanting = (at for at in range(number, len(stretches)) if stretches[at][1].start < stretches[at][1].end)
    return next((_Position(at, stretches[at][1].start) for at in wanting), None)


class _Reader:
    """Fetch requests to the leaders of partitions, one response at a time, over the same connections."""

    def __init__(self, connection: KafkaConnection, stretches: Sequence[Stretch], max_bytes: int) -> None:
        self._cluster = Cluster(connection)
        self._stretches = stretches
        self._max_bytes = max_bytes

    async def read(self, position: _Position) -> tuple[bytes, _Position | None]:
        """Get whole batches from the one at `position` on, and where to go on, None after the last."""
        partition, offsets = self._stretches[position.stretch]
        data, following = await self._cluster.within_timeout(
            lambda: self._attempt(partition, OffsetRange(position.offset, offsets.end))
        )
        if following < offsets.end:
            return data, _Position(position.stretch, following)
        return data, _position_from(self._stretches, position.stretch + 1)

    async def close(self) -> None:
        await self._cluster.close()

    async def _attempt(self, where: LogPartition, wanted: OffsetRange) -> tuple[bytes, int]:
        leader = await self._cluster.leader(where)
        asked = [(where.topic, [(where.partition, wanted.start, self._max_bytes)])]
        answer = await self._cluster.send(
            leader, FetchRequest(MAX_WAIT_MS, 1, self._max_bytes, READ_UNCOMMITTED, asked)
        )
        if not answer.topics:
            why = f"{where}: the broker holds data back by a quota of this user or client"
            raise TryAgainError(why, answer.throttle_time_ms / 1000)
        [(_, [(_, error, high_watermark, *_, data)])] = answer.topics
        if error == OFFSET_OUT_OF_RANGE:
            raise await self._out_of_range(leader, where, wanted.start)
        self._cluster.check(error, where.topic, where)
        if data:
            return _whole_batches(data, where, wanted)
        if high_watermark < wanted.end:
            raise TryAgainError(f"{where} ends at offset {high_watermark}, before {wanted.end}")
        return b"", wanted.end  # compaction has removed the rest

    async def _out_of_range(self, leader: Address, where: LogPartition, start: int) -> LogUnavailable:
        held = (await self._cluster.ranges(leader, [where]))[where]
        return self._cluster.unavailable(
            f"{where} does not hold offset {start}: it holds {held.start} to {held.end} now. The broker has "
            "deleted older records, or the topic was deleted and made again"
        )


def _whole_batches(data: bytes, where: LogPartition, wanted: OffsetRange) -> tuple[bytes, int]:
    """Leave out the batch that the response cuts off, and those behind `wanted`; also give the offset to go on from."""
    positions, size, _ = kernels.walk_batches(np.frombuffer(data, np.uint8))
    last = bisect_left(positions, wanted.end - 1, key=lambda at: _offsets(data, at)[1])
    if last < len(positions):
        # Below magic 2 a batch states its last offset alone, so one from the end on may begin before it.
        if _offsets(data, positions[last])[0] < wanted.end or data[positions[last] + kernels.MAGIC_AT] < 2:
            last += 1
        return data[: positions[last] if last < len(positions) else size], wanted.end
    following = _offsets(data, positions[-1])[1] + 1 if size else wanted.start
    if following <= wanted.start:
        raise CorruptBatch(f"{where}: the broker sends no record batch that holds offset {wanted.start}")
    return data[:size], following


def _offsets(data: bytes, at: int) -> tuple[int, int]:
    """First and last offset of the batch at `at`, the last one for both below magic 2."""
    base, magic = BASE_OFFSET_AND_MAGIC.unpack_from(data, at)
    return base, base + LAST_OFFSET_DELTA.unpack_from(data, at)[0] if magic == 2 else base
