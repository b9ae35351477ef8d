"""Arbitrary bytes over a socket: the server closes that connection, and keeps serving the others."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.serve.serving import Serving
from support.serve.wire_client import OFFSET_COMMIT, OFFSET_FETCH, WireClient, frame, request

FETCH: dict[str, Any] = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
GOOD = frame(OFFSET_FETCH, 5, 7, request(OFFSET_FETCH, 5, FETCH))
TWICE: dict[str, Any] = {"groups": [{"group_id": "g", "topics": None}] * 2, "require_stable": False}
SAME_PARTITION: dict[str, Any] = {"name": "t", "partition_indexes": [0, 0]}
DESCRIBED_TWICE = {"groups": ["g", "g"], "group_ids": ["g", "g"], "include_authorized_operations": False}
LIST_GROUPS, DESCRIBE_GROUPS, CONSUMER_GROUP_DESCRIBE, UNKNOWN_API, TOO_NEW = 16, 15, 69, 4242, 99

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("garbage")
    with Serving(folder / "lake", folder / "log") as running:
        with WireClient(running.bootstrap) as client:
            client.ask(OFFSET_COMMIT, 5, commit(42))
        yield running


def commit(offset: int) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
    return {"group_id": "g", "generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": ""} | {
        "topics": [{"name": "t", "partitions": partitions}]
    }


def answers(serving: Serving) -> bool:
    with WireClient(serving.bootstrap) as client:
        return bool(client.ask(OFFSET_FETCH, 5, FETCH)["topics"][0]["partitions"][0]["committed_offset"] == 42)


def connected(serving: Serving) -> socket.socket:
    host, _, port = serving.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=120)


def ends(serving: Serving, data: bytes) -> bool:
    """Send bytes; return whether the connection is closed without a response."""
    with connected(serving) as client:
        client.sendall(data)
        try:
            return client.recv(1) == b""
        except ConnectionResetError:
            return True


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", (16 << 20) + 1),
        struct.pack(">ih", (128 << 10) + 1, LIST_GROUPS),  # before the rest of it has arrived
        struct.pack(">ih", (16 << 20) + 1, OFFSET_FETCH),
        struct.pack(">ih", (4 << 20) + 1, OFFSET_COMMIT),
        struct.pack(">ih", (128 << 10) + 1, UNKNOWN_API),
        sized(b""),
        sized(b"\0"),
        sized(struct.pack(">hhih", OFFSET_FETCH, 5, 1, 30_000)),
        sized(struct.pack(">hhih", UNKNOWN_API, 0, 1, -1)),
        sized(struct.pack(">hhih", OFFSET_FETCH, TOO_NEW, 1, -1)),
        sized(struct.pack(">hhih", OFFSET_COMMIT, -1, 1, -1)),
        sized(GOOD[4:-1]),
        sized(struct.pack(">hhihhsi", OFFSET_FETCH, 5, 1, -1, 1, b"g", 2**31 - 1)),
        sized(struct.pack(">hhih", OFFSET_FETCH, 9, 1, -1) + b"\0" + b"\xff" * 40),
        frame(OFFSET_FETCH, 8, 7, request(OFFSET_FETCH, 8, TWICE)),
        frame(OFFSET_FETCH, 5, 7, request(OFFSET_FETCH, 5, {"group_id": "g", "topics": FETCH["topics"] * 2})),
        frame(OFFSET_FETCH, 5, 7, request(OFFSET_FETCH, 5, {"group_id": "g", "topics": [SAME_PARTITION]})),
        frame(DESCRIBE_GROUPS, 4, 7, request(DESCRIBE_GROUPS, 4, DESCRIBED_TWICE)),
        frame(CONSUMER_GROUP_DESCRIBE, 0, 7, request(CONSUMER_GROUP_DESCRIBE, 0, DESCRIBED_TWICE)),
        sized(struct.pack(">hhih", OFFSET_COMMIT, 9, 1, -1) + b"\xff\xff\xff\xff\x0f" + b"\xff" * 40),
        bytes.fromhex("00000011 0010 0004 00000001 ffff 00 ffffffff61 00"),  # ListGroups with 26 billion states
    ],
)
def test_malformed_request_closes_its_connection(serving: Serving, data: bytes) -> None:
    assert ends(serving, data)
    assert answers(serving)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.sampled_from([OFFSET_COMMIT, OFFSET_FETCH]),
    st.integers(0, 11),
    st.binary(max_size=60),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
)
def test_random_request_is_answered_or_closes_its_connection(
    serving: Serving, api: int, version: int, body: bytes, changes: list[tuple[int, int]]
) -> None:
    changed = bytearray(GOOD[4:])
    for at, byte in changes:
        changed[at % len(changed)] = byte
    for data in (struct.pack(">hhih", api, version, 7, -1) + body, bytes(changed)):
        with connected(serving) as client:
            client.sendall(sized(data))
            client.shutdown(socket.SHUT_WR)
            received = b""
            while piece := client.recv(1 << 16):
                received += piece
        assert received == b"" or struct.unpack_from(">i", received)[0] == len(received) - 4
    assert answers(serving)


def test_incomplete_request_waits_for_its_rest(serving: Serving) -> None:
    with connected(serving) as client:
        client.sendall(GOOD[:10])
        assert answers(serving)
        client.sendall(GOOD[10:] + GOOD + GOOD[:3])
        received = b""
        while len(received) < 2 * (4 + struct.unpack_from(">i", received.ljust(4, b"\0"))[0]) or not received:
            received += client.recv(1 << 16)
    assert answers(serving)


def test_requests_of_a_client_that_does_not_read_stay_in_its_socket(serving: Serving) -> None:
    """The memory of the process does not grow by the responses."""
    before = resident(serving)
    with connected(serving) as client:
        client.settimeout(2)
        with pytest.raises(TimeoutError):
            send_many(client)
        assert answers(serving)
        assert resident(serving) - before < 64 << 20


def send_many(client: socket.socket) -> None:
    for _ in range(20_000):
        client.sendall(GOOD * 1000)


def resident(serving: Serving) -> int:
    status = Path(f"/proc/{serving.process.pid}/status").read_text(encoding="utf-8")
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


@pytest.mark.long
def test_thousand_connections_are_served_and_released(serving: Serving) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(WireClient(serving.bootstrap)) for _ in range(1000)]
        for client in clients:
            client.socket.sendall(GOOD)
        for client in clients:
            assert client.receive()[4:8] == bytes(4)
        assert answers(serving)
    deadline = time.monotonic() + 120
    while descriptors(serving) > 100:
        assert time.monotonic() < deadline, "closed connections still have descriptors"
        time.sleep(0.05)  # the interval between polls


def descriptors(serving: Serving) -> int:
    return len(list(Path(f"/proc/{serving.process.pid}/fd").iterdir()))
