"""Randomly broken requests of every API and version: the server keeps serving, without tracebacks or memory leaks.

The longest test sends 20,000 frames, and prints the latencies of a second client that fetches offsets meanwhile.
"""

import json
import random
import socket
import struct
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from offsetlake.auth.credentials import Credentials
from serve.protocol.test_garbage import resident
from support.serve import latency_probe
from support.serve.broker_comparison import TOPICS
from support.serve.kio_requests import ask, connected, request
from support.serve.malformed_requests import Layout
from support.serve.secured import SASL_AUTHENTICATE, SASL_HANDSHAKE, scram_first
from support.serve.serving import Serving
from support.serve.valid_requests import API_VERSIONS, entity, plain_entity

pytestmark = pytest.mark.slow

OPEN_CONNECTIONS = 50
MAX_GROWTH_BYTES = 64 << 20
NO_PERMISSIONS = '[[acl]]\nprincipal = "User:somebody"\ngroup = "nothing"\npermissions = ["read"]\n'
API_VERSIONS_KEY = 18


def broken_requests(seed: int) -> Iterator[bytes]:
    """Yield frames, with their sizes, of every API and version in turn; most of the requests are broken."""
    rng = random.Random(seed)
    while True:
        for api, version in API_VERSIONS:
            ordinary = rng.random() < 0.5
            layout = Layout(api, version, plain_entity(api, version) if ordinary else entity(api, version, rng))
            data = bytes(layout.data)
            if rng.random() < 0.5:
                _, data = rng.choice([*layout.mutations()])
            yield altered(data, rng)


def altered(data: bytes, rng: random.Random) -> bytes:
    """Return a frame with its size, in which some bytes and sometimes the size are wrong."""
    broken = bytearray(data)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 5))):
        rng.choice((_flip, _flip, _overwrite, _cut, _insert))(broken, rng)
    size = len(broken) if rng.random() < 0.95 else rng.choice((rng.getrandbits(31), rng.randrange(200), -1))
    return struct.pack(">i", size) + bytes(broken)


def _flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randrange(1, 4)):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(data: bytearray, rng: random.Random) -> None:
    number = bytes.fromhex(rng.choice(("ffff", "7fffffff", "ffffffff0f", "ffffffff07", "8080", "00000000")))
    start = rng.randrange(len(data) + 1)
    data[start : start + len(number)] = number


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _insert(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    data[start:start] = rng.randbytes(rng.randrange(1, 9))


def send(serving: Serving, frames: Iterator[bytes], count: int) -> Counter[str]:
    """Send each frame over a separate connection, some at once; return how many connections received a response."""
    outcomes: Counter[str] = Counter()
    connections: deque[socket.socket] = deque()
    for _ in range(count):
        connection = connected(serving.bootstrap)
        connections.append(connection)
        try:
            connection.sendall(next(frames))
        except OSError:  # the server has reset the connection
            outcomes["reset while sending"] += 1
        if len(connections) == OPEN_CONNECTIONS:
            outcomes[_end_of(connections.popleft())] += 1
    for connection in connections:
        outcomes[_end_of(connection)] += 1
    return outcomes


def _end_of(connection: socket.socket) -> str:
    """Read until the server closes the connection, which it does at the latest when the client shuts it down."""
    received = 0
    with connection:
        try:
            connection.shutdown(socket.SHUT_WR)
            while data := connection.recv(1 << 16):
                received += len(data)
        except OSError:  # the connection was reset
            pass
    return "answered" if received else "closed"


@contextmanager
def unharmed(folder: Path, **settings: Any) -> Iterator[Serving]:
    """Run a server; check at the end that it still serves, logged no traceback, and has not grown."""
    with Serving(folder / "lake", folder / "log", **settings) as serving:
        before = resident(serving)
        yield serving
        assert ask(serving.bootstrap, API_VERSIONS_KEY, 0)["error_code"] == 0
        growth = resident(serving) - before
        print(f"resident memory grew by {growth / (1 << 20):.1f} MiB")  # noqa: T201 - shown if the test fails
        assert growth < MAX_GROWTH_BYTES
    assert serving.process.returncode == 0
    assert not [line for line in serving.said if "Traceback" in line or "internal error" in line or "Fatal" in line]


@pytest.mark.long
def test_server_survives_broken_requests(tmp_path: Path) -> None:
    with unharmed(tmp_path) as serving:
        outcomes = send(serving, broken_requests(1), 3500)
    assert min(outcomes["answered"], outcomes["closed"]) > 500, outcomes


@pytest.mark.long
def test_server_survives_broken_requests_without_permissions(tmp_path: Path) -> None:
    acl = tmp_path / "acl.toml"
    acl.write_text(NO_PERMISSIONS)
    with unharmed(tmp_path, acl=str(acl)) as serving:
        outcomes = send(serving, broken_requests(2), 1000)
    assert min(outcomes["answered"], outcomes["closed"]) > 100, outcomes


@pytest.mark.long
def test_server_survives_broken_requests_before_login(tmp_path: Path) -> None:
    known = Credentials()
    known.add_user("billing", "secret")
    known.write(tmp_path / "credentials.json")
    with unharmed(tmp_path, credentials=str(tmp_path / "credentials.json")) as serving:
        frames = (frame for frame in broken_requests(3) if frame[4:6] in {b"\0\x11", b"\0\x12", b"\0\x24"})
        outcomes = send(serving, frames, 300) + send(serving, broken_logins(3), 200)
    assert outcomes["answered"] > 50, outcomes


def broken_logins(seed: int) -> Iterator[bytes]:
    """Yield frames of SaslHandshake and SaslAuthenticate with a broken SCRAM message."""
    rng = random.Random(seed)
    handshake = request(SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})
    while True:
        message = bytearray(scram_first("billing"))
        for _ in range(rng.choice((0, 1, 2, 5))):
            rng.choice((_flip, _overwrite, _cut, _insert))(message, rng)
        authenticate = request(SASL_AUTHENTICATE, rng.randrange(3), {"auth_bytes": bytes(message)})
        yield b"".join(struct.pack(">i", len(data)) + data for data in (handshake, authenticate))


@pytest.mark.long
def test_server_survives_20_000_broken_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Topics are configured, so that requests for all topics stay small whatever was committed."""
    with unharmed(tmp_path, topics=TOPICS) as serving, second_client(serving) as latencies:
        outcomes = send(serving, broken_requests(4), 20_000)
    with capsys.disabled():
        print(f"\n20,000 frames: {dict(outcomes)}; a second client, ms: {latencies}")  # noqa: T201 - a measurement
    assert min(outcomes["answered"], outcomes["closed"]) > 1_000


@contextmanager
def second_client(serving: Serving) -> Iterator[dict[str, float]]:
    """Fetch offsets every few milliseconds in a separate process; the latencies are available at the end."""
    latencies: dict[str, float] = {}
    command = [sys.executable, str(Path(latency_probe.__file__)), serving.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield latencies
        out, _ = process.communicate()
    latencies |= json.loads(out)
