"""Members of both protocols that join, die, return with the other protocol and revoke late: invariants and an end."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from offsetlake.coordinator.classic.group import ClassicGroup
from offsetlake.coordinator.classic.requests import LeaveRequest, LeavingMember
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.requests import ConsumerHeartbeatRequest
from offsetlake.coordinator.migration import requests
from offsetlake.kafka import error_codes
from offsetlake.rules.groups.records import GroupRecord, replay
from offsetlake.rules.groups.state import GroupState
from support.coordinator.consumer_groups import GROUP
from support.coordinator.mixed_groups import MixedHost, assignment

NAMES = ("t1", "t2", "t3")
INDEXES = ("subscriptions", "static_members", "classic_members", "classic_protocols", "partition_epochs", "targets")
Partitions = dict[str, list[int]]


def _decoded(blob: bytes) -> Partitions:
    """Return the partitions in a ConsumerProtocolAssignment by topic name."""
    offset, topics = 6, {}
    for _ in range(int.from_bytes(blob[2:6])):
        length = int.from_bytes(blob[offset : offset + 2])
        name, offset = blob[offset + 2 : offset + 2 + length].decode(), offset + 2 + length
        count = int.from_bytes(blob[offset : offset + 4])
        numbers = range(offset + 4, offset + 4 + 4 * count, 4)
        topics[name], offset = [int.from_bytes(blob[at : at + 4]) for at in numbers], offset + 4 + 4 * count
    return topics


@dataclass
class Client:
    """A consumer that joins with either protocol; it is as late as chance wants until it is `orderly`."""

    host: MixedHost
    rng: Random
    number: int
    instance_id: str | None
    alive: bool = False
    orderly: bool = False
    classic: bool = False
    member_id: str = ""
    epoch: int = 0
    phase: str = "join"
    token: int | None = None
    owned: Partitions = field(default_factory=dict)
    assigned: Partitions = field(default_factory=dict)
    lives: int = 0

    def start(self, *, classic: bool) -> None:
        self.lives += 1
        self.alive, self.classic = True, classic
        self.fenced()

    def fenced(self) -> None:
        self.lives += 1
        self.member_id = "" if self.classic else f"c{self.number}-{self.lives}"
        self.epoch, self.phase, self.token, self.owned, self.assigned = 0, "join", None, {}, {}

    def stop(self) -> None:
        """Leave, or die; a client that waits for its assignment only dies."""
        self.alive = False
        if self.rng.random() < 0.5 or self.phase == "wait":
            return
        if self.classic:
            self.host.leave(self.member_id, self.instance_id)
        elif self.epoch:
            epoch = -1 if self.instance_id is None else self.rng.choice([-1, -2])
            self.host.send(self.member_id, epoch, instance_id=self.instance_id)

    def act(self) -> None:
        if not self.classic:
            self._beat()
        elif self.token is not None:
            self._receive()
        elif self.phase == "join":
            reply = self.host.join(self.member_id, self.instance_id, topics=NAMES, owned=self.owned)
            self.token = self.host.tokens
            if reply is not None:
                self._receive()
        elif self.phase == "sync":
            self._sync()
        else:
            self._error(self.host.beat(self.member_id, self.epoch, self.instance_id))

    def _receive(self) -> None:
        reply = self.host.replies.get(self.token or 0)
        if reply is None:
            return
        self.token = None
        if reply.error:
            self.member_id = reply.member_id if reply.error == error_codes.MEMBER_ID_REQUIRED else self.member_id
            self._error(reply.error)
        elif self.phase == "wait":
            self.owned, self.phase = _decoded(reply.assignment), "stable"
        else:
            self.member_id, self.epoch, self.joined, self.phase = reply.member_id, reply.generation, reply, "sync"

    def _sync(self) -> None:
        assigned: dict[str, Partitions] = {member.member_id: {} for member in self.joined.members}
        if assigned and not self.joined.skip_assignment:
            names = sorted(assigned)
            for topic, count in self.host.topics.sizes.items():
                for partition in range(count):
                    assigned[names[partition % len(names)]].setdefault(topic, []).append(partition)
        blobs = {member_id: assignment(topics) for member_id, topics in assigned.items()}
        self.phase = "wait"
        self.host.sync(self.member_id, self.epoch, blobs, self.instance_id)
        self.token = self.host.tokens
        self._receive()

    def _error(self, error: int) -> None:
        match error:
            case error_codes.NONE:
                pass
            case error_codes.REBALANCE_IN_PROGRESS | error_codes.ILLEGAL_GENERATION | error_codes.MEMBER_ID_REQUIRED:
                if self.orderly or self.rng.random() < 0.8:
                    self.phase = "join"
                    self.owned = {topic: part for topic, numbers in self.owned.items() if (part := numbers[::2])}
                    self.owned = {} if self.orderly else self.owned
            case error_codes.UNKNOWN_MEMBER_ID:
                self.fenced()
            case error_codes.FENCED_INSTANCE_ID:
                self.alive = False
            case _:
                pytest.fail(f"unexpected error code {error}")

    def _beat(self) -> None:
        ids = self.host.topics.ids
        fields: dict[str, Any] = {"owned": {ids[topic]: frozenset(numbers) for topic, numbers in self.owned.items()}}
        if self.epoch == 0:
            fields = {"subscribed_topics": NAMES, "rebalance_timeout_ms": 15_000}
        response, _ = self.host.send(self.member_id, self.epoch, instance_id=self.instance_id, **fields)
        match response.error_code:
            case error_codes.NONE:
                self.epoch = response.member_epoch
                if response.assignment is not None:
                    names = {topic_id: name for name, topic_id in ids.items()}
                    self.assigned = {names[topic]: sorted(numbers) for topic, numbers in response.assignment.items()}
                if self.orderly or self.rng.random() < 0.8:
                    self.owned = self.assigned
            case error_codes.UNRELEASED_INSTANCE_ID:
                self.alive = False
            case (
                error_codes.FENCED_MEMBER_EPOCH
                | error_codes.UNKNOWN_MEMBER_ID
                | error_codes.FENCED_INSTANCE_ID
                | error_codes.GROUP_ID_NOT_FOUND
            ):
                self.fenced()
            case error:
                pytest.fail(f"unexpected error code {error}")


def _check_invariants(host: MixedHost, epoch: int) -> int:
    """Check a group after a step, and return its epoch or generation, which never decreases while it has members."""
    group = host.group
    if isinstance(group, ClassicGroup):
        assert group.joins_waiting == sum(member.join_token is not None for member in group.members.values())
        assert {*group.static_ids.values()} <= group.members.keys()
        assert group.generation >= epoch
        return group.generation
    owners: dict[tuple[str, int], str] = {}
    for member in group.members():
        for assigned in (member.assigned, member.pending_revocation):
            for topic, partitions in assigned.items():
                for partition in partitions:
                    assert owners.setdefault((topic, partition), member.member_id) == member.member_id
        assert member.epoch <= group.state.epoch
    loaded = ConsumerGroup(GROUP, GroupState.from_dict(group.state.to_dict()))
    for name in INDEXES:
        assert getattr(group, name) == getattr(loaded, name), name
    assert group.state.epoch >= epoch
    next_epoch: int = group.state.epoch
    return next_epoch


def _previous_epoch(host: MixedHost, epoch: int) -> int:
    """Return the epoch below which a step must not set that of the group; an empty group can be replaced."""
    classic = isinstance(host.group, ClassicGroup)
    is_empty = host.group.is_empty() if classic else not host.group.state.members
    return 0 if is_empty else epoch


def _check_log(host: MixedHost) -> None:
    """Check that a broker which loads the log has the same members, of a group of the same type."""
    state = None
    for record in host.log:
        state = replay(state, GroupRecord(-1, -1, None, record.type, record.key, record.value))
    if isinstance(host.group, ConsumerGroup):
        assert (state.to_dict() if state else None) == (host.group.state.to_dict() if host.group.exists else None)
    else:
        assert state is not None
        assert state.group_type == "classic"


def _failed_append(host: MixedHost, rng: Random) -> None:
    """Send a request whose records cannot be appended: a join or a leave that may convert the group."""
    consumer, before = isinstance(host.group, ConsumerGroup), host.group
    state = host.group.state.to_dict() if consumer else [*host.group.members]
    if rng.random() < 0.5:
        request = ConsumerHeartbeatRequest(
            GROUP, "failed", 0, subscribed_topics=NAMES, owned={}, rebalance_timeout_ms=9
        )
        host.fail(requests.consumer_heartbeat, request)
    elif consumer:
        members = [LeavingMember(member_id) for member_id in host.group.state.members]
        host.fail(requests.leave, LeaveRequest(tuple(member for member in members if rng.random() < 0.7)))
    assert host.group is before
    assert state == (host.group.state.to_dict() if consumer else [*host.group.members])


def _walk(seed: int, steps: int) -> set[str]:
    rng, host = Random(seed), MixedHost()
    for name in NAMES:
        host.topics.create(name, rng.randint(1, 5))
    count = rng.randint(2, 6)
    clients = [Client(host, rng, number, f"i{number}" if rng.random() < 0.3 else None) for number in range(count)]
    share, epoch, seen = rng.random(), 0, set()
    for _ in range(steps):
        action, client = rng.random(), rng.choice(clients)
        epoch = _previous_epoch(host, epoch)
        if action < 0.02:
            share = rng.choice([0.0, 0.5, 1.0])
        elif action < 0.04 and not any(other.token for other in clients):
            _failed_append(host, rng)
        elif action < 0.2:
            host.advance(rng.choice([1, 1_000, 5_000, 20_000]))
        elif not client.alive:
            client.start(classic=rng.random() < share)
        elif action < 0.25:
            client.stop()
        else:
            client.act()
        epoch = _check_invariants(host, epoch)
        seen.add(type(host.group).__name__)
        if isinstance(host.group, ConsumerGroup) and host.group.classic_members:
            seen.add("mixed")
    _check_log(host)
    _check_end(host, clients, epoch)
    return seen


def _check_end(host: MixedHost, clients: list[Client], epoch: int) -> None:
    """Run the clients that are alive, and check that the group becomes stable and all partitions have one owner."""
    for client in clients:
        client.orderly = True
    for _ in range(60):
        host.advance(1_500)
        for client in clients:
            epoch = _previous_epoch(host, epoch)
            if client.alive:
                client.act()
            epoch = _check_invariants(host, epoch)
    alive = [client for client in clients if client.alive]
    _check_log(host)
    if not alive:
        return
    members = host.group.members if isinstance(host.group, ClassicGroup) else host.group.state.members
    assert members.keys() == {client.member_id for client in alive}
    owned = [(topic, number) for client in alive for topic, numbers in client.owned.items() for number in numbers]
    assert sorted(owned) == sorted((topic, number) for topic in NAMES for number in range(host.topics.sizes[topic]))
    assert isinstance(host.group, ConsumerGroup) or all(client.classic for client in alive)


@pytest.mark.parametrize("seed", range(15))
def test_random_walk(seed: int) -> None:
    _walk(seed, steps=150)


@pytest.mark.long
def test_many_random_walks() -> None:
    seen = [_walk(seed, steps=300) for seed in range(1_000, 1_250)]
    assert sum(len(types) == 3 for types in seen) > 125  # groups that were converted, with members of both protocols
