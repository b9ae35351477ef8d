"""Offsets of a consumer group that are set while its members run."""

from random import Random
from typing import Any

import pytest

from offsetlake.coordinator import groups
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.heartbeat import heartbeat
from offsetlake.coordinator.consumer.requests import ConsumerHeartbeatRequest
from offsetlake.coordinator.groups import Committer, commit_error
from offsetlake.coordinator.rewind import IN_PROGRESS, NOT_WRITTEN, RewindReply
from offsetlake.coordinator.steps import Record, Step
from offsetlake.kafka.error_codes import NONE, NOT_COORDINATOR, STALE_MEMBER_EPOCH, UNKNOWN_MEMBER_ID
from support.coordinator.consumer_groups import GROUP, Host
from support.coordinator.rewinds import offset, offsets_in, rewind

Partitions = dict[str, frozenset[int]]
REBALANCE_MS, SESSION_MS = 5_000, 45_000


class RewindHost(Host):
    """A host whose steps settle rewinds, as those of the serving process do, with clients that follow the protocol."""

    def __init__(self) -> None:
        super().__init__()
        self.topic = self.topics.create("t", 4)
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Partitions] = {}
        self.assigned: dict[str, Partitions] = {}
        self.rewinds: dict[int, RewindReply] = {}
        self.failing = False

    def run(self, step: Step) -> list[Record]:
        groups.settle_rewind(step, self.group)
        self._collect(step)
        if self.failing and step.records:
            undone = self.step()
            for undo in reversed(step.undo):
                undo(undone, NOT_COORDINATOR)
            self._collect(undone)
            self.replies |= dict(step.replies)
            return []
        return super().run(step)

    def start(self, token: int, partition: int = 0, committed: int = 7) -> None:
        step = self.step()
        groups.start_rewind(step, self.group, rewind(token, offset("t", partition, committed)))
        self.run(step)

    def answer(self, token: int) -> RewindReply | None:
        return self.rewinds.get(token)

    def forget(self, name: str) -> None:
        """Make a client abandon its partitions."""
        self.epochs.pop(name, None)
        self.owned.pop(name, None)

    def _collect(self, step: Step) -> None:
        self.rewinds |= {token: reply for token, reply in step.replies if isinstance(reply, RewindReply)}

    def beat(self, name: str, *, revokes: bool = True, **fields: Any) -> Partitions:
        """Send a heartbeat of a client, which revokes at once unless it is late; return what it owns."""
        epoch, owned = self.epochs.get(name, 0), self.owned.get(name, {})
        if epoch == 0:
            fields = {"subscribed_topics": ("t",), "rebalance_timeout_ms": REBALANCE_MS, "owned": {}} | fields
        else:
            fields = {"owned": owned} | fields
        step = self.step()
        heartbeat(
            step, self.group, ConsumerHeartbeatRequest(GROUP, name, epoch, **fields), token=-len(self.replies) - 1
        )
        response: Any = step.replies[0][1]
        self.run(step)
        assert response.error_code == NONE, response
        self.epochs[name] = response.member_epoch
        if response.assignment is not None:
            self.assigned[name] = dict(response.assignment)
        self.owned[name] = self.assigned[name] if revokes else owned
        return self.owned[name]

    def settled(self, *names: str) -> None:
        """Send heartbeats of clients until nothing changes."""
        for _ in range(6):
            for name in names:
                self.beat(name)

    def numbers(self, name: str) -> set[int]:
        return set(self.owned[name].get(self.topic, ()))

    def commit(self, name: str, epoch: int) -> int:
        return commit_error(self.group, Committer(name, None, epoch), 9, transactional=False)

    def crash(self) -> None:
        """Stop, and load the group from the log."""
        self.group = ConsumerGroup(GROUP)
        self.group.apply(record for record in self.log if record.type != 1)
        self.timers.clear()


def two_members() -> tuple[RewindHost, str, str]:
    """Return a group of two members; the first one owns partition 0."""
    host = RewindHost()
    host.settled("a", "b")
    assert host.numbers("a") | host.numbers("b") == {0, 1, 2, 3}
    first, second = ("a", "b") if 0 in host.numbers("a") else ("b", "a")
    return host, first, second


def test_owner_revokes_then_the_offsets_are_written_and_the_partition_is_assigned_again() -> None:
    host, owner, other = two_members()
    epoch, kept = host.epochs[owner], host.numbers(owner) - {0}
    host.start(-101_000)
    host.beat(other)
    assert host.answer(-101_000) is None
    host.beat(owner, revokes=False)
    assert host.epochs[owner] == epoch, "it may commit until it has revoked"
    assert host.commit(owner, epoch) == NONE
    host.beat(owner, revokes=False)
    assert host.answer(-101_000) is None
    host.owned[owner] = {host.topic: frozenset(kept)}
    host.beat(owner)
    assert host.answer(-101_000) == RewindReply()
    assert offsets_in(host.log) == {("t", 0): 7}
    assert host.commit(owner, epoch) == STALE_MEMBER_EPOCH
    host.settled(owner, other)
    assert host.numbers(owner) | host.numbers(other) == {0, 1, 2, 3}
    assert kept <= host.numbers(owner), "the other partitions stay"
    assert host.group.state.epoch == host.group.state.assignment_epoch


def test_member_that_does_not_revoke_is_removed_within_the_limit() -> None:
    host, owner, other = two_members()
    epoch, limit_ms = host.epochs[owner], groups.rewind_limit_ms(host.group, host.settings)
    host.start(-101_000)
    host.beat(owner, revokes=False)
    host.advance(REBALANCE_MS)
    assert host.answer(-101_000) == RewindReply()
    assert host.commit(owner, epoch) == UNKNOWN_MEMBER_ID
    assert limit_ms == REBALANCE_MS + SESSION_MS
    host.settled(other)
    assert host.numbers(other) == {0, 1, 2, 3}


def test_member_without_heartbeats_is_removed_after_its_session() -> None:
    host, _owner, other = two_members()
    host.start(-101_000)
    for _ in range(SESSION_MS // REBALANCE_MS):
        host.beat(other)
        host.advance(REBALANCE_MS)
    assert host.answer(-101_000) == RewindReply()


def test_partition_without_an_owner_is_set_at_once() -> None:
    host, _, _ = two_members()
    before = host.group.state.epoch
    host.start(-101_000, partition=99)
    assert host.answer(-101_000) == RewindReply()
    assert host.group.state.epoch == before


def test_offsets_are_written_when_all_members_leave() -> None:
    host, owner, other = two_members()
    host.start(-101_000)
    host.send(owner, -1)
    assert host.answer(-101_000) == RewindReply()
    host.send(other, -1)
    host.start(-102_000, committed=8)
    assert host.answer(-102_000) == RewindReply()
    assert offsets_in(host.log) == {("t", 0): 8}


def test_only_one_rewind_at_a_time() -> None:
    host, owner, other = two_members()
    host.start(-101_000)
    host.start(-102_000, committed=9)
    assert host.answer(-102_000) == RewindReply(IN_PROGRESS)
    host.settled(owner, other)
    assert host.answer(-101_000) == RewindReply()
    assert offsets_in(host.log) == {("t", 0): 7}


def test_member_that_joins_meanwhile_does_not_get_the_partition_before_the_offsets() -> None:
    host, owner, other = two_members()
    host.start(-101_000)
    host.beat(owner, revokes=False)
    for name in ("c", other, "c", other, "c"):
        host.beat(name)
        assert 0 not in host.numbers(name)
    assert host.answer(-101_000) is None
    host.owned[owner] = {host.topic: frozenset(host.numbers(owner) - {0})}
    host.settled(owner, other, "c")
    assert host.answer(-101_000) == RewindReply()
    owned = [host.numbers(name) for name in (owner, other, "c")]
    assert sorted(number for numbers in owned for number in numbers) == [0, 1, 2, 3]


def test_static_member_that_has_left_has_revoked_its_partitions() -> None:
    host = RewindHost()
    for name in ("a", "b", "a", "b"):
        host.beat(name, instance_id=name)
    owner = "a" if 0 in host.numbers("a") else "b"
    host.send(owner, -2, instance_id=owner)
    host.start(-101_000)
    assert host.answer(-101_000) == RewindReply()


@pytest.mark.parametrize("revoked", [False, True])
def test_restart_ends_the_rewind_and_all_partitions_are_assigned(*, revoked: bool) -> None:
    host, owner, other = two_members()
    host.start(-101_000)
    host.beat(other)
    host.beat(owner, revokes=revoked)
    host.crash()
    host.settled(owner, other)
    assert host.answer(-101_000) is None
    assert offsets_in(host.log) == {}
    assert host.numbers(owner) | host.numbers(other) == {0, 1, 2, 3}
    assert not host.numbers(owner) & host.numbers(other)


@pytest.mark.parametrize("at_the_start", [True, False])
def test_failed_write_leaves_the_offsets(*, at_the_start: bool) -> None:
    host, owner, other = two_members()
    host.failing = at_the_start
    host.start(-101_000)
    if at_the_start:
        assert host.answer(-101_000) == RewindReply(NOT_WRITTEN)
    else:
        host.beat(owner)
        host.failing = True
        host.send(owner, -1)
        assert host.answer(-101_000) is not None
    host.failing = False
    assert host.group.rewind is None
    assert offsets_in(host.log) == {}
    host.settled(owner, other)
    assert host.numbers(owner) | host.numbers(other) == {0, 1, 2, 3}


def walk(seed: int, steps: int) -> None:
    """Set offsets again and again while members join, leave, die and revoke late."""
    rng, host = Random(seed), RewindHost()
    names = [f"m{number}" for number in range(4)]
    alive: set[str] = set()
    for token in range(steps):
        name = rng.choice(names)
        choice = rng.random()
        if choice < 0.1:
            host.start(1_000_000 + token, rng.randrange(4), token)
        elif choice < 0.15 and name in alive:
            alive.discard(name)
            host.forget(name)
            host.send(name, -1)
        elif choice < 0.2:
            host.advance(rng.choice([100, REBALANCE_MS]))
            for gone in alive - host.group.state.members.keys():
                host.forget(gone)
            alive &= host.group.state.members.keys()
        else:
            alive.add(name)
            host.beat(name, revokes=rng.random() < 0.7)
        owned = [(name, number) for name in alive for number in host.owned.get(name, {}).get(host.topic, ())]
        assert len({number for _, number in owned}) == len(owned), "a partition has two owners"
    while alive != set(names) or host.group.rewind is not None:
        for name in names:
            alive.add(name)
            host.beat(name)
    host.settled(*names)
    assert sorted(number for name in names for number in host.numbers(name)) == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(5))
def test_random_walk(seed: int) -> None:
    walk(seed, 300)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5, 25))
def test_long_random_walk(seed: int) -> None:
    walk(seed, 5_000)
