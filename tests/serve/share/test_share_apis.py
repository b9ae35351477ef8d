"""ShareFetch and ShareAcknowledge: permissions, the sessions of one connection, and large requests in steps."""

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from offsetlake.auth.acl import COMMIT, READ, Access, Grant
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.kafka.error_codes import GROUP_AUTHORIZATION_FAILED, NONE, SHARE_SESSION_NOT_FOUND
from offsetlake.serve.net.client import Client, RequestContext
from offsetlake.serve.protocol.encoding import Values
from offsetlake.share.leader_reads import Fetched
from offsetlake.share.sessions import ShareSessions
from offsetlake.share.share_apis import ShareApis
from offsetlake.share.share_fetch import ShareFetch
from support.serve.share_cluster import TOPIC_ID, ShareCluster, image, record_batch, share_request

T = TypeVar("T")
LOCK_MS = 30_000


def apis(sessions: ShareSessions, records: int = 0, partitions: int = 1, lock_ms: int = LOCK_MS) -> ShareApis:
    """Return the APIs over a topic whose partitions have one record batch each."""
    batch = record_batch(0, records)

    def read(_partition: object, offset: int) -> Fetched:
        return Fetched(0, end=records, records=batch if offset < records else b"")

    sharing = ShareCluster(
        read, settings=CoordinatorSettings(share_max_record_locks=records, share_record_lock_duration_ms=lock_ms)
    )
    sharing.cluster.image = image({b"topic": TOPIC_ID}, partitions=partitions)
    return ShareApis(sessions, sharing.partitions, ShareFetch(sharing.partitions), sharing.settings)


def partitions(batches: dict[int, list[tuple[int, int, tuple[int, ...]]]]) -> list[Any]:
    """Return the topics of a request."""
    named = [
        SimpleNamespace(
            partition_index=number,
            acknowledgement_batches=[
                SimpleNamespace(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in each
            ],
        )
        for number, each in batches.items()
    ]
    return [SimpleNamespace(topic_id=uuid.UUID(bytes=TOPIC_ID), partitions=named)]


async def fetch(share: ShareApis, group: str, client: Client) -> Values:
    """Open a session without partitions."""
    return await share.fetch(share_request(group), RequestContext(2, client, None))


async def acquired(share: ShareApis, request: Any, client: Client) -> list[tuple[int, int, int, int]]:
    """Send ShareFetch; return partition, first offset, last offset and delivery count of what was acquired."""
    response = await share.fetch(request, RequestContext(2, client, None))
    assert response["error_code"] == NONE
    return sorted(
        (part["partition_index"], *ranges.values())
        for topic in response["responses"]
        for part in topic["partitions"]
        for ranges in part["acquired_records"]
    )


async def steps_of(work: Coroutine[Any, Any, T], at_step: Callable[[int], None] = lambda _: None) -> tuple[T, int]:
    """Return the result of some work, and during how many iterations of the event loop it was done."""
    task = asyncio.create_task(work)
    steps = 0
    while not task.done():
        await asyncio.sleep(0)
        steps += 1
        at_step(steps)
    return task.result(), steps


def test_a_connection_has_one_session() -> None:
    async def open_sessions() -> None:
        sessions, client = ShareSessions(2), Client()
        share = apis(sessions)
        for number in range(5):
            assert (await fetch(share, f"group-{number}", client))["error_code"] == NONE
        assert len(sessions) == 1
        share.disconnect(client)
        assert len(sessions) == 0

    asyncio.run(open_sessions())


@pytest.mark.parametrize(("permission", "error"), [(READ, GROUP_AUTHORIZATION_FAILED), (COMMIT, NONE)])
def test_fetching_and_acknowledging_need_the_permission_to_commit(permission: int, error: int) -> None:
    client = Client()
    client.access = Access([Grant("User:reader", "*", permission)])
    assert asyncio.run(fetch(apis(ShareSessions(1)), "group", client))["error_code"] == error


HOUR_NS = 3_600 * 10**9


@pytest.mark.parametrize("jump_ns", [HOUR_NS, -HOUR_NS])
def test_a_clock_that_jumps_neither_ends_nor_extends_locks(jump_ns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock ends after its time, and not before, whatever the time of day is."""
    wall, clock = time.time_ns, time.monotonic_ns
    limits = {"max_records": 10, "batch_size": 10, "max_bytes": 1 << 20, "max_wait": timedelta(seconds=20)}

    async def handled() -> None:
        share, client, other = apis(ShareSessions(2), records=10), Client(), Client()
        first = share_request(topics=partitions({0: []}), **limits)
        assert await acquired(share, first, client) == [(0, 0, 9, 1)]
        monkeypatch.setattr(time, "time_ns", lambda: wall() + jump_ns)
        context = RequestContext(2, client, None)
        for offset in range(2):  # the first acknowledgement sets the timer anew
            request = share_request(epoch=1 + offset, topics=partitions({0: [(offset, offset, (1,))]}))
            [topic] = (await share.acknowledge(request, context))["responses"]
            assert topic["partitions"][0]["error_code"] == NONE
            await asyncio.sleep(0.01)
        monkeypatch.setattr(time, "monotonic_ns", lambda: clock() + LOCK_MS * 1_000_000)
        request = share_request(epoch=3, topics=partitions({0: [(2, 2, (1,))]}))
        await share.acknowledge(request, context)
        second = share_request(member="other", topics=partitions({0: []}), **limits)
        assert await acquired(share, second, other) == [(0, 3, 9, 2)]

    asyncio.run(handled())


MAX_UNITS_PER_STEP = 600
"""The partitions, or ranges of acknowledgements, that may be handled in one step, in some microseconds each."""


def test_large_requests_are_handled_in_steps() -> None:
    async def handled() -> None:
        share, client, number = apis(ShareSessions(1), partitions=10_000), Client(), 10_000
        every = partitions({each: [] for each in range(number)})
        context = RequestContext(2, client, None)
        opened = share_request(topics=every, max_records=0, forgotten_topics_data=every[:0])
        _, steps = await steps_of(share.fetch(opened, context))
        assert steps > number // MAX_UNITS_PER_STEP
        acknowledged = partitions({each: [(0, 0, (1,))] for each in range(number)})
        response, steps = await steps_of(share.acknowledge(share_request(epoch=1, topics=acknowledged), context))
        assert len(response["responses"][0]["partitions"]) == number
        assert steps > 3 * number // MAX_UNITS_PER_STEP  # read, acknowledge, respond

    asyncio.run(handled())


@pytest.mark.parametrize("at_step", [1, 5, 12, 30, 60])
def test_records_of_a_member_that_leaves_while_it_acknowledges_many_are_available(at_step: int) -> None:
    """The session of another member keeps the share partition in use."""
    number = 10_000
    limits = {"max_records": number, "batch_size": number, "max_bytes": 1 << 20, "max_wait": timedelta(seconds=5)}

    async def handled() -> None:
        share, client, other = apis(ShareSessions(2), records=number), Client(), Client()
        await fetch(share, "group", other)  # the member "member" of another connection
        request = share_request(member="leaving", topics=partitions({0: []}), **limits)
        assert await acquired(share, request, client) == [(0, 0, number - 1, 1)]
        batches = [(offset, offset, (1,)) for offset in range(number - 1)] + [(number - 1, number - 1, (2,))]
        request = share_request(member="leaving", epoch=1, topics=partitions({0: batches}))

        def leave(step: int) -> None:
            if step == at_step:
                share.disconnect(client)

        _, steps = await steps_of(share.acknowledge(request, RequestContext(2, client, None)), leave)
        assert steps > at_step
        taken: list[tuple[int, int, int, int]] = []
        while sum(last - first + 1 for _, first, last, _ in taken) not in {1, number}:  # all or none are acknowledged
            request = share_request(epoch=len(taken) + 1, topics=partitions({0: []}), **limits)
            taken += await acquired(share, request, other)
        assert {deliveries for *_, deliveries in taken} == {2}

    asyncio.run(handled())


@pytest.mark.parametrize("at_step", [5, 30])
def test_records_of_a_member_that_leaves_while_two_of_its_requests_acknowledge_many_are_available(at_step: int) -> None:
    """Each request is on a connection of its own; the records are available long before their locks expire."""
    number = 10_000
    half = number // 2
    limits = {"max_records": number, "batch_size": number, "max_bytes": 1 << 20, "max_wait": timedelta(seconds=5)}

    async def handled() -> None:
        share = apis(ShareSessions(2), records=number, lock_ms=3_600_000)
        client, second, other = Client(), Client(), Client()
        await fetch(share, "group", other)
        request = share_request(member="leaving", topics=partitions({0: []}), **limits)
        assert await acquired(share, request, client) == [(0, 0, number - 1, 1)]
        works = []
        for epoch, sender in ((1, client), (2, second)):
            first = (epoch - 1) * half
            batches = [(offset, offset, (1 + offset % 2,)) for offset in range(first, first + half)]
            request = share_request(member="leaving", epoch=epoch, topics=partitions({0: batches}))
            works.append(share.acknowledge(request, RequestContext(2, sender, None)))

        async def both() -> object:
            return await asyncio.gather(*works)

        def leave(step: int) -> None:
            if step == at_step:
                share.disconnect(client)

        _, steps = await steps_of(both(), leave)
        assert steps > at_step
        taken = 0
        async with asyncio.timeout(300):
            for epoch in range(1, number):
                request = share_request(epoch=epoch, topics=partitions({0: []}), **limits)
                ranges = await acquired(share, request, other)
                taken += sum(last - first + 1 for _, first, last, _ in ranges)
                if taken >= number:
                    break
        assert taken == number

    asyncio.run(handled())


def test_a_connection_that_is_lost_before_its_request_is_read_opens_no_session() -> None:
    async def handled() -> None:
        sessions, client = ShareSessions(1), Client()
        share = apis(sessions, partitions=5000)
        request = share_request(topics=partitions({each: [] for each in range(5000)}))
        await steps_of(share.fetch(request, RequestContext(2, client, None)), lambda _: share.disconnect(client))
        assert len(sessions) == 0

    asyncio.run(handled())


def test_a_connection_that_is_lost_before_the_task_of_its_request_runs_opens_no_session() -> None:
    async def handled() -> None:
        sessions, client = ShareSessions(1), Client()
        share = apis(sessions)
        answering = asyncio.create_task(share.fetch(share_request(), RequestContext(2, client, None)))
        share.disconnect(client)
        assert (await answering)["error_code"] == SHARE_SESSION_NOT_FOUND
        assert len(sessions) == 0

    asyncio.run(handled())
