"""Deletes the offsets of topics that were deleted in the cluster, as `OffsetMetadataManager.onPartitionsDeleted` does.

Offsets of groups that records that cannot be decoded leave unknown are kept.

A topic that is missing in the metadata may still exist: the broker that returned the metadata may lag, or deny this
process DESCRIBE on it. Offsets are deleted only after the active controller has confirmed that it does not exist.
Topics may also be deleted while this process does not run: at the start, those of all stored offsets are compared with
the metadata. A broker does not do that.

An offset with a topic id (OffsetCommit version 10) is that of the topic with this id. An offset without one may be of
any topic that has had its name. It is deleted if the controller knows no topic of this name, and no metadata since then
contained one, without which no offset of a new topic can be committed.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from offsetlake.errors import LogUnavailable, Refused
from offsetlake.kafka.batches.writer import NO_HEADERS
from offsetlake.kafka.error_codes import NONE
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.node.handover.isr import deleted_topics
from offsetlake.node.handover.topic_names import unused_names
from offsetlake.node.joining import controllers_of
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot
from offsetlake.serve.storage.memtable import VALUE
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes.deletions import DeletionWrite, LogPartition
from offsetlake.serve.writes.rounds import Writes

if TYPE_CHECKING:
    from offsetlake.node.controllers import Controllers

LOG = logging.getLogger(__name__)
RETRY_SECONDS = 1.0
MAX_CHECKED_IDS = 100_000
"""Maximum number of topic ids that are remembered as deleted: outdated metadata may describe such a topic again."""


class _Deleted(NamedTuple):
    """Deleted topics of one name: their ids, and since when the name is unused, None if a topic may have it."""

    ids: set[bytes]
    unused_since: int | None


class DeletedTopics:
    """Notices topics that are missing in the metadata or have another id, and deletes their offsets in `run`."""

    def __init__(self, cluster: Cluster, store: Store, writes: Writes, log_partition: LogPartition) -> None:
        self._cluster, self._store, self._writes, self._log_partition = cluster, store, writes, log_partition
        self._image = cluster.image
        self._missing: dict[bytes, bytes] = {}  # names by topic id
        self._unused: dict[bytes, int] = {}  # names without a topic in the metadata, and a number that is used once
        self._numbers = count()
        self._deleted: dict[bytes, None] = {}  # topic ids, the oldest first
        self._noticed = asyncio.Event()
        self._failure: str | None = None
        self._kept = False  # whether it was logged that offsets are kept
        cluster.changed.append(self._compare)

    def load(self, snapshot: MappedSnapshot) -> None:
        """Notice the topics with stored offsets that are not in the metadata, which has been read."""
        image = self._cluster.image
        for name, ids in snapshot.topic_ids().items():
            self._missing |= dict.fromkeys(ids - {ZERO_UUID, image.id_of(name)}, name)
            if ZERO_UUID in ids and not image.partitions(name):
                self._unused[name] = next(self._numbers)
        if self._missing or self._unused:
            self._noticed.set()

    def _compare(self, names: frozenset[str]) -> None:
        """Notice the topics among those that have changed whose previous id or name is no longer in the metadata."""
        before, self._image = self._image, self._cluster.image
        for name in map(str.encode, names):
            self._unused.pop(name, None)
            topic_id = before.id_of(name)
            if topic_id not in {ZERO_UUID, self._image.id_of(name)} and topic_id not in self._deleted:
                self._missing[topic_id] = name
                self._noticed.set()
            if not self._image.partitions(name):
                self._unused[name] = next(self._numbers)
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
        missing, unused = {**self._missing}, {**self._unused}
        deleted = await deleted_topics(controllers, self._cluster.node, broker_epoch, missing)
        for topic_id in missing.keys() - deleted:  # now: such a topic may be deleted while the offsets of others are
            del self._missing[topic_id]
        free, unknown = await unused_names(controllers, unused)
        if unknown and not self._kept:
            self._kept = True
            LOG.warning(
                "Offsets without a topic id are kept until they expire although topics may have been deleted, because "
                "the validation of CreateTopics failed (error codes %(codes)s; topics: %(topics)s). It needs CREATE on "
                "the cluster, and a name that the cluster and its policy for new topics accept",
                {
                    "codes": ", ".join(map(str, sorted({*unknown.values()}))),
                    "topics": ", ".join(sorted(name.decode() for name in unknown)[:10]),
                },
            )
        topics = {name: _Deleted(set(), unused[name]) for name in free}
        for topic_id in deleted:
            topics.setdefault(missing[topic_id], _Deleted(set(), None)).ids.add(topic_id)
        if topics and (number := await self._delete_offsets(topics)):
            fields = {"count": number, "topics": ", ".join(sorted(name.decode() for name in topics)[:10])}
            LOG.info("Deleted %(count)d offsets of deleted topics: %(topics)s", fields)
        for topic_id in deleted:
            del self._missing[topic_id]
        for name, since in unused.items():
            if self._unused.get(name) == since:
                del self._unused[name]
        self._deleted |= dict.fromkeys(deleted)
        for topic_id in [*self._deleted][: max(0, len(self._deleted) - MAX_CHECKED_IDS)]:
            del self._deleted[topic_id]

    async def _delete_offsets(self, topics: Mapping[bytes, _Deleted]) -> int:
        """Delete the offsets of one group after the other; return their number."""
        deleted = 0
        for group, _ in self._store.groups():
            if self._store.is_unknown(group):
                continue
            done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            partition = self._log_partition(group)
            write = _TopicDeletion(partition, self._store, group, NO_HEADERS, done.set_result, topics, self._unused)
            if write.offsets():
                self._writes.add(write)
                if error := await done:
                    raise LogUnavailable(f"tombstones of group {group.decode()} were not written (error code {error})")
                deleted += write.count
            await asyncio.sleep(0)
        return deleted


class _TopicDeletion(DeletionWrite):
    """Deletes offsets of deleted topics, given by name; `count` is their number."""

    def __init__(
        self,
        partition: int,
        store: Store,
        group: bytes,
        audit: list[tuple[str, bytes]],
        done: Callable[[int], None],
        topics: Mapping[bytes, _Deleted],
        unused: Mapping[bytes, int],
    ) -> None:
        super().__init__(partition, store, group, audit, done)
        self._topics, self._unused = topics, unused

    @property
    def count(self) -> int:
        return len(self._partitions)

    def offsets(self) -> list[tuple[bytes, int]]:
        """Return the topics and partitions to delete."""
        found = {
            (name[:-4], int.from_bytes(name[-4:], "big", signed=True)): VALUE.unpack_from(value)[2]
            for name, value in self._store.offsets(self._group, self._topics).items()
        }
        for topic, partition in self._store.unstable(self._group):
            if topic in self._topics:
                found[topic, partition] = ZERO_UUID  # its topic id is not known
        return sorted(where for where, topic_id in found.items() if self._is_deleted(where[0], topic_id))

    def _is_deleted(self, topic: bytes, topic_id: bytes) -> bool:
        if topic_id != ZERO_UUID:
            return topic_id in self._topics[topic].ids
        since = self._topics[topic].unused_since
        return since is not None and self._unused.get(topic) == since

    def _decide(self) -> int:
        self._partitions = self.offsets()
        return NONE
