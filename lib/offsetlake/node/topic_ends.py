"""The log start and end offsets of topics of the cluster, which jobs record for the lake of this node."""

import asyncio
from collections.abc import Collection
from typing import Any

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import NONE
from offsetlake.node.any_node import AnyNode
from offsetlake.node.metadata.cluster import NO_NODE, Cluster
from offsetlake.serve.protocol.api_keys import LIST_OFFSETS

Ends = list[tuple[int, int] | None]
"""Log start offset and high watermark by partition; None if its leader did not return them."""

_VERSIONS = range(5, 8)
_EARLIEST, _LATEST = -2, -1

_Led = dict[int, dict[str, list[int]]]


async def topic_ends(cluster: Cluster, topics: Collection[str]) -> dict[str, Ends]:
    """Return the ends of the topics that the newest metadata contains, each from the leader of the partition."""
    image, led = cluster.image, _Led()
    ends: dict[str, Ends] = {topic: [None] * image.partitions(topic.encode()) for topic in topics}
    for topic, partitions in ends.items():
        for number in range(len(partitions)):
            leader, _ = image.leader(topic.encode(), number)
            if leader not in {NO_NODE, cluster.node}:
                led.setdefault(leader, {}).setdefault(topic, []).append(number)
    found = await asyncio.gather(*(_of_leader(cluster, leader, partitions) for leader, partitions in led.items()))
    for of_leader in found:
        for (topic, number), offsets in of_leader.items():
            ends[topic][number] = offsets
    return {topic: partitions for topic, partitions in ends.items() if partitions}


async def _of_leader(
    cluster: Cluster, leader: int, partitions: dict[str, list[int]]
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the ends of partitions that a node leads; without those that it refuses."""
    addresses = [(broker.host, broker.port) for broker in cluster.image.brokers if broker.node_id == leader]
    node = AnyNode(cluster.connection)
    try:
        starts, ends = [await _offsets(node, addresses, partitions, when) for when in (_EARLIEST, _LATEST)]
    except LogUnavailable:
        return {}
    finally:
        node.close()
    return {where: (start, ends[where]) for where, start in starts.items() if where in ends}


async def _offsets(
    node: AnyNode, addresses: list[tuple[str, int]], partitions: dict[str, list[int]], timestamp: int
) -> dict[tuple[str, int], int]:
    topics: list[dict[str, Any]] = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": number, "current_leader_epoch": -1, "timestamp": timestamp} for number in numbers
            ],
        }
        for topic, numbers in partitions.items()
    ]
    values = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    answer = (await node.send(addresses, LIST_OFFSETS, _VERSIONS, values)).entity()
    return {
        (topic.name, partition.partition_index): int(partition.offset)
        for topic in answer.topics
        for partition in topic.partitions
        if partition.error_code == NONE
    }
