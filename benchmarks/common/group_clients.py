"""Members of groups for `groups.py`: requests that are encoded by hand, so that the client costs little."""

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from support.serve.wire_client import WireClient

JOIN_GROUP, HEARTBEAT, SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT = 11, 12, 14, 68
TOPIC = "bench"
SESSION_MS, REBALANCE_MS = 300_000, 300_000
_LOADING = {14, 15, 16}  # COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
IN_FLIGHT = 50  # requests on one connection
_JOIN_VERSION, _SYNC_VERSION = 3, 2  # the newest ones that need neither a member id nor flexible encoding
_NOTHING, _NULL = b"\1", b"\0"
_SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + struct.pack(">h", len(TOPIC)) + TOPIC.encode() + b"\0\0\0\4"
"""The subscription without its user data, which are 4 bytes."""

_ASSIGNMENT = b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff"


def _framed(api: int, version: int, body: bytes, *, flexible: bool) -> bytes:
    data = struct.pack(">hhih", api, version, 1, 5) + b"bench" + (b"\0" if flexible else b"") + body
    return struct.pack(">i", len(data)) + data


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


@dataclass(slots=True)
class ConsumerMember:
    """A member of a consumer group (KIP-848), which owns what it was last assigned; `owned` is as in the response."""

    group: str
    member_id: str
    topic: str = TOPIC
    epoch: int = 0
    owned: bytes = _NOTHING
    must_report: bool = True
    is_loading: bool = False

    def frame(self) -> bytes:
        """Return the next heartbeat: a join, a report of what the member owns, or one that changes nothing."""
        joins = self.epoch == 0
        parts = (
            _compact(self.group) + _compact(self.member_id) + struct.pack(">i", self.epoch) + _NULL + _NULL,
            struct.pack(">i", REBALANCE_MS if joins else -1),
            b"\2" + _compact(self.topic) if joins else _NULL,
            _NULL + _NULL + (self.owned if self.must_report else _NULL) + b"\0",
        )
        return _framed(CONSUMER_GROUP_HEARTBEAT, 1, b"".join(parts), flexible=True)

    def receive(self, answer: bytes) -> bool:
        """Apply a response; return whether it changed anything."""
        (error,) = struct.unpack_from(">h", answer, 9)
        self.is_loading = error in _LOADING
        if self.is_loading:
            return False
        assert error == 0, f"error {error} of {self.group}"
        begin = 11 + 1  # the error message is null
        begin += answer[begin]  # the member id
        (epoch,) = struct.unpack_from(">i", answer, begin)
        assigned = answer[begin + 8] == 1
        changed = assigned or epoch != self.epoch
        self.epoch, self.must_report = epoch, assigned
        if assigned:
            self.owned = answer[begin + 9 : -2]
        return changed


@dataclass(slots=True)
class ClassicMember:
    """A member of a classic group, on a connection of its own because JoinGroup waits."""

    group: str
    client: WireClient
    member_id: str = ""
    generation: int = -1
    others: list[str] = field(default_factory=list)

    def join(self) -> None:
        """Send JoinGroup, with another subscription in each generation: otherwise only the leader can rebalance."""
        subscription = _SUBSCRIPTION + struct.pack(">i", self.generation)
        body = _text(self.group) + struct.pack(">ii", SESSION_MS, REBALANCE_MS) + _text(self.member_id)
        body += _text("consumer") + b"\0\0\0\1" + _text("range") + struct.pack(">i", len(subscription)) + subscription
        self.client.socket.sendall(_framed(JOIN_GROUP, _JOIN_VERSION, body, flexible=False))

    def joined(self) -> None:
        answer = self.client.receive()
        error, self.generation = struct.unpack_from(">hi", answer, 8)
        assert error == 0, f"error {error} of {self.group}"
        at = 14
        texts = []
        for _ in range(3):  # the protocol, the leader and the member
            text, at = _read_text(answer, at)
            texts.append(text)
        self.member_id, self.others = texts[2], []
        (count,) = struct.unpack_from(">i", answer, at)
        at += 4
        for _ in range(count):
            text, at = _read_text(answer, at)
            self.others.append(text)
            at += 4 + struct.unpack_from(">i", answer, at)[0]

    def sync(self) -> None:
        """Send SyncGroup, as the leader with an assignment of each member."""
        body = _text(self.group) + struct.pack(">i", self.generation) + _text(self.member_id)
        body += struct.pack(">i", len(self.others))
        assignment = struct.pack(">i", len(_ASSIGNMENT)) + _ASSIGNMENT
        body += b"".join(_text(member) + assignment for member in self.others)
        self.client.socket.sendall(_framed(SYNC_GROUP, _SYNC_VERSION, body, flexible=False))

    def synced(self) -> None:
        (error,) = struct.unpack_from(">h", self.client.receive(), 8)
        assert error == 0, f"error {error} of {self.group}"

    def frame(self) -> bytes:
        body = _compact(self.group) + struct.pack(">i", self.generation) + _compact(self.member_id) + _NULL + b"\0"
        return _framed(HEARTBEAT, 4, body, flexible=True)


def _read_text(data: bytes, begin: int) -> tuple[str, int]:
    end = begin + 2 + struct.unpack_from(">h", data, begin)[0]
    return data[begin + 2 : end].decode(), end


def rebalance(members: Sequence[ClassicMember]) -> float:
    """Join all members and receive their assignments; return the seconds."""
    start = time.perf_counter()
    for step in (ClassicMember.join, ClassicMember.joined, ClassicMember.sync, ClassicMember.synced):
        for member in members:
            step(member)
    return time.perf_counter() - start


def beat_once(clients: Sequence[WireClient], members: Sequence[ConsumerMember]) -> int:
    """Send one heartbeat of each member, with IN_FLIGHT on each connection; return how many changed something."""
    changed = 0
    shares = [members[number :: len(clients)] for number in range(len(clients))]
    for first in range(0, max(map(len, shares)), IN_FLIGHT):
        parts = [share[first : first + IN_FLIGHT] for share in shares]
        for client, part in zip(clients, parts, strict=True):
            client.socket.sendall(b"".join(member.frame() for member in part))
        for client, part in zip(clients, parts, strict=True):
            changed += sum(member.receive(client.receive()) for member in part)
    return changed


def stabilize(clients: Sequence[WireClient], members: Sequence[ConsumerMember]) -> float:
    """Send heartbeats of all members until none is answered with a change; return the seconds."""
    start = time.perf_counter()
    while beat_once(clients, members):
        pass
    return time.perf_counter() - start


def beat_until_loaded(clients: Sequence[WireClient], members: Sequence[ConsumerMember]) -> None:
    """Send heartbeats of each member until one is answered."""
    while members:
        beat_once(clients, members)
        members = [member for member in members if member.is_loading]


class Pace:
    """Sends one frame at a time at a constant rate, each on the connection of its member, and checks the responses."""

    def __init__(self, frames: Iterable[tuple[socket.socket, bytes]]) -> None:
        self._frames = list(frames)
        self._poll = select.epoll()
        self._sent = {connection.fileno(): deque[float]() for connection, _ in self._frames}
        self._connections = {connection.fileno(): connection for connection, _ in self._frames}
        for number in self._sent:
            self._poll.register(number, select.EPOLLIN)

    def run(self, rate: int, seconds: float) -> list[float]:
        """Return the latencies in seconds, sorted, each from the time at which the request was due."""
        latencies: list[float] = []
        start, count, number = time.perf_counter(), round(rate * seconds), 0
        while len(latencies) < count:
            now = time.perf_counter()
            while number < count and (due := start + number / rate) <= now:
                connection, frame = self._frames[number % len(self._frames)]
                self._sent[connection.fileno()].append(due)
                connection.sendall(frame)
                number += 1
            for ready, _ in self._poll.poll(max(0.0, start + number / rate - time.perf_counter())):
                self._receive(ready, latencies)
        return sorted(latencies)

    def _receive(self, ready: int, latencies: list[float]) -> None:
        data, now, begin = self._connections[ready].recv(1 << 16), time.perf_counter(), 0
        while begin < len(data):
            size, error = struct.unpack_from(">i9xh", data, begin)
            assert error == 0, f"error {error}"
            begin += 4 + size
            latencies.append(now - self._sent[ready].popleft())
