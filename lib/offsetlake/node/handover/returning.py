"""Gives `__consumer_offsets` back to brokers: they copy the log of this process, and one of them becomes the leader.

The log is not written meanwhile: requests for groups fail with COORDINATOR_LOAD_IN_PROGRESS (14), so that a broker that
has fetched up to the log end offset has everything, when this process adds it to the in-sync replicas.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from offsetlake.errors import LogUnavailable, Refused
from offsetlake.kafka.error_codes import NONE
from offsetlake.log.disk.folder import ends_of
from offsetlake.log.disk.segments import segments_of
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.log.writer.ownership import CLUSTER_FILE
from offsetlake.log.writer.recovery import recover
from offsetlake.node.controllers import Controllers
from offsetlake.node.handover.adoption import metadata, rows_of
from offsetlake.node.handover.isr import IsrChange, alter_isr
from offsetlake.node.handover.reassignments import Where, reassign, targets
from offsetlake.node.identity import Identity
from offsetlake.node.joining import controllers_of
from offsetlake.node.metadata.cluster import NO_NODE, Cluster
from offsetlake.serve.protocol.topics import INTERNAL
from offsetlake.serve.settings import Settings
from offsetlake.util.atomic_files import to_disk

LOG = logging.getLogger(__name__)
UNREGISTER_BROKER = 64
CHECK_SECONDS = 0.2


def plan(settings: Settings) -> list[dict[str, Any]]:
    """Return a row for each partition: the replicas that it is to have.

    Raises:
        OffsetlakeError: The partitions cannot be given back.
    """
    return asyncio.run(_plan(settings))


async def _plan(settings: Settings) -> list[dict[str, Any]]:
    async with metadata(settings) as cluster:
        identity = complete_identity(Path(settings.log))
        identity.check(cluster.image.cluster_id, cluster.node, cluster.image.id_of(INTERNAL))
        wanted = new_replicas(cluster, identity)
        rows = rows_of(cluster, "")
        return [
            row | {"action": "copy to its new replicas", "new_replicas": wanted[OFFSETS_TOPIC, row["log_partition"]]}
            for row in rows
        ]


def complete_identity(folder: Path) -> Identity:
    """Return the identity of a log that contains everything since it was adopted.

    Raises:
        Refused: The log was not adopted, or segments of it were deleted, whose offsets are only in the lake.
    """
    identity = Identity.read(folder)
    if identity is None or not identity.starts:
        raise Refused(f"The log {folder} was not adopted from a cluster.")
    for number, start in enumerate(identity.starts):
        segments = segments_of(folder / str(LogPartition(OFFSETS_TOPIC, number)))
        first = segments[0].base_offset if segments else start
        if first != start:
            raise Refused(
                f"The log of __consumer_offsets-{number} begins at offset {first}, not at {start}: segments were "
                "deleted, and what they contained is only in the lake. Brokers would lose it."
            )
    return identity


def check_returned(folder: Path) -> None:
    """Raise Refused if the log still belongs to a broker, because the return was stopped before its end."""
    if Identity.read(folder) is not None:
        raise Refused(
            f"The return was stopped before its end, and the log {folder} is still needed: run the same command again."
        )


def new_replicas(cluster: Cluster, identity: Identity) -> dict[Where, list[int]]:
    """Return the replicas before the adoption as far as they are alive, or else another broker.

    Raises:
        Refused: No broker is alive.
    """
    alive = sorted(broker.node_id for broker in cluster.image.brokers if broker.node_id != cluster.node)
    if not alive:
        raise Refused("No broker of the cluster is alive.")
    return {
        (OFFSETS_TOPIC, number): [node for node in nodes if node in alive] or [alive[number % len(alive)]]
        for number, nodes in enumerate(identity.replicas)
    }


def recovered_ends(folder: Path, partitions: int) -> dict[int, int]:
    """Return the log end offset of each partition, after what a crash left incomplete is repaired.

    The lake is not read: whatever its state is, brokers get the log.
    """
    recover(folder)
    return ends_of(folder, OFFSETS_TOPIC, partitions)


class Returning:
    """Gives the partitions back.

    Args:
        settings: The settings of the serving process.
        cluster: The cluster.
        broker_epoch: The epoch of the registration.
        followers: The offset of the latest Fetch of each follower, by partition and node id.
        ends: The log end offsets by partition.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        broker_epoch: int,
        followers: Mapping[tuple[int, int], int],
        ends: Mapping[int, int],
    ) -> None:
        self._folder, self._cluster, self._broker_epoch = Path(settings.log), cluster, broker_epoch
        self._followers, self._ends = followers, ends

    async def run(self) -> None:
        """Return when brokers lead all partitions.

        Raises:
            Refused, LogUnavailable: The cluster does not accept it.
        """
        identity = complete_identity(self._folder)
        with closing(controllers_of(self._cluster)) as controllers:
            wanted = new_replicas(self._cluster, identity)
            moving = await targets(controllers, wanted)
            node = self._cluster.node
            wanted |= {where: nodes for where, nodes in moving.items() if nodes and node not in nodes}
            left = {
                where: nodes
                for where, nodes in wanted.items()
                if not self._is_given_back(where) and moving.get(where) != nodes
            }
            if left:
                await reassign(controllers, left)
            while not all(self._is_given_back(where) for where in wanted):
                await self._hand_over(controllers, wanted)
                self._cluster.refresh_soon()
                await asyncio.sleep(CHECK_SECONDS)

    def _is_given_back(self, where: Where) -> bool:
        """Check whether another broker leads a partition, and this node is no replica of it."""
        image, node = self._cluster.image, self._cluster.node
        leader, _ = image.leader(INTERNAL, where[1])
        return leader not in {node, NO_NODE} and node not in image.placement(INTERNAL, where[1]).replicas

    async def _hand_over(self, controllers: Controllers, wanted: Mapping[Where, list[int]]) -> None:
        """Add the followers that have fetched everything to the in-sync replicas, which completes their move."""
        image, node = self._cluster.image, self._cluster.node
        changes = []
        for (_, number), nodes in wanted.items():
            leader, epoch = image.leader(INTERNAL, number)
            fetched = [self._followers.get((number, follower), -1) for follower in nodes]
            if leader == node and {*fetched} == {self._ends[number]}:  # one that is ahead truncates its log first
                changes.append(IsrChange(image.id_of(INTERNAL), number, epoch, (node, *nodes)))
        if changes:
            codes = await alter_isr(controllers, node, self._broker_epoch, changes)
            if failed := [code for code in codes.values() if code != NONE]:
                LOG.info(
                    "AlterPartition of %(count)d partitions failed (%(code)d)",
                    {"count": len(failed), "code": failed[0]},
                )

    async def unregister(self) -> None:
        """Remove the registration, and mark the log as one that belongs to no cluster any more.

        Raises:
            LogUnavailable: The controller does not answer.
        """
        with closing(controllers_of(self._cluster)) as controllers:
            answer = await controllers.send(UNREGISTER_BROKER, 0, {"broker_id": self._cluster.node})
        if answer.error_code != NONE:
            raise LogUnavailable(f"UnregisterBroker failed with the error code {int(answer.error_code)}.")
        (self._folder / CLUSTER_FILE).rename(self._folder / f"{CLUSTER_FILE}.returned")
        to_disk(self._folder)
