"""Records of the cluster's partitions, kept for the members that fetch them next."""

import asyncio
import logging
import struct
from collections import OrderedDict

from offsetlake.kafka.error_codes import NONE, OFFSET_OUT_OF_RANGE
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.share.fetched_records import FetchedRecords
from offsetlake.share.leader_reads import Fetched, LeaderReads
from offsetlake.share.pace import Pace
from offsetlake.share.sessions import IdPartition

LOG = logging.getLogger(__name__)
MAX_CACHED_BYTES = 64 << 20
"""Maximum size of the records that are kept for all partitions together."""

RETRY_SECONDS = 0.1
"""The pause after a read that failed; meanwhile the metadata of the cluster is refreshed."""

MAX_KEPT_READS = 32
"""Maximum number of reads of one partition whose records are kept; all of them are searched for an offset."""

_UNKNOWN_END = -1


class RecordCache:
    """Reads of partitions at their leaders, and the records that they returned: the most recently used are kept."""

    def __init__(self, cluster: Cluster, *, committed: bool) -> None:
        self._cluster, self._committed = cluster, committed
        self._leaders: dict[int, LeaderReads] = {}
        self._kept: OrderedDict[tuple[IdPartition, int], FetchedRecords] = OrderedDict()
        self._kept_bytes = 0
        self._partitions: dict[IdPartition, CachedPartition] = {}

    def reader(self, partition: IdPartition) -> "CachedPartition":
        """Return the reader of a partition."""
        reader = self._partitions.get(partition)
        if reader is None:
            reader = self._partitions[partition] = CachedPartition(self, partition)
        return reader

    def leader(self, partition: IdPartition) -> tuple[LeaderReads | None, int]:
        """Return the leader of a partition, None if it has none at the moment, and the leader epoch."""
        image = self._cluster.image
        name = image.name_of(partition.topic_id)
        if name is None or not image.has_partition(name, partition.partition):
            return None, -1
        node, epoch = image.leader(name, partition.partition)
        address = next(((broker.host, broker.port) for broker in image.brokers if broker.node_id == node), None)
        leader = self._leaders.get(node)
        if leader is not None and leader.address != address:
            leader.close()
            del self._leaders[node]
            leader = None
        if leader is None and address is not None:
            leader = self._leaders[node] = LeaderReads(self._cluster.connection, address, committed=self._committed)
        return leader, epoch

    def topic_name(self, partition: IdPartition) -> str | None:
        """Return the name of the topic of a partition, None if the cluster does not contain it."""
        name = self._cluster.image.name_of(partition.topic_id)
        return None if name is None else name.decode()

    def refresh_soon(self) -> None:
        """Refresh the metadata, because a read has failed."""
        self._cluster.refresh_soon()

    def keep(self, partition: IdPartition, records: FetchedRecords) -> None:
        """Keep records, and drop those that were not used for the longest time if there are too many bytes."""
        self.drop(partition, records.start)
        self._kept[partition, records.start] = records
        self._kept_bytes += len(records)
        while self._kept_bytes > MAX_CACHED_BYTES and len(self._kept) > 1:
            dropped, start = next(iter(self._kept))
            self._partitions[dropped].starts.pop(start, None)
            self.drop(dropped, start)

    def use(self, partition: IdPartition, start: int) -> FetchedRecords:
        """Return kept records, which count as used."""
        self._kept.move_to_end((partition, start))
        return self._kept[partition, start]

    def drop(self, partition: IdPartition, start: int) -> None:
        """Drop kept records."""
        records = self._kept.pop((partition, start), None)
        self._kept_bytes -= 0 if records is None else len(records)

    def forget_topics(self) -> None:
        """Drop the readers of topics that the cluster no longer contains."""
        image = self._cluster.image
        for partition in [each for each in self._partitions if image.name_of(each.topic_id) is None]:
            reader = self._partitions.pop(partition)
            reader.stop()
            reader.clear()

    def close(self) -> None:
        """Stop all reads and close the connections."""
        for reader in self._partitions.values():
            reader.stop()
        for leader in self._leaders.values():
            leader.close()


class CachedPartition:
    """Reads one partition for all groups.

    Attributes:
        starts: The offsets from which records are kept.
        waiting: The events that are set when records have arrived, or a read has failed.
    """

    def __init__(self, reads: RecordCache, partition: IdPartition) -> None:
        self._reads, self._partition = reads, partition
        self.starts: dict[int, None] = {}  # the most recently used one is the last one
        self.waiting: set[asyncio.Event] = set()
        self._end, self._epoch = _UNKNOWN_END, -1
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._out_of_range: set[int] = set()

    def find(self, offset: int) -> FetchedRecords | None:
        """Return the kept records with an offset, or None; read what follows them before it is needed."""
        if self._reads.leader(self._partition)[1] != self._epoch:
            self.clear()
        for start in self.starts:
            records = self._reads.use(self._partition, start) if start <= offset else None
            if records is not None and offset < records.end:
                self._use(start)
                if self._end > records.end and offset > (start + records.end) // 2 and not self._has(records.end):
                    self.request(records.end)
                return records
        return None

    def _use(self, start: int) -> None:
        self.starts.pop(start, None)
        self.starts[start] = None
        if len(self.starts) > MAX_KEPT_READS:
            oldest = next(iter(self.starts))
            del self.starts[oldest]
            self._reads.drop(self._partition, oldest)

    def take_out_of_range(self, offset: int) -> bool:
        """Check, once, whether the leader did not have an offset that was read."""
        is_out = offset in self._out_of_range
        self._out_of_range.discard(offset)
        return is_out

    def request(self, offset: int) -> None:
        """Read from an offset on, unless that is under way; events in `waiting` are set when the read is done."""
        if offset not in self._tasks:
            task = self._tasks[offset] = asyncio.create_task(self._read(offset))
            task.add_done_callback(lambda _: self._ended(offset))

    def clear(self) -> None:
        """Drop the records, because there is another leader, which may have truncated the log."""
        for start in self.starts:
            self._reads.drop(self._partition, start)
        self.starts.clear()
        self._out_of_range.clear()
        self._end, self._epoch = _UNKNOWN_END, self._reads.leader(self._partition)[1]

    def stop(self) -> None:
        """Stop reading."""
        for task in self._tasks.values():
            task.cancel()

    def _has(self, offset: int) -> bool:
        return any(start <= offset < self._reads.use(self._partition, start).end for start in self.starts)

    async def _read(self, offset: int) -> None:
        """Read until there are records, or nothing waits for them any more."""
        wait = self._end != _UNKNOWN_END and offset >= self._end
        while True:
            leader, epoch = self._reads.leader(self._partition)
            fetched = Fetched(NONE) if leader is None else await leader.read(self._partition, offset, wait=wait)
            if epoch != self._epoch:
                self.clear()
            if leader is not None and fetched.error_code == NONE:
                self._end, wait = fetched.end, True
                try:
                    records = FetchedRecords(offset, fetched.records, fetched.aborted)
                except (IndexError, struct.error) as error:
                    LOG.warning("Records of %s from offset %d on are malformed: %s", self._partition, offset, error)
                    await asyncio.sleep(RETRY_SECONDS)
                    break
                if records.batches:
                    self._reads.keep(self._partition, records)
                    self._use(offset)
                    break
            elif fetched.error_code == OFFSET_OUT_OF_RANGE:
                self._out_of_range.add(offset)
                break
            else:
                self._reads.refresh_soon()
                await asyncio.sleep(RETRY_SECONDS)
            if not self.waiting:
                break

    def _ended(self, offset: int) -> None:
        del self._tasks[offset]  # before the events are set, as the same offset may be read again
        wake(self.waiting)


def wake(events: set[asyncio.Event]) -> None:
    """Set all events."""
    for event in events:
        event.set()


class Waiting:
    """An event that is in several sets while it is waited for."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self._joined: list[set[asyncio.Event]] = []

    def join(self, waiting: set[asyncio.Event]) -> None:
        """Add the event to a set."""
        if self.event not in waiting:
            waiting.add(self.event)
            self._joined.append(waiting)

    async def leave(self) -> None:
        """Remove the event from all sets."""
        pace = Pace()
        while self._joined:
            self._joined.pop().discard(self.event)
            await pace.spend()
