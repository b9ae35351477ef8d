"""A cluster without connections, whose only broker returns what a test says, and a persister that keeps no state."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from offsetlake.coordinator.settings import CoordinatorSettings, ShareIsolation
from offsetlake.coordinator.share_state.requests import ReadResult, ShareStateResult
from offsetlake.node.metadata.image import ClusterBroker, ClusterImage, TopicColumns
from offsetlake.rules.share_state import UNKNOWN
from offsetlake.share.group_settings import GroupSettings
from offsetlake.share.leader_reads import Fetched
from offsetlake.share.leases import PartitionLeases
from offsetlake.share.record_cache import RecordCache
from offsetlake.share.sessions import IdPartition

TOPIC_ID = b"t" * 16
PARTITION = IdPartition(TOPIC_ID, 0)
READ_SECONDS = 0.001
_HEADER = struct.Struct(">qiibIhiqqqhii")

Read = Callable[[IdPartition, int], Fetched | Awaitable[Fetched]]


def image(topics: dict[bytes, bytes], *, partitions: int = 1) -> ClusterImage:
    """Return the metadata of a cluster with topic ids by name, all led by one broker."""
    columns = TopicColumns()
    for name, id_ in topics.items():
        for _ in range(partitions):
            columns.add_partition(0, 1, 0, b"")
        columns.add(name, id_, internal=False)
    return ClusterImage("cluster", 1, [ClusterBroker(1, "127.0.0.1", 1, None)], columns)


def record_batch(first_offset: int, records: int) -> bytes:
    """Return a record batch by its header, without the records."""
    return _HEADER.pack(first_offset, 49, 0, 2, 0, 0, records - 1, 0, 0, -1, -1, 0, records)


def share_request(group: str = "group", member: str = "member", epoch: int = 0, **values: Any) -> Any:
    """Return a request without partitions."""
    fields = {
        "group_id": group, "member_id": member, "share_session_epoch": epoch, "topics": [], "forgotten_topics_data": [],
        "max_wait": timedelta(0), "min_bytes": 0, "max_bytes": 1, "max_records": 1, "batch_size": 1,
        "share_acquire_mode": 0, "is_renew_ack": False,
    }  # fmt: skip
    return SimpleNamespace(**fields | values)


class StubLeader:
    """The broker: `read` returns the result of Fetch, `offset` is that of ListOffsets."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self.offset = 0
        self.reads = self.lists = 0

    async def read(self, partition: IdPartition, offset: int, *, wait: bool) -> Fetched:
        """Return what was fetched."""
        self.reads += 1
        await asyncio.sleep(READ_SECONDS)
        result = self._read(partition, offset)
        return result if isinstance(result, Fetched) else await result

    async def list_offset(self, _topic: str, _partition: int, _timestamp: int) -> int:
        """Return the offset."""
        self.lists += 1
        await asyncio.sleep(0)
        return self.offset


class StubPersister:
    """A persister of share partitions that begin at `start`."""

    def __init__(self, start: int = UNKNOWN) -> None:
        self.start = start

    async def read(self, _request: object) -> ReadResult:
        """Return a state without batches."""
        return ReadResult(start_offset=self.start)

    async def write(self, _request: object) -> ShareStateResult:
        """Return success."""
        return ShareStateResult()


async def no_settings(_api: int, _versions: range, _values: object) -> Any:
    """Answer DescribeConfigs without settings of groups."""
    await asyncio.sleep(0)
    return SimpleNamespace(entity=lambda: SimpleNamespace(results=()))


class ShareCluster:
    """The share partitions of a cluster with one topic, `PARTITION`'s."""

    def __init__(
        self, read: Read, start: int = 0, settings: CoordinatorSettings | None = None, reset: str = "earliest"
    ) -> None:
        self.cluster: Any = SimpleNamespace(
            image=image({b"topic": TOPIC_ID}),
            changed=[],
            connection=None,
            node=-1,
            available=False,
            revision=1,
            request_refresh=lambda _topic: None,
            refresh_soon=lambda: None,
            send=no_settings,
        )
        self.leader = StubLeader(read)
        self.persister: Any = StubPersister(start)
        self.reads = reads = RecordCache(self.cluster, committed=False)
        leads: Any = reads
        leads.leader = lambda partition: (self.leader if self.knows(partition) else None, 0)
        defaults = replace(settings or CoordinatorSettings(), share_auto_offset_reset=reset)
        self.settings = GroupSettings(self.cluster, defaults)
        self.partitions = PartitionLeases(
            self.cluster, dict.fromkeys(ShareIsolation, reads), self.persister, self.settings
        )

    def knows(self, partition: IdPartition) -> bool:
        """Check whether the cluster contains a topic."""
        return self.cluster.image.name_of(partition.topic_id) is not None

    def delete_topics(self) -> None:
        """Delete all topics."""
        self.cluster.image = image({})
        for callback in self.cluster.changed:
            callback(frozenset({"topic"}))
