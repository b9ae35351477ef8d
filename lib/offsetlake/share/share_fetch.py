"""Fetches records for a member of a share group: waits for them, acquires them and returns their batches unchanged.

As in `DelayedShareFetch` of Kafka, a response is sent when `min_bytes` can be acquired, or after `max_wait`.
No record is acquired before its batch is here, so no lock is needed while batches are read from the cluster.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from offsetlake.coordinator.share_partition.requests import AcquiredRecords, AcquireMode, AcquireRequest
from offsetlake.kafka.error_codes import TOPIC_AUTHORIZATION_FAILED
from offsetlake.serve.net.client import Client
from offsetlake.serve.protocol.encoding import Values
from offsetlake.share.leader_reads import MAX_PARTITION_BYTES
from offsetlake.share.lease import PartitionLease
from offsetlake.share.leases import PartitionLeases, wait
from offsetlake.share.pace import Pace
from offsetlake.share.record_cache import Waiting
from offsetlake.share.sessions import IdPartition, SessionKey

MAX_FETCH_BYTES = 4 << 20
"""Maximum size of the records in one response; a single larger batch is returned too."""

MAX_WAIT_SECONDS = 60.0
_PARTITIONS_PER_STEP = 32


class FetchLimits(NamedTuple):
    """The limits of a ShareFetch; `max_wait` is in seconds."""

    max_wait: float
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    mode: AcquireMode

    @classmethod
    def of(cls, request: Any) -> "FetchLimits":
        """Return the limits of a request; version 1 has only the acquire mode BATCH_OPTIMIZED."""
        max_bytes = max(0, min(request.max_bytes, MAX_FETCH_BYTES))
        return cls(
            min(max(0.0, request.max_wait.total_seconds()), MAX_WAIT_SECONDS),
            min(request.min_bytes, max_bytes),
            max_bytes,
            request.max_records,
            request.batch_size,
            AcquireMode(getattr(request, "share_acquire_mode", AcquireMode.BATCH_OPTIMIZED)),
        )


class ShareFetch:
    """Fetches for members; `fetch` returns the response by partition."""

    def __init__(self, partitions: PartitionLeases) -> None:
        self._partitions = partitions

    async def readable(
        self, partitions: Sequence[IdPartition], client: Client
    ) -> tuple[list[IdPartition], dict[IdPartition, Values]]:
        """Return the partitions that a client may read, and the response for the others."""
        readable, denied = [], dict[IdPartition, Values]()
        pace = Pace()
        for partition in partitions:
            if self._partitions.is_denied(partition, client):
                denied[partition] = partition_values(partition, TOPIC_AUTHORIZATION_FAILED)
            else:
                readable.append(partition)
            await pace.spend()
        return readable, denied

    async def fetch(
        self,
        key: SessionKey,
        partitions: Sequence[IdPartition],
        limits: FetchLimits,
        is_open: Callable[[], bool],
    ) -> dict[IdPartition, Values]:
        """Return the partitions with records and those with an error; nothing is acquired if the session was closed."""
        if not partitions or limits.max_records <= 0 or limits.max_bytes <= 0:
            return {}
        loop, waiting = asyncio.get_running_loop(), Waiting()
        deadline = loop.time() + limits.max_wait
        failed: dict[IdPartition, Values] = {}
        try:
            while True:
                waiting.event.clear()
                available = 0
                for number, partition in enumerate(partitions):
                    if partition not in failed and is_open():
                        available += self._available(key, partition, waiting, failed)
                    if number % _PARTITIONS_PER_STEP == _PARTITIONS_PER_STEP - 1:
                        await asyncio.sleep(0)
                if not is_open():
                    return failed
                is_over = loop.time() >= deadline or len(failed) == len(partitions)
                if is_over or available >= max(1, limits.min_bytes):
                    return failed | await self._acquire(key, partitions, limits, is_open)
                await wait(waiting.event, deadline - loop.time())
        finally:
            await waiting.leave()

    def _available(
        self, key: SessionKey, partition: IdPartition, waiting: Waiting, failed: dict[IdPartition, Values]
    ) -> int:
        """Return the number of bytes that can be acquired now; read more if there are none."""
        error = self._partitions.error_of(partition)
        found = None if error else self._partitions.get(key.group, partition)
        if found is None or found.error_code:
            self._partitions.drop(key.group, partition)
            failed[partition] = partition_values(partition, error if found is None else found.error_code)
            return 0
        waiting.join(found.waiting)
        records, reader = found.records, found.reads.reader(partition)
        if records is None or not records.can_acquire():
            return 0
        offset = records.next_fetch_offset()
        waiting.join(reader.waiting)
        fetched = reader.find(offset)
        if fetched is not None:
            return fetched.bytes_from(offset)
        if reader.take_out_of_range(offset):
            found.check_log_start()
        else:
            reader.request(offset)
        return 0

    async def _acquire(
        self, key: SessionKey, partitions: Sequence[IdPartition], limits: FetchLimits, is_open: Callable[[], bool]
    ) -> dict[IdPartition, Values]:
        """Acquire what is available now, as long as the session is open: its records are released when it is closed."""
        acquired: dict[IdPartition, Values] = {}
        records, size = 0, 0
        for number, partition in enumerate(partitions):
            if records >= limits.max_records or size >= limits.max_bytes or not is_open():
                break
            found = self._partitions.find(key.group, partition)
            if found is not None:
                rest = limits._replace(
                    max_records=limits.max_records - records,
                    max_bytes=min(limits.max_bytes - size, MAX_PARTITION_BYTES),
                )
                ranges, data = self._acquire_in(found, key.member, partition, rest)
                if ranges:
                    acquired[partition] = partition_values(partition, 0, ranges, data)
                    records += sum(each.records for each in ranges)
                    size += len(data)
            if number % _PARTITIONS_PER_STEP == _PARTITIONS_PER_STEP - 1:
                await asyncio.sleep(0)
        return acquired

    def _acquire_in(
        self, found: PartitionLease, member: str, partition: IdPartition, limits: FetchLimits
    ) -> tuple[Sequence[AcquiredRecords], bytes]:
        """Acquire records of one partition; return them with the batches that contain them."""
        if found.records is None or not found.records.can_acquire():
            return (), b""
        offset = found.records.next_fetch_offset()
        fetched = found.reads.reader(partition).find(offset)
        if fetched is None:
            return (), b""
        batches, aborted = fetched.batches_from(offset, limits.max_bytes)
        request = AcquireRequest(member, limits.max_records, limits.batch_size, offset, batches, aborted, limits.mode)
        ranges = found.acquire(request)
        data = fetched.slice(ranges[0].first_offset, ranges[-1].last_offset) if ranges else b""
        return ranges, data


def partition_values(
    partition: IdPartition, error_code: int, acquired: Sequence[AcquiredRecords] = (), records: bytes = b""
) -> dict[str, Any]:
    """Return a partition of the response."""
    return {
        "partition_index": partition.partition,
        "error_code": error_code,
        "acknowledge_error_code": 0,
        "current_leader": {"leader_id": 0, "leader_epoch": 0},
        "records": records,
        "acquired_records": [each._asdict() for each in acquired],
    }
