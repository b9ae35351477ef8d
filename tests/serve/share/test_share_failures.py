"""What share consumers get, and what remains, if reads fail, topics are deleted and connections are lost."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from offsetlake.coordinator.share_partition.requests import (
    AcknowledgementBatch,
    AcquireMode,
    AcquireRequest,
    FetchedBatch,
)
from offsetlake.coordinator.share_state.requests import ShareStateResult
from offsetlake.kafka.error_codes import NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_ID
from offsetlake.share.leader_reads import Fetched
from offsetlake.share.record_cache import MAX_KEPT_READS, RETRY_SECONDS
from offsetlake.share.sessions import IdPartition, SessionKey
from offsetlake.share.share_fetch import FetchLimits, ShareFetch
from offsetlake.util.times import now_ms
from support.serve.share_cluster import PARTITION, ShareCluster

MEMBER = SessionKey("group", "member")
TIMEOUT_SECONDS = 120.0
REQUESTS = 5


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, TIMEOUT_SECONDS))


def limits(max_wait: float) -> FetchLimits:
    return FetchLimits(max_wait, 1, 1 << 20, 500, 500, AcquireMode.BATCH_OPTIMIZED)


def nothing(_partition: IdPartition, _offset: int) -> Fetched:
    return Fetched(0, end=0)


async def pauses_between(sharing: ShareCluster, requests: Callable[[], int]) -> int:
    """Fetch until the leader has got REQUESTS; return the number of pauses, which take no time here."""
    sleep, is_open, pauses = asyncio.sleep, True, 0

    async def counted(seconds: float) -> None:
        nonlocal pauses
        pauses += seconds == RETRY_SECONDS
        await sleep(0 if seconds == RETRY_SECONDS else seconds)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio, "sleep", counted)
        work = ShareFetch(sharing.partitions).fetch(MEMBER, [PARTITION], limits(60.0), lambda: is_open)
        fetching = asyncio.create_task(work)
        while requests() < REQUESTS:
            await sleep(0)
        is_open = False
        await sharing.partitions.close_group(MEMBER.group)
        assert await fetching == {}
        sharing.partitions.close()
    return pauses


def test_a_fetch_of_an_unknown_topic_loads_nothing() -> None:
    async def fetch() -> None:
        sharing = ShareCluster(nothing)
        unknown = [IdPartition(bytes([number]) * 16, 0) for number in range(5)]
        before = len(asyncio.all_tasks())
        found = await ShareFetch(sharing.partitions).fetch(MEMBER, unknown, limits(0.0), lambda: True)
        assert {values["error_code"] for values in found.values()} == {UNKNOWN_TOPIC_ID}
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == before

    run(fetch())


def test_a_fetch_whose_connection_is_lost_ends_and_loads_nothing_again() -> None:
    async def fetch() -> None:
        sharing, is_open = ShareCluster(nothing), True
        work = ShareFetch(sharing.partitions).fetch(MEMBER, [PARTITION], limits(60.0), lambda: is_open)
        waiting = asyncio.create_task(work)
        while not sharing.leader.reads:
            await asyncio.sleep(0)
        is_open = False
        await sharing.partitions.close_group(MEMBER.group)
        assert await waiting == {}
        assert sharing.partitions.find(MEMBER.group, PARTITION) is None

    run(fetch())


def test_an_unknown_log_start_or_one_that_does_not_help_is_read_again_after_a_pause() -> None:
    async def fetch() -> None:
        for offset in (-1, 0):  # the second one: the start offset was set to one after the end of the log
            sharing = ShareCluster(lambda _partition, _offset: Fetched(OFFSET_OUT_OF_RANGE), start=100)
            sharing.leader.offset = offset
            assert await pauses_between(sharing, lambda sharing=sharing: sharing.leader.lists) >= REQUESTS - 1

    run(fetch())


@pytest.mark.parametrize(("found", "start"), [(40, 40), (-1, 90)])
def test_a_group_begins_with_the_records_of_a_duration_or_at_the_end(found: int, start: int) -> None:
    """No record is as new as the duration requires if the leader returns -1; the log ends at offset 90.

    A record that arrives after the leader has looked for one is delivered.
    """
    day_ms = 86_400_000

    async def fetch() -> None:
        sharing = ShareCluster(lambda _partition, _offset: Fetched(0, end=90), -1, reset="by_duration:P1DT0.001S")
        timestamps: list[int] = []
        end = 90

        async def list_offset(_topic: str, _partition: int, timestamp: int) -> int:
            nonlocal end
            timestamps.append(timestamp)
            await asyncio.sleep(0)
            if timestamp == -1:
                return end
            end += 1
            return found

        stub: Any = sharing.leader
        stub.list_offset = list_offset
        began = now_ms()
        share_partition = sharing.partitions.get(MEMBER.group, PARTITION)
        while share_partition.records is None:
            await asyncio.sleep(0.001)
        assert share_partition.records.start_offset == start
        assert timestamps[:-1] == [-1]
        assert began <= timestamps[-1] + day_ms + 1 <= now_ms()
        sharing.partitions.close()

    run(fetch())


def test_acknowledgements_of_a_share_partition_that_is_closed_between_their_steps_are_not_written() -> None:
    """The share partition may be loaded again by then, and its records delivered to another member."""
    count = 2000

    async def acknowledge() -> None:
        sharing = ShareCluster(nothing)
        share_partition = sharing.partitions.get(MEMBER.group, PARTITION)
        while share_partition.records is None:
            await asyncio.sleep(0)
        request = AcquireRequest(MEMBER.member, count, count, 0, [FetchedBatch(0, count - 1)])
        assert share_partition.acquire(request)
        writes: list[object] = []

        async def write(request: object) -> ShareStateResult:
            writes.append(request)
            return ShareStateResult()

        sharing.persister.write = write
        batches = [AcknowledgementBatch(offset, offset, [1]) for offset in range(count)]
        acknowledged = asyncio.create_task(share_partition.acknowledge(MEMBER.member, batches, allows_renew=False))
        while len([*share_partition.records.spans()]) == 1:
            await asyncio.sleep(0)
        await sharing.partitions.close_group(MEMBER.group)
        assert await (await acknowledged) == NOT_LEADER_OR_FOLLOWER
        assert not writes

    run(acknowledge())


def test_a_malformed_response_is_read_again(caplog: pytest.LogCaptureFixture) -> None:
    async def fetch() -> None:
        control = bytes(8) + (50).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(4) + b"\0\x20" + bytes(38) + b"\xff"
        sharing = ShareCluster(lambda _partition, _offset: Fetched(0, 1, (), control))
        assert await pauses_between(sharing, lambda: sharing.leader.reads) >= REQUESTS - 1

    run(fetch())
    assert "malformed" in caplog.text


def test_records_of_a_deleted_topic_that_arrive_late_are_not_kept() -> None:
    async def fetch() -> None:
        arrived = asyncio.Event()

        async def late() -> Fetched:
            await arrived.wait()
            return Fetched(0, 1, (), bytes(8) + (49).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(44))

        sharing = ShareCluster(lambda _partition, _offset: late())
        reader = sharing.reads.reader(PARTITION)
        reader.request(0)
        while not sharing.leader.reads:
            await asyncio.sleep(0)
        sharing.delete_topics()
        arrived.set()
        while reader._tasks:
            await asyncio.sleep(0)
        assert reader.find(0) is None

    run(fetch())


def test_the_number_of_reads_that_are_kept_for_a_partition_is_limited() -> None:
    async def fetch() -> None:
        def one(_partition: IdPartition, offset: int) -> Fetched:
            head = offset.to_bytes(8, "big") + (49).to_bytes(4, "big")
            return Fetched(0, offset + 1, (), head + bytes(4) + b"\2" + bytes(44))

        sharing = ShareCluster(one)
        reader = sharing.reads.reader(PARTITION)
        for offset in range(2 * MAX_KEPT_READS):
            reader.request(offset)
            while reader.find(offset) is None:
                await asyncio.sleep(0)
        assert len(reader.starts) == MAX_KEPT_READS
        assert reader.find(0) is None
        assert reader.find(2 * MAX_KEPT_READS - 1) is not None

    run(fetch())
