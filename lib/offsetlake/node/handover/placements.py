"""Moves replicas of topics other than `__consumer_offsets` away from this process.

A controller may place replicas of new topics on any broker. Since Kafka 4.3 it does not place them on this one, whose
folder is cordoned (KIP-1066); before, Kafka has no setting against it, and they are moved away. This
process refuses Produce for all topics, so the log of such a partition is empty while it leads it: every other replica
is in sync with it, and it can be handed over at once, without a Fetch.
"""

import asyncio
import logging
import time
from zlib import crc32

from offsetlake.errors import LogMismatch, LogUnavailable, Refused
from offsetlake.kafka.error_codes import NONE
from offsetlake.node.handover.isr import IsrChange, alter_isr
from offsetlake.node.handover.reassignments import Where, reassign, targets
from offsetlake.node.joining import controllers_of
from offsetlake.node.leadership import Leadership
from offsetlake.node.metadata.image import ClusterImage
from offsetlake.node.registration import Registration
from offsetlake.serve.protocol.topics import INTERNAL
from offsetlake.serve.steps import Steps, complete_in_turns

LOG = logging.getLogger(__name__)
CHECK_SECONDS = 0.5
MAX_ELSEWHERE_SECONDS = 10.0
"""How long brokers may still describe an earlier address of this process."""

_STEP_TOPICS = 10


class Placements:
    """Checks each new image of the cluster for replicas on this process, and moves those of other topics."""

    def __init__(self, leadership: Leadership, registration: Registration, address: tuple[str, int]) -> None:
        self._cluster, self._leadership, self._registration = leadership.cluster, leadership, registration
        self._controllers, self._address = controllers_of(self._cluster), address
        self._failure: str | None = None
        self._elsewhere_since: float | None = None

    async def run(self) -> None:
        """Check again and again until the task is cancelled.

        Raises:
            LogMismatch: Another process leads `__consumer_offsets`, or is registered as this node.
            OffsetlakeError: The registration ended.
        """
        checked, left = -1, False
        while True:
            if self._registration.fatal is not None:
                raise self._registration.fatal
            if self._cluster.revision != checked or left:
                checked = self._cluster.revision
                self._leadership.check()
                left = await self._move()
            self._check_address(self._cluster.image)
            await asyncio.sleep(CHECK_SECONDS)

    def close(self) -> None:
        """Close the connection to the controller."""
        self._controllers.close()

    def _check_address(self, image: ClusterImage) -> None:
        """Raise LogMismatch if another process is registered in the place of this one."""
        node, now = self._cluster.node, time.monotonic()
        elsewhere = [
            broker for broker in image.brokers if broker.node_id == node and (broker.host, broker.port) != self._address
        ]
        self._elsewhere_since = (self._elsewhere_since or now) if elsewhere else None
        if self._elsewhere_since is not None and now - self._elsewhere_since > MAX_ELSEWHERE_SECONDS:
            raise LogMismatch(
                f"Another process is registered as node {node}, at {elsewhere[0].host}:{elsewhere[0].port}: it uses a "
                "copy of this log. Stop one of the two; this one ends."
            )

    async def _move(self) -> bool:
        """Move the replicas of other topics; return whether that has to be tried again."""
        placed = await complete_in_turns(_placed(self._cluster.image, self._cluster.node))
        if not placed:
            return False
        try:
            await self._move_all(placed)
        except (LogUnavailable, Refused) as failure:
            await self._cluster.refreshed()  # the topic may have been deleted
            if not await complete_in_turns(_placed(self._cluster.image, self._cluster.node)):
                return False
            if self._failure is None:
                LOG.warning(
                    "%(count)d partitions of other topics that the controller placed on this broker cannot be moved "
                    "away, and those that it leads cannot be used: %(reason)s",
                    {"count": len(placed), "reason": failure},
                )
            self._failure = str(failure)
        else:
            self._failure = None
            names = sorted({topic for topic, _ in placed})
            LOG.info("Moved partitions of %(topics)s away from this broker", {"topics": ", ".join(names[:10])})
        self._cluster.refresh_soon()
        return self._failure is not None

    async def _move_all(self, placed: list[Where]) -> None:
        image, node = self._cluster.image, self._cluster.node
        moving = await targets(self._controllers, placed)
        wanted = {
            where: moving[where] if where in moving and node not in moving[where] else new_replicas(image, node, where)
            for where in placed
        }
        if without := [where for where, nodes in wanted.items() if not nodes]:
            topic, partition = without[0]
            raise LogUnavailable(f"no other broker can have {topic}-{partition}")
        await reassign(self._controllers, {where: nodes for where, nodes in wanted.items() if where not in moving})
        changes, alive = [], {broker.node_id for broker in image.brokers}
        for (topic, partition), nodes in wanted.items():
            leader, epoch = image.leader(topic.encode(), partition)
            if leader == node:
                in_sync = (node, *(replica for replica in nodes if replica in alive))
                changes.append(IsrChange(image.id_of(topic.encode()), partition, epoch, in_sync))
        if changes:
            codes = await alter_isr(self._controllers, node, self._registration.epoch, changes)
            if failed := [code for code in codes.values() if code != NONE]:
                raise LogUnavailable(f"AlterPartition failed with the error code {failed[0]}")


def new_replicas(image: ClusterImage, node: int, where: Where) -> list[int]:
    """Return the replicas of a partition with another broker in the place of this node, if there is another one."""
    topic, partition = where
    before = image.placement(topic.encode(), partition).replicas
    others = [replica for replica in before if replica != node]
    free = sorted(broker.node_id for broker in image.brokers if broker.node_id not in {*before, node})
    return [*others, free[(crc32(topic.encode()) + partition) % len(free)]] if free else others


def _placed(image: ClusterImage, node: int) -> Steps[list[Where]]:
    """Return the partitions of other topics with a replica on this node."""
    found: list[Where] = []
    own = image.encodings_with(node)
    for count, name in enumerate(image.columns.numbers if own else ()):
        if name != INTERNAL:
            found += [(name.decode(), number) for number, nodes in enumerate(image.nodes_of(name)) if nodes in own]
        if count % _STEP_TOPICS == 0:
            yield 0
    return found
