"""Random and broken requests of share consumers over one listener: it keeps serving, without errors."""

import asyncio
import logging
import random
import struct
import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from offsetlake.coordinator.settings import CoordinatorSettings, ShareIsolation
from offsetlake.serve.net.client import Client
from offsetlake.serve.net.frame_memory import Memory
from offsetlake.serve.net.turns import Turns
from offsetlake.share.leader_reads import Fetched
from offsetlake.share.listener import SHARE_VERSIONS, ShareListener
from serve.protocol.test_fuzz import altered
from support.serve.in_process import InProcess, Origin
from support.serve.kio_requests import answered, request
from support.serve.malformed_requests import Layout
from support.serve.share_cluster import ShareCluster, image, record_batch
from support.serve.share_member import INITIALIZE, SHARE_ACKNOWLEDGE, SHARE_FETCH, acquired
from support.serve.valid_requests import plain_entity

TOPIC, PARTITIONS, RECORDS = b"fuzzed", 2, 20
PERSISTER = range(83, 88)
OTHERS = [(api, version) for api, versions in SHARE_VERSIONS.items() for version in versions]
OTHERS += [(api, 0) for api in PERSISTER]
OFFSETS = (*range(-1, RECORDS + 1), 0, 0, 0, 2**62)
REQUESTS = 1000
TIMEOUT_SECONDS = 60.0
BROKEN_SECONDS = 0.05
"""How long to wait for the response to a broken request, which may be a part of a frame that the server waits for."""
_CORRELATION = struct.Struct(">i")


class Listening:
    """The listener of a server in this process, with record batches that no broker has sent."""

    def __init__(self, server: InProcess) -> None:
        self._server, self.topic_id = server, server.topics.id_of(TOPIC)

        def read(_partition: object, offset: int) -> Fetched:
            return Fetched(0, end=RECORDS, records=record_batch(0, RECORDS) if offset < RECORDS else b"")

        sharing = ShareCluster(read)
        sharing.cluster.image = image({TOPIC: self.topic_id}, partitions=PARTITIONS)
        parts = server.parts
        settings = CoordinatorSettings(share_auto_offset_reset="earliest", share_record_lock_duration_ms=20)
        parts.settings = replace(parts.settings, coordinator=settings)
        self._listener = ShareListener(parts, sharing.cluster, server.share.states)
        self._listener.address = "localhost", 9094
        reads: Any = self._listener._reads[ShareIsolation.READ_UNCOMMITTED]
        reads.leader = lambda partition: (sharing.leader if sharing.knows(partition) else None, 0)

    async def start(self) -> None:
        loop = self._server.loop
        turns, connections = Turns(loop, Memory()), set[Any]()

        def connect() -> asyncio.Protocol:
            return self._listener.connect(Client(), connections, turns)

        self._sockets = await loop.create_server(connect, "127.0.0.1", 0)

    async def send(self, frame: bytes, seconds: float, *, closes: bool) -> bytes:
        """Send a frame with its size; return the response without its size, or nothing if the connection is closed."""
        reader, writer = await asyncio.open_connection(*self._sockets.sockets[0].getsockname())
        try:
            writer.write(frame)
            if closes:
                return b""
            async with asyncio.timeout(seconds):
                return await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            return b""
        finally:
            writer.close()

    async def ask(self, api: int, version: int, **values: Any) -> dict[str, Any]:
        body = request(api, version, values)
        reader, writer = await asyncio.open_connection(*self._sockets.sockets[0].getsockname())
        writer.write(_CORRELATION.pack(len(body)) + body)
        size = struct.unpack(">i", await reader.readexactly(4))[0]
        answer = await reader.readexactly(size)
        writer.close()
        return answered(api, version, answer[_CORRELATION.size :])

    async def close(self) -> None:
        self._sockets.close()
        await self._listener.close()


def share_values(api: int, rng: random.Random, topic_id: bytes) -> dict[str, Any]:
    """Return the fields of ShareFetch or ShareAcknowledge."""
    topics = [
        {
            "topic_id": rng.choice([uuid.UUID(bytes=topic_id)] * 5 + [None]),
            "partitions": [
                {
                    "partition_index": rng.choice((0, 0, 1, 2, -1)),
                    "acknowledgement_batches": [
                        {
                            "first_offset": first,
                            "last_offset": first + rng.choice((0, 0, 3, RECORDS - 1, -1)),
                            "acknowledge_types": [rng.randrange(-1, 6) for _ in range(rng.choice((0, 1, 1, 1, 4)))],
                        }
                        for first in sorted(rng.choices(OFFSETS, k=rng.choice((0, 0, 1, 2))))
                    ],
                }
                for _ in range(rng.randrange(3))
            ],
        }
        for _ in range(rng.choice((0, 1, 1, 2)))
    ]
    values: dict[str, Any] = {
        "group_id": rng.choice(("fuzzed", "fuzzed", "other", "", None)),
        "member_id": rng.choice(("first", "second", "", None, "x" * 40)),
        "share_session_epoch": rng.choice((0, 0, 1, 2, -1, 2**31 - 1)),
        "topics": topics,
        "is_renew_ack": rng.random() < 0.2,
    }
    if api == SHARE_FETCH:
        values |= {
            "max_wait": timedelta(milliseconds=rng.choice((0, 0, 1, -1))),
            "min_bytes": rng.choice((0, 1, -1, 2**31 - 1)),
            "max_bytes": rng.choice((1 << 20, 1 << 20, 1, 0, -1)),
            "max_records": rng.choice((1, 500, 500, 0, -1)),
            "batch_size": rng.choice((1, 500, 0, -1)),
            "share_acquire_mode": rng.choice((0, 1, 2, -1)),
            "forgotten_topics_data": [{"topic_id": None, "partitions": [0, -1]}] if rng.random() < 0.1 else [],
        }
    return values


def random_frame(rng: random.Random, topic_id: bytes) -> tuple[bytes, float]:
    """Return a request with its size, and how long to wait for the response in seconds.

    Most requests are of the two APIs of the listener, and a third are broken.
    """
    if rng.random() < 0.7:
        api, version = rng.choice((SHARE_FETCH, SHARE_ACKNOWLEDGE)), rng.choice((1, 2))
        data = request(api, version, share_values(api, rng, topic_id))
    else:
        api, version = rng.choice(OTHERS)
        data = bytes(Layout(api, version, plain_entity(api, version)).data)
    if rng.random() < 0.35:
        return altered(data, rng), BROKEN_SECONDS
    return struct.pack(">i", len(data)) + data, TIMEOUT_SECONDS


async def fuzz(listening: Listening, seed: int) -> int:
    """Send random requests, a few at once; return how many were answered."""
    rng, answers = random.Random(seed), 0
    for _ in range(REQUESTS // 10):
        frames = [random_frame(rng, listening.topic_id) for _ in range(10)]
        responses = await asyncio.gather(*(listening.send(*each, closes=rng.random() < 0.2) for each in frames))
        answers += sum(map(bool, responses))
    return answers


async def consume(listening: Listening) -> list[tuple[int, int, int]]:
    """Return what a member of the group "last" acquires of partition 0."""
    part = {"partition_index": 0, "acknowledgement_batches": []}
    response = await listening.ask(
        SHARE_FETCH, 2, group_id="last", member_id="last", share_session_epoch=0, max_wait=timedelta(seconds=20),
        min_bytes=1, max_bytes=1 << 20, max_records=500, batch_size=500, share_acquire_mode=0, is_renew_ack=False,
        topics=[{"topic_id": uuid.UUID(bytes=listening.topic_id), "partitions": [part]}], forgotten_topics_data=[],
    )  # fmt: skip
    return acquired(response)[0]


def test_listener_survives_random_requests(tmp_path: Path, origin: Origin, caplog: pytest.LogCaptureFixture) -> None:
    server = InProcess(tmp_path, origin, {TOPIC: PARTITIONS})
    server.load()
    listening = Listening(server)
    failures: list[Any] = []
    server.loop.set_exception_handler(lambda _loop, context: failures.append(context))

    async def run() -> int:
        await listening.start()
        for group in ("fuzzed", "other", "last"):
            parts = [{"partition": number, "state_epoch": 1, "start_offset": 0} for number in range(PARTITIONS)]
            topics = [{"topic_id": uuid.UUID(bytes=listening.topic_id), "partitions": parts}]
            answer = server.start(request(INITIALIZE, 0, {"group_id": group, "topics": topics}))
            assert await answer
        answers = await fuzz(listening, 1)
        assert await consume(listening) == [(0, RECORDS - 1, 1)]
        await listening.close()
        return answers

    assert server.loop.run_until_complete(run()) > REQUESTS // 4
    assert not failures
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    server.close()
