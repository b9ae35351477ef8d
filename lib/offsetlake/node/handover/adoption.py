"""Moves `__consumer_offsets` of a cluster to this node: the plan, and its execution, which a later run resumes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from offsetlake.errors import BadRequest, LogMismatch, LogUnavailable
from offsetlake.log.disk.segments import partition_folders, segments_of
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.log.writer.ownership import disk_errors, owned
from offsetlake.log.writer.recovery import recover
from offsetlake.node.handover.follower import Follower
from offsetlake.node.handover.partition_copy import PartitionCopy
from offsetlake.node.handover.reassignments import reassign, targets
from offsetlake.node.handover.unserved_groups import UnservedGroup, unserved_groups
from offsetlake.node.identity import Identity
from offsetlake.node.joining import cluster_of, controllers_of, join, new_identity
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.serve.net.security import security_protocol
from offsetlake.serve.protocol.topics import INTERNAL
from offsetlake.serve.settings import Settings
from offsetlake.util.atomic_files import to_disk

FIRST_METADATA_SECONDS = 30


class AdoptionPlan(NamedTuple):
    """What an adoption does.

    | Field    | Description |
    |----------|-------------|
    | rows     | A row for each partition of `__consumer_offsets`: its leader and replicas, and what adopting it does |
    | unserved | The groups that are not served from the adoption to the return |
    """

    rows: list[dict[str, Any]]
    unserved: list[UnservedGroup]


def plan(settings: Settings) -> AdoptionPlan:
    """Return what adopting the cluster does.

    Raises:
        OffsetlakeError: The cluster cannot be adopted.
    """
    return asyncio.run(_plan(settings))


def adopt(settings: Settings) -> list[dict[str, Any]]:
    """Copy the partitions and become their leader; return a row for each one.

    The groups of a partition are not available from the moment in which this node leads it until the serving process
    runs. A run that was killed is resumed by the next one.

    Raises:
        OffsetlakeError: The cluster cannot be adopted.
    """
    folder = Path(settings.log)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with owned(folder, "adopt"):
        return asyncio.run(_adopt(settings))


async def _plan(settings: Settings) -> AdoptionPlan:
    async with metadata(settings) as cluster:
        folder = Path(settings.log)
        await new_identity(cluster, folder)
        _check_folder(folder)
        return AdoptionPlan(rows_of(cluster, "copy from its leader, then lead"), await unserved_groups(cluster))


def rows_of(cluster: Cluster, action: str) -> list[dict[str, Any]]:
    """Return a row for each partition."""
    image, rows = cluster.image, []
    for number in range(image.partitions(INTERNAL)):
        (leader, epoch), placement = image.leader(INTERNAL, number), image.placement(INTERNAL, number)
        rows.append(
            {
                "log_partition": number,
                "leader": leader,
                "leader_epoch": epoch,
                "replicas": [*placement.replicas],
                "action": "none: this node leads it" if leader == cluster.node else action,
            }
        )
    return rows


async def _adopt(settings: Settings) -> list[dict[str, Any]]:
    folder = Path(settings.log)
    async with metadata(settings) as cluster:
        identity = await new_identity(cluster, folder)
        _check_folder(folder)
        identity.write(folder)  # from here on, a later run resumes
        address = settings.advertised or (settings.host, settings.port)
        registration = await join(cluster, identity, security_protocol(settings), address)
        controllers = controllers_of(cluster)
        try:
            await _move(cluster, identity, controllers)
            copies = await asyncio.to_thread(_copies, folder, len(identity.replicas))
            await Follower(cluster, registration.epoch, copies).run()
        finally:
            controllers.close()
            await asyncio.to_thread(registration.stop)
        if not identity.starts:
            replace(identity, starts=[copies[number].start for number in sorted(copies)]).write(folder)
        rows = rows_of(cluster, "none")
        return [row | {"end": copies[row["log_partition"]].end} for row in rows]


async def _move(cluster: Cluster, identity: Identity, controllers: Any) -> None:
    """Begin to move the partitions that have other replicas than this node."""
    image, node, topic = cluster.image, cluster.node, OFFSETS_TOPIC
    partitions = [
        (topic, number)
        for number in range(len(identity.replicas))
        if [*image.placement(INTERNAL, number).replicas] != [node]
    ]
    if partitions:
        moving = await targets(controllers, partitions)
        await reassign(controllers, {where: [node] for where in partitions if moving.get(where) != [node]})


def _copies(folder: Path, partitions: int) -> dict[int, PartitionCopy]:
    recover(folder)
    copies = {}
    for number in range(partitions):
        copies[number] = PartitionCopy(folder / str(LogPartition(OFFSETS_TOPIC, number)))
    to_disk(folder)
    return copies


def _check_folder(folder: Path) -> None:
    """Raise LogMismatch if the folder contains a log that was not copied from a cluster."""
    paths = partition_folders(folder, OFFSETS_TOPIC).values() if folder.exists() else ()
    if any(map(segments_of, paths)) and Identity.read(folder) is None:
        raise LogMismatch(f"{folder} contains a log that does not belong to a cluster: use an empty folder (--log).")


@asynccontextmanager
async def metadata(settings: Settings) -> AsyncIterator[Cluster]:
    """Read the metadata of the cluster again and again during the context; its unexpected error ends the context.

    Raises:
        BadRequest: The settings do not name a cluster and a node id.
        LogUnavailable: The cluster does not answer.
    """
    cluster = cluster_of(settings)
    if cluster is None or settings.node_id is None:
        raise BadRequest("Specify the cluster and the node id of this process in it: --cluster, --node-id.")
    try:
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(cluster.run())
            try:
                async with asyncio.timeout(FIRST_METADATA_SECONDS):
                    await cluster.loaded()
            except TimeoutError:
                raise LogUnavailable(cluster.failure or "The cluster does not answer.") from None
            yield cluster
            reading.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
