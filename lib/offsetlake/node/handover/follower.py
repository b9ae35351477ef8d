"""Copies partitions of `__consumer_offsets` from their leaders by Fetch, as a follower, until this node leads them.

The leader adds this node to the in-sync replicas when a Fetch asks for its log end offset. Everything before the offset
of a Fetch is on disk here, so a partition that this node leads is complete, whenever this process was killed.
"""

import asyncio
import logging
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import NONE, OFFSET_OUT_OF_RANGE
from offsetlake.node.any_node import AnyNode
from offsetlake.node.handover.partition_copy import PartitionCopy
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.serve.protocol.api_keys import FETCH, LIST_OFFSETS
from offsetlake.serve.protocol.topics import INTERNAL

LOG = logging.getLogger(__name__)
FETCH_VERSIONS = range(15, 18)
MAX_FETCH_BYTES, MAX_PARTITION_BYTES = 16 << 20, 1 << 20
MAX_WAIT, PAUSE_SECONDS = timedelta(milliseconds=200), 0.1
_EARLIEST = -2


class Follower:
    """Copies the partitions that this node does not lead; `copies` are the copies by partition."""

    def __init__(self, cluster: Cluster, broker_epoch: int, copies: Mapping[int, PartitionCopy]) -> None:
        self._cluster, self._broker_epoch, self.copies = cluster, broker_epoch, copies
        self._nodes: dict[int, AnyNode] = {}
        self._order = [*copies]  # of a request; only its first partition gets a batch above MAX_PARTITION_BYTES

    async def run(self) -> None:
        """Copy until this node leads all partitions.

        Raises:
            CorruptBatch: A leader returned a damaged batch.
            LogUnavailable: The log cannot be written.
        """
        try:
            while leaders := self._leaders():
                await asyncio.gather(*(self._follow(leader, partitions) for leader, partitions in leaders.items()))
                self._cluster.refresh_soon()
        finally:
            for node in self._nodes.values():
                node.close()

    def _leaders(self) -> dict[int, list[int]]:
        """Return the partitions that this node does not lead by their leaders."""
        image, found = self._cluster.image, dict[int, list[int]]()
        for partition in self._order:
            leader, _ = image.leader(INTERNAL, partition)
            if leader != self._cluster.node:
                found.setdefault(leader, []).append(partition)
        return found

    async def _follow(self, leader: int, partitions: list[int]) -> None:
        """Fetch once from a leader; a failure is tried again with newer metadata."""
        addresses = [(node.host, node.port) for node in self._cluster.image.brokers if node.node_id == leader]
        node = self._nodes.setdefault(leader, AnyNode(self._cluster.connection))
        try:
            answer = (await node.send(addresses, FETCH, FETCH_VERSIONS, self._request(partitions))).entity()
        except LogUnavailable as failure:
            LOG.info("Node %(leader)d does not answer Fetch: %(reason)s", {"leader": leader, "reason": failure})
            await asyncio.sleep(PAUSE_SECONDS)
            return
        results = [partition for topic in answer.responses for partition in topic.partitions]
        for result in results:
            await self._take(node, addresses, result)
        if answer.error_code != NONE or not results or all(result.error_code for result in results):
            await asyncio.sleep(PAUSE_SECONDS)

    async def _take(self, node: AnyNode, addresses: list[tuple[str, int]], result: Any) -> None:
        partition, copy = result.partition_index, self.copies[result.partition_index]
        if result.error_code == OFFSET_OUT_OF_RANGE:
            copy.restart(await self._start(node, addresses, partition))
        elif result.error_code == NONE and result.diverging_epoch is not None and result.diverging_epoch.epoch >= 0:
            LOG.info(
                "The copy of __consumer_offsets-%(partition)d has diverged: it begins again", {"partition": partition}
            )
            copy.restart(0)
        elif result.error_code == NONE and result.records:
            await asyncio.to_thread(copy.append, result.records)
            self._order.remove(partition)
            self._order.append(partition)

    def _request(self, partitions: list[int]) -> dict[str, Any]:
        image = self._cluster.image
        fetches = [
            {
                "partition": partition,
                "current_leader_epoch": image.leader(INTERNAL, partition)[1],
                "fetch_offset": self.copies[partition].end,
                "last_fetched_epoch": self.copies[partition].epoch,
                "log_start_offset": 0,
                "partition_max_bytes": MAX_PARTITION_BYTES,
            }
            for partition in partitions
        ]
        return {
            "replica_state": {"replica_id": self._cluster.node, "replica_epoch": self._broker_epoch},
            "max_wait": MAX_WAIT,
            "min_bytes": 1,
            "max_bytes": MAX_FETCH_BYTES,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic_id": uuid.UUID(bytes=image.id_of(INTERNAL)), "partitions": fetches}],
            "forgotten_topics_data": (),
            "rack_id": "",
        }

    async def _start(self, node: AnyNode, addresses: list[tuple[str, int]], partition: int) -> int:
        """Return the log start offset of a partition."""
        asked = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": _EARLIEST}
        values = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": INTERNAL.decode(), "partitions": [asked]}],
        }
        answer = (await node.send(addresses, LIST_OFFSETS, range(5, 8), values)).entity()
        (found,) = answer.topics[0].partitions
        if found.error_code != NONE:
            raise LogUnavailable(f"ListOffsets of __consumer_offsets-{partition} failed ({int(found.error_code)}).")
        return int(found.offset)
