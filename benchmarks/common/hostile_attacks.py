"""Attacks on the serving process: what hostile clients send, and how.

An attack takes the address of the server and the time (of `time.monotonic`) at which it ends.
"""

import contextlib
import resource
import socket
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

from common.frames import commit_frame
from support.serve.wire_client import METADATA, OFFSET_FETCH, WireClient, frame, request

TOPIC, GROUP = "bench", "large"
MANY_CONNECTIONS = 50
DESCRIBE_GROUPS, DELETE_GROUPS = 15, 42

Attack = Callable[[str, float], None]


def connect(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), 10)


def flood(data: bytes, connections: int = 1, *, reads: bool = True) -> Attack:
    """Return an attack that sends the same bytes over and over on some connections, whenever their sockets accept them."""

    def attack(bootstrap: str, until: float) -> None:
        sockets = [connect(bootstrap) for _ in range(connections)]
        while time.monotonic() < until:
            for number, connection in enumerate(sockets):
                try:
                    connection.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        connection.send(data)
                    if reads:
                        drain(connection)
                except OSError:
                    connection.close()
                    with contextlib.suppress(OSError):
                        sockets[number] = connect(bootstrap)
            time.sleep(0.001)

    return attack


def resend(data: bytes) -> Attack:
    """Return an attack that sends one request over and over, each after the response to the previous one."""

    def attack(bootstrap: str, until: float) -> None:
        while time.monotonic() < until:
            with contextlib.suppress(OSError, EOFError), WireClient(bootstrap) as client:
                client.socket.settimeout(max(1.0, until - time.monotonic() + 30))
                while time.monotonic() < until:
                    client.socket.sendall(data)
                    client.receive()
            time.sleep(0.001)

    return attack


def drain(connection: socket.socket) -> None:
    """Read all bytes that have arrived.

    Raises:
        ConnectionResetError: The server has closed the connection.
    """
    with contextlib.suppress(BlockingIOError):
        while len(data := connection.recv(1 << 20)) == 1 << 20:
            pass
        if not data:
            raise ConnectionResetError


def send_incomplete_requests(bootstrap: str, until: float) -> None:
    """Send all bytes but the last ones of twelve requests of 100 MiB each."""
    size = 100 << 20
    sockets = [connect(bootstrap) for _ in range(12)]
    for connection in sockets:
        with contextlib.suppress(OSError):
            connection.sendall(struct.pack(">ihhih", size, METADATA, 9, 1, -1) + bytes(size - 1024))
    time.sleep(max(0.0, until - time.monotonic()))


def open_silent_connections(bootstrap: str, until: float) -> None:
    """Open connections until none is accepted any more, and send nothing."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard := resource.getrlimit(resource.RLIMIT_NOFILE)[1], hard))
    sockets = []
    with contextlib.suppress(OSError):
        while len(sockets) < 1500 and time.monotonic() < until:
            sockets.append(connect(bootstrap))
    time.sleep(max(0.0, until - time.monotonic()))


def names_frame(api: int, version: int, field: str, count: int) -> bytes:
    """Return a request with a list of empty group names."""
    values = {field: [""] * count, "include_authorized_operations": False}
    return frame(api, version, 1, request(api, version, values))


def metadata_frame() -> bytes:
    return frame(METADATA, 1, 1, request(METADATA, 1, {"topics": [{"name": TOPIC}]}))


def all_offsets_frame() -> bytes:
    return frame(OFFSET_FETCH, 5, 1, request(OFFSET_FETCH, 5, {"group_id": GROUP, "topics": None}))


def denied_frame() -> bytes:
    values = {"groups": [f"denied-{number}" for number in range(50_000)], "include_authorized_operations": False}
    return frame(DESCRIBE_GROUPS, 4, 1, request(DESCRIBE_GROUPS, 4, values))


class Case(NamedTuple):
    """An attack, and the section of the results it belongs to; `with_acl` configures an ACL file for its server."""

    section: int
    description: str
    attack: Attack
    with_acl: bool = False


def cases() -> list[Case]:
    """Return the attacks of sections 2 and 3."""
    metadata, fetch = metadata_frame() * 50, all_offsets_frame()
    return [
        Case(2, "none", lambda _, until: time.sleep(until - time.monotonic())),
        Case(2, "50 Metadata requests for 20,000 partitions, pipelined", flood(metadata)),
        Case(2, f"the same on {MANY_CONNECTIONS} connections", flood(metadata, MANY_CONNECTIONS)),
        Case(2, "200 OffsetFetch requests for all 20,000 offsets, pipelined", flood(fetch * 200)),
        Case(2, f"the same on {MANY_CONNECTIONS} connections", flood(fetch * 200, MANY_CONNECTIONS)),
        Case(2, "170 kB of them, responses not read", flood(fetch * (170_000 // len(fetch)), reads=False)),
        Case(
            2,
            f"the same on {MANY_CONNECTIONS} connections",
            flood(fetch * (170_000 // len(fetch)), MANY_CONNECTIONS, reads=False),
        ),
        Case(3, "DescribeGroups with 500,000 empty names", resend(names_frame(DESCRIBE_GROUPS, 4, "groups", 500_000))),
        Case(
            3, "DeleteGroups with 200,000 empty names", resend(names_frame(DELETE_GROUPS, 1, "groups_names", 200_000))
        ),
        Case(3, "DescribeGroups with 50,000 denied names", resend(denied_frame()), with_acl=True),
        Case(3, "12 incomplete requests of 100 MiB", send_incomplete_requests),
        Case(
            3,
            f"commits of 1,000 partitions on {MANY_CONNECTIONS} connections",
            flood(commit_frame("big", TOPIC, range(1000)) * 4, MANY_CONNECTIONS),
        ),
    ]
