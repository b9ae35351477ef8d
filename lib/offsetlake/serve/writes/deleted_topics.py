"""Deletes the offsets of topics that were deleted in the cluster, as `OffsetMetadataManager.onPartitionsDeleted` does.

A topic that is missing in the metadata may still exist: the broker that returned the metadata may lag, or deny this
process DESCRIBE on it. Offsets are deleted only after the active controller has confirmed that the topic id is unknown.
Topics that are deleted while this process does not run are not noticed; their offsets expire.

If the topic was created again meanwhile, offsets may have been committed for the new one, also before the change was
noticed, or before a start after which a broker that lags described the deleted topic once more. An offset with a topic
id (OffsetCommit version 10) is that of the topic with this id. Offsets without one are kept.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from offsetlake.errors import LogUnavailable, Refused
from offsetlake.kafka.batches.writer import NO_HEADERS
from offsetlake.kafka.error_codes import NONE
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.front.handover.isr import deleted_topics
from offsetlake.serve.front.metadata.cluster import Cluster
from offsetlake.serve.front.node import controllers_of
from offsetlake.serve.storage.store import VALUE, Store
from offsetlake.serve.writes.deletions import DeletionWrite, LogPartition
from offsetlake.serve.writes.rounds import Writes

if TYPE_CHECKING:
    from offsetlake.serve.front.controllers import Controllers

LOG = logging.getLogger(__name__)
RETRY_SECONDS = 1.0
MAX_TOPICS_PER_REQUEST = 1_000
MAX_CHECKED_IDS = 100_000
"""Maximum number of topic ids that are remembered as deleted: outdated metadata may describe such a topic again."""


class DeletedTopics:
    """Notices topics that are missing in the metadata or have another id, and deletes their offsets in `run`."""

    def __init__(self, cluster: Cluster, store: Store, writes: Writes, log_partition: LogPartition) -> None:
        self._cluster, self._store, self._writes, self._log_partition = cluster, store, writes, log_partition
        self._image = cluster.image
        self._missing: dict[bytes, bytes] = {}  # names by topic id
        self._deleted: dict[bytes, None] = {}  # topic ids, the oldest first
        self._noticed = asyncio.Event()
        self._failure: str | None = None
        cluster.changed.append(self._compare)

    def _compare(self, names: frozenset[str]) -> None:
        """Notice the topics among those that have changed whose previous id is no longer in the metadata."""
        before, self._image = self._image, self._cluster.image
        for name in map(str.encode, names):
            topic_id = before.id_of(name)
            if topic_id not in {ZERO_UUID, self._image.id_of(name)} and topic_id not in self._deleted:
                self._missing[topic_id] = name
                self._noticed.set()

    async def run(self, broker_epoch: Callable[[], int]) -> None:
        """Delete offsets until the task is cancelled; without a controller, try again and again."""
        with closing(controllers_of(self._cluster)) as controllers:
            while True:
                await self._noticed.wait()
                self._noticed.clear()
                try:
                    await self._delete(controllers, broker_epoch())
                    self._failure = None
                except (LogUnavailable, Refused) as failure:
                    if self._failure is None:
                        LOG.warning(
                            "Offsets of topics that were deleted cannot be deleted yet: %(reason)s", {"reason": failure}
                        )
                    self._failure = str(failure)
                    self._noticed.set()
                    await asyncio.sleep(RETRY_SECONDS)

    async def _delete(self, controllers: "Controllers", broker_epoch: int) -> None:
        """Delete the offsets of the missing topics that were deleted, and forget all that were checked."""
        checked = [*self._missing][:MAX_TOPICS_PER_REQUEST]
        deleted = await deleted_topics(controllers, self._cluster.node, broker_epoch, checked)
        topics: dict[bytes, set[bytes]] = {}
        for topic_id in deleted:
            topics.setdefault(self._missing[topic_id], set()).add(topic_id)
        if topics:
            count = await self._delete_offsets(topics)
            fields = {"count": count, "topics": ", ".join(sorted(name.decode() for name in topics)[:10])}
            LOG.info("Deleted %(count)d offsets of deleted topics: %(topics)s", fields)
        for topic_id in checked:
            del self._missing[topic_id]
        self._deleted |= dict.fromkeys(deleted)
        for topic_id in [*self._deleted][: max(0, len(self._deleted) - MAX_CHECKED_IDS)]:
            del self._deleted[topic_id]
        if self._missing:
            self._noticed.set()

    async def _delete_offsets(self, topics: Mapping[bytes, set[bytes]]) -> int:
        """Delete the offsets of one group after the other; return their number."""
        count = 0
        for group, _ in self._store.groups():
            done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            partition = self._log_partition(group)
            write = _TopicDeletion(partition, self._store, group, NO_HEADERS, done.set_result, topics, self._cluster)
            if write.offsets():
                self._writes.add(write)
                if error := await done:
                    raise LogUnavailable(f"tombstones of group {group.decode()} were not written (error code {error})")
                count += write.count
            await asyncio.sleep(0)
        return count


class _TopicDeletion(DeletionWrite):
    """Deletes offsets of deleted topics, given by name with their ids; `count` is their number."""

    def __init__(
        self,
        partition: int,
        store: Store,
        group: bytes,
        audit: list[tuple[str, bytes]],
        done: Callable[[int], None],
        topics: Mapping[bytes, set[bytes]],
        cluster: Cluster,
    ) -> None:
        super().__init__(partition, store, group, audit, done)
        self._topics, self._cluster = topics, cluster

    @property
    def count(self) -> int:
        return len(self._partitions)

    def offsets(self) -> list[tuple[bytes, int]]:
        """Return the topics and partitions to delete."""
        stored = self._store.offsets(self._group)
        found = {
            (name[:-4], int.from_bytes(name[-4:], "big", signed=True)): VALUE.unpack_from(value)[2]
            for name, value in stored.items()
            if name[:-4] in self._topics
        }
        for topic, partition in self._store.unstable(self._group):
            if topic in self._topics:
                found.setdefault((topic, partition), ZERO_UUID)
        return sorted(where for where, topic_id in found.items() if self._is_deleted(where[0], topic_id))

    def _is_deleted(self, topic: bytes, topic_id: bytes) -> bool:
        if topic_id != ZERO_UUID:
            return topic_id in self._topics[topic]
        return not self._cluster.image.partitions(topic)

    def _decide(self) -> int:
        self._partitions = self.offsets()
        return NONE
