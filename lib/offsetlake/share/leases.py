"""The share partitions that members have read since the start, by group."""

import asyncio
from collections.abc import Iterable

from offsetlake.kafka.error_codes import UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.serve.net.client import Client
from offsetlake.share.group_settings import GroupSettings
from offsetlake.share.lease import PartitionLease, Reads
from offsetlake.share.pace import WRITE_UNITS, Pace
from offsetlake.share.sessions import IdPartition
from offsetlake.share.state.share_states import ShareStates


class PartitionLeases:
    """Loads share partitions when they are first read, and closes those that failed or are not read any more."""

    def __init__(self, cluster: Cluster, reads: Reads, persister: ShareStates, settings: GroupSettings) -> None:
        self._cluster, self._reads, self._persister, self._settings = cluster, reads, persister, settings
        self._groups: dict[str, dict[IdPartition, PartitionLease]] = {}
        cluster.changed.append(self._topics_changed)
        settings.changed.append(self._settings_changed)

    def error_of(self, partition: IdPartition) -> int:
        """Return the error code for a partition that the cluster does not contain, else NONE."""
        image = self._cluster.image
        name = image.name_of(partition.topic_id)
        if name is None:
            self._cluster.request_refresh(partition.topic_id)
            return UNKNOWN_TOPIC_ID
        return 0 if image.has_partition(name, partition.partition) else UNKNOWN_TOPIC_OR_PARTITION

    def is_denied(self, partition: IdPartition, client: Client) -> bool:
        """Check whether a partition is one of a topic that exists and that a client may not read."""
        name = self._cluster.image.name_of(partition.topic_id)
        return name is not None and not client.may_read_topic(name)

    def find(self, group: str, partition: IdPartition) -> PartitionLease | None:
        """Return a share partition that is in use, or None."""
        found = self._groups.get(group, {}).get(partition)
        return None if found is None or found.error_code else found

    def get(self, group: str, partition: IdPartition) -> PartitionLease:
        """Return a share partition, which is loaded if it is not in use."""
        partitions = self._groups.setdefault(group, {})
        found = partitions.get(partition)
        if found is None:
            found = partitions[partition] = PartitionLease(
                group, partition, self._reads, self._persister, self._settings
            )
            found.load()
        return found

    def drop(self, group: str, partition: IdPartition) -> None:
        """Close a share partition that failed, so that it is loaded again."""
        found = self._groups.get(group, {}).pop(partition, None)
        if found is not None:
            found.close()

    async def release(self, group: str, member: str, partitions: Iterable[IdPartition]) -> None:
        """Release the records of a member that has left."""
        pace = Pace()
        for partition in partitions:
            found = self.find(group, partition)
            if found is not None and found.release(member):
                await pace.spend(WRITE_UNITS)
            await pace.spend()

    async def close_group(self, group: str) -> None:
        """Close the share partitions of a group without members."""
        pace = Pace()
        for found in self._groups.pop(group, {}).values():
            found.close()
            await pace.spend()

    def close(self) -> None:
        """Close all share partitions."""
        for partitions in self._groups.values():
            for found in partitions.values():
                found.close()
        self._groups.clear()

    def _settings_changed(self, group: str) -> None:
        for found in self._groups.get(group, {}).values():
            found.configure(self._settings.of(group))

    def _topics_changed(self, _names: frozenset[str]) -> None:
        for partitions in self._groups.values():
            for partition in [each for each in partitions if self._cluster.image.name_of(each.topic_id) is None]:
                partitions.pop(partition).close()
        for reads in self._reads.values():
            reads.forget_topics()


async def wait(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, or the time is over."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
