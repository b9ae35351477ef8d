"""Random members of a group in simulated time: invariants after each step."""

import random
from dataclasses import dataclass, field

import pytest

from offsetlake.coordinator.classic.group import ClassicGroup, ClassicState, pending_size_bytes
from offsetlake.coordinator.classic.heartbeat import heartbeat
from offsetlake.coordinator.classic.leave import leave
from offsetlake.coordinator.classic.requests import ClassicHeartbeatRequest, JoinReply, LeaveRequest, LeavingMember
from offsetlake.coordinator.steps import Timer, TimerKind
from offsetlake.kafka.error_codes import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    MEMBER_ID_REQUIRED,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from support.coordinator.classic_host import DELAY_MS, Host, loaded

LONGEST_TIMEOUT_MS = 60_000
PROTOCOLS = [(("range", b"1"), ("sticky", b"2")), (("sticky", b"3"), ("range", b"4")), (("range", b"5"),)]


@dataclass
class Client:
    """A client that follows the protocol, except where the walk makes it fail."""

    instance_id: str | None
    version: int
    session_ms: int
    rebalance_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    alive: bool = True
    member_id: str = ""
    generation: int = -1
    join_token: int | None = None
    sync_token: int | None = None
    reply: JoinReply | None = None


@dataclass
class Walk:
    seed: int
    clients: list[Client] = field(default_factory=list)
    asked_ms: dict[int, int] = field(default_factory=dict)
    leaders: dict[tuple[int, int], str] = field(default_factory=dict)
    starts: int = 0
    generation: int = 0
    stored: tuple[int, object] = (0, None)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.host = Host(max_size=self.random.choice([4, 1000]))
        self.host.writes_later = True
        instances = [None, None, None, "a", "b", "c"]
        for instance_id in instances:
            self.clients.append(
                Client(
                    instance_id,
                    self.random.choice([0, 4, 9]) if instance_id is None else self.random.choice([5, 9]),
                    self.random.choice([6_000, 10_000, 30_000]),
                    self.random.choice([10_000, LONGEST_TIMEOUT_MS]),
                    self.random.choice(PROTOCOLS),
                )
            )

    def act(self) -> None:
        """Send the next request of one client, or cause an unexpected event."""
        client = self.random.choice(self.clients)
        chance = self.random.random()
        if self.random.random() < 0.5:
            self.write()
        if chance < 0.3:
            self.write()
            self.host.advance(self.random.choice([0, 10, 200, 2_000]))
        elif chance < 0.304:
            self.host.advance(self.random.choice([10_000, 40_000]))
            self.write()
        elif chance < 0.307:
            self.host.restart()
            self.starts += 1
            self.generation = 0
        elif chance < 0.33:
            self.misbehave(client)
        elif client.alive:
            self.continue_(client)
        elif chance < 0.5:
            client.alive = True
        self.collect()
        self.check()

    def write(self) -> None:
        self.host.write_error = NOT_COORDINATOR if self.random.random() < 0.05 else None
        self.host.write()

    def misbehave(self, client: Client) -> None:
        match self.random.randrange(7):
            case 0:  # The process dies, and forgets everything.
                client.alive = False
                client.member_id, client.reply, client.join_token, client.sync_token = "", None, None, None
            case 1:
                leaving = LeavingMember(client.member_id, client.instance_id)
                self.ask(self.host.send(leave, LeaveRequest((leaving,))))
                client.member_id, client.reply, client.join_token, client.sync_token = "", None, None, None
            case 2:
                self.send_heartbeat(client, client.generation - 1)
            case 3:
                self.ask(self.host.sync(client.member_id, self.random.choice([0, client.generation])))
            case 4:  # The reply of the first of two requests is lost.
                client.protocols = self.random.choice(PROTOCOLS)
                self.send_join(client)
            case 5:
                self.send_join(client)
            case 6:  # A static member is restarted at once.
                client.member_id, client.reply, client.join_token, client.sync_token = "", None, None, None

    def send_join(self, client: Client) -> None:
        token = self.host.join(
            client.member_id,
            client.instance_id,
            version=client.version,
            protocols=client.protocols,
            session_ms=client.session_ms,
            rebalance_ms=client.rebalance_ms,
        )
        client.join_token, client.sync_token, client.reply = self.ask(token), None, None

    def send_heartbeat(self, client: Client, generation: int) -> int:
        """Return the error code; NONE if the reply waits for records."""
        request = ClassicHeartbeatRequest(client.member_id, client.instance_id, generation)
        token = self.ask(self.host.send(heartbeat, request))
        return self.host.replies[token].error if token in self.host.replies else NONE

    def ask(self, token: int) -> int:
        self.asked_ms[token] = self.host.now_ms
        return token

    def continue_(self, client: Client) -> None:
        """Send what a client sends next."""
        if client.join_token is not None:
            self.receive_join(client)
        elif client.sync_token is not None:
            self.receive_sync(client)
        elif client.reply is None:
            self.send_join(client)
        else:
            self.follow(client, self.send_heartbeat(client, client.generation))

    def receive_join(self, client: Client) -> None:
        reply = self.host.replies.get(client.join_token or 0)
        if reply is None:
            return
        client.join_token = None
        if reply.error == MEMBER_ID_REQUIRED:
            client.member_id = reply.member_id
        elif reply.error == NONE:
            client.member_id, client.generation, client.reply = reply.member_id, reply.generation, reply
            assignments = {
                member.member_id: assignment(member.instance_id or member.member_id, reply.generation)
                for member in reply.members
                if not reply.skip_assignment
            }
            client.sync_token = self.ask(
                self.host.sync(client.member_id, client.generation, assignments, client.instance_id)
            )
        else:
            self.follow(client, reply.error)

    def receive_sync(self, client: Client) -> None:
        reply = self.host.replies.get(client.sync_token or 0)
        if reply is not None:
            client.sync_token = None
            self.follow(client, reply.error)

    def follow(self, client: Client, error: int) -> None:
        if error == NONE:
            return
        client.reply = None
        if error in {UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION}:
            client.member_id = ""
        else:
            assert error in {REBALANCE_IN_PROGRESS, NOT_COORDINATOR} or error > 0

    def collect(self) -> None:
        """Note the leader of each generation, which is the only one to receive the members."""
        for token in [token for token in self.asked_ms if token in self.host.replies]:
            del self.asked_ms[token]
            reply = self.host.replies[token]
            if isinstance(reply, JoinReply) and reply.members and not reply.skip_assignment:
                generation = (self.starts, reply.generation)
                assert self.leaders.setdefault(generation, reply.member_id) == reply.member_id == reply.leader_id

    def check(self) -> None:
        host, group = self.host, self.host.group
        assert group.generation >= self.generation
        self.generation = group.generation
        for token, asked_ms in self.asked_ms.items():
            assert host.now_ms - asked_ms <= LONGEST_TIMEOUT_MS + DELAY_MS, f"request {token} waits forever"
        check_counts(group)
        self.check_timers()
        if group.state is ClassicState.STABLE:
            for member in group.members.values():
                expected = assignment(member.instance_id or member.member_id, group.generation)
                assert member.assignment == expected
        if group.state is ClassicState.STABLE and not host.queue:
            if self.stored[0] != len(host.records):
                self.stored = (len(host.records), durable(loaded(host.step(), "g", host.records)))
            assert durable(group) == self.stored[1]
        if group.exists and group.is_empty():
            assert not group.members

    def check_timers(self) -> None:
        """Check that nothing waits without a timer that ends the wait."""
        host, group = self.host, self.host.group
        for member in group.members.values():
            if member.join_token is None and member.sync_token is None:
                assert Timer(TimerKind.SESSION, "g", member.member_id) in host.timers
        for member_id in group.pending_joins:
            assert Timer(TimerKind.SESSION, "g", member_id) in host.timers
        assert (Timer(TimerKind.JOIN, "g") in host.timers) == (group.state is ClassicState.PREPARING_REBALANCE)
        assert (Timer(TimerKind.SYNC, "g") in host.timers) == bool(group.pending_syncs)

    def finish(self) -> None:
        """Advance the clock without clients, and check that the group becomes empty and all requests are answered."""
        self.host.write_error = None
        self.host.advance(400_000)
        self.host.write()
        self.collect()
        assert not self.asked_ms
        assert self.host.group.is_empty()
        assert not self.host.timers
        assert self.host.group.size_bytes == 0


def assignment(name: str, generation: int) -> bytes:
    return f"{name} in {generation}".encode()


def check_counts(group: ClassicGroup) -> None:
    members = group.members.values()
    assert group.joins_waiting == sum(member.join_token is not None for member in members)
    assert group.static_ids == {member.instance_id: member.member_id for member in members if member.instance_id}
    assert not group.pending_joins & set(group.members)
    sizes = [*map(pending_size_bytes, group.pending_joins), *(member.size_bytes() for member in members)]
    assert group.size_bytes == sum(sizes)
    assert (group.leader_id in group.members) == bool(group.members)
    assert all(member_id == member.member_id for member_id, member in group.members.items())


def durable(group: ClassicGroup) -> object:
    members = {
        member_id: (
            member.instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.protocols[group.protocol or ""],
            member.assignment,
        )
        for member_id, member in group.members.items()
    }
    return group.generation, group.protocol_type, group.protocol, group.leader_id, members, group.subscribed_topics


def walk(seed: int, steps: int) -> Walk:
    random_walk = Walk(seed)
    for _ in range(steps):
        random_walk.act()
    random_walk.finish()
    return random_walk


@pytest.mark.parametrize("seed", range(8))
def test_random_walk(seed: int) -> None:
    walk(seed, 2_000)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
def test_long_random_walk(seed: int) -> None:
    walk(seed, 10_000)
