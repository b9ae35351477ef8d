"""The tails of live log partitions, with a few requests to each leader, however many partitions it leads."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from aiokafka.protocol.fetch import FetchRequest

from offsetlake.kafka.batches import kernels
from offsetlake.log.cluster.cluster import READ_UNCOMMITTED, Address, BrokerConnections, LoopThread, TryAgainError
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.cluster.epoch_requests import EpochEnds, UnsupportedError
from offsetlake.log.positions import LogPartition
from offsetlake.log.tails import Tail, TailQuery, tail_of

TAIL_BYTES = 16 * 1024  # of a partition in a common Fetch request: most batches of a coordinator are smaller
BATCH_BYTES = 16 * 1024 * 1024

_UNKNOWN = -1


def read_tails(connection: KafkaConnection, queries: Sequence[TailQuery]) -> list[Tail]:
    """Return the tail for each query; their log partitions are distinct.

    The last batch before an offset is found only if it ends there.

    Raises:
        LogUnavailable: No broker is reachable, a partition does not contain an offset, or the client is not authorized.
        BadRequest: A certificate file cannot be read.
    """
    with LoopThread() as thread:
        return thread.start(_read_tails(connection, queries)).result()


async def _read_tails(connection: KafkaConnection, queries: Sequence[TailQuery]) -> list[Tail]:
    cluster = BrokerConnections(connection)

    async def attempt() -> list[Tail]:
        await cluster.partitions(sorted({query.log_partition.topic for query in queries}))
        led = defaultdict(list)
        for query in queries:
            led[await cluster.leader(query.log_partition)].append(query)
        tails: dict[LogPartition, Tail] = {}
        for leader, led_queries in led.items():
            tails |= await _tails_of_leader(cluster, leader, led_queries)
        return [tails[query.log_partition] for query in queries]

    try:
        return await cluster.within_timeout(attempt)
    finally:
        await cluster.close()


async def _tails_of_leader(
    cluster: BrokerConnections, leader: Address, queries: Sequence[TailQuery]
) -> dict[LogPartition, Tail]:
    tails = await _fetched(cluster, leader, queries, TAIL_BYTES)
    for query in queries:
        if query.log_partition not in tails:  # compaction removed the rest, or the next batch is larger
            tails |= {query.log_partition: Tail()} | await _fetched(cluster, leader, [query], BATCH_BYTES)
    doubtful = {
        query.log_partition: query.leader_epoch
        for query in queries
        if query.leader_epoch is not None and tails[query.log_partition].checksum is None
    }
    ends = await _epoch_ends(cluster, leader, doubtful) if doubtful else {}
    return tails | {where: replace(tails[where], epoch_end=end) for where, end in ends.items()}


async def _fetched(
    cluster: BrokerConnections, leader: Address, queries: Sequence[TailQuery], max_bytes: int
) -> dict[LogPartition, Tail]:
    """Return the tails of the partitions of which the response contains a batch."""
    offsets = {query.log_partition: query.offset for query in queries}
    wanted = _by_topic({where: (offset - 1, max_bytes) for where, offset in offsets.items()})
    response = await cluster.send(leader, FetchRequest(0, 0, BATCH_BYTES, READ_UNCOMMITTED, wanted))
    if not response.topics:
        raise TryAgainError("the broker throttles this user or client by a quota", response.throttle_time_ms / 1000)
    tails = {}
    for topic, partitions in response.topics:
        for partition, error, *_, data in partitions:
            where = LogPartition(topic, partition)
            cluster.check(error, topic, where)
            buffer = np.frombuffer(data or b"", np.uint8)
            positions = kernels.walk_batches(buffer)[0]
            if len(positions):
                tails[where] = tail_of(buffer, positions, offsets[where])
    return tails


async def _epoch_ends(
    cluster: BrokerConnections, leader: Address, epochs: Mapping[LogPartition, int]
) -> dict[LogPartition, int]:
    """Return where leader epochs end; nothing if the broker does not support the request."""
    wanted = _by_topic({where: (epoch,) for where, epoch in epochs.items()})
    try:
        response = await cluster.send(leader, EpochEnds(wanted))
    except UnsupportedError:
        return {}
    ends = {}
    for topic, partitions in response.topics:
        for error, partition, _, end_offset in partitions:
            cluster.check(error, topic, LogPartition(topic, partition))
            ends[LogPartition(topic, partition)] = 0 if end_offset == _UNKNOWN else end_offset
    return ends


def _by_topic(values: Mapping[LogPartition, tuple[int, ...]]) -> list[tuple[str, list[Any]]]:
    topics: dict[str, list[Any]] = defaultdict(list)
    for (topic, partition), value in values.items():
        topics[topic].append((partition, *value))
    return [*topics.items()]
