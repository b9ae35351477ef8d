"""Members that subscribe, die, return and revoke late, while topics change: invariants of every step, and an end.

The clients of the walk follow the protocol as the Java consumer does, but each of them may stop at any time.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.heartbeat import heartbeat
from offsetlake.coordinator.consumer.requests import ConsumerHeartbeatRequest
from offsetlake.kafka import error_codes
from offsetlake.rules.groups.records import GroupRecord, replay
from support.coordinator.consumer_groups import GROUP, Host

NAMES = ("t1", "t2", "t3", "u1")
EXPRESSIONS = ("t.*", "t[12]", ".1")
FENCED = {error_codes.FENCED_MEMBER_EPOCH, error_codes.UNKNOWN_MEMBER_ID, error_codes.FENCED_INSTANCE_ID}
INDEXES = (
    "subscriptions",
    "static_members",
    "assignors",
    "partition_epochs",
    "targets",
    "target_owners",
    "target_sizes",
    "stable_members",
    "topics_of",
)


@dataclass
class Client:
    """A consumer: it revokes what it is told to at once or late, and rejoins when it is fenced."""

    host: Host
    number: int
    rng: Random
    instance_id: str | None
    life: int = 0
    epoch: int = 0
    owned: dict[str, frozenset[int]] = field(default_factory=dict)
    assigned: dict[str, frozenset[int]] = field(default_factory=dict)
    subscription: dict[str, Any] = field(default_factory=dict)
    is_new: bool = True
    alive: bool = False

    def start(self) -> None:
        self.life += 1
        self.epoch, self.owned, self.alive = 0, {}, True
        if self.instance_id is None or not self.subscription:
            self.subscribe()

    def subscribe(self) -> None:
        names = tuple(self.rng.sample(NAMES, self.rng.randint(0, len(NAMES))))
        self.subscription = {"subscribed_topics": names, "subscribed_regex": ""}
        if self.rng.random() < 0.4:
            self.subscription = {"subscribed_topics": (), "subscribed_regex": self.rng.choice(EXPRESSIONS)}
        self.is_new = True

    def beat(self) -> None:
        """Send a heartbeat and do what the response says; a late client keeps what it should revoke for a while."""
        member_id = f"c{self.number}-{self.life}"
        fields: dict[str, Any] = {"owned": self.owned, "instance_id": self.instance_id}
        if self.epoch == 0 or self.is_new:
            fields |= {"rebalance_timeout_ms": 20_000, **self.subscription}
        response, _ = self.host.send(member_id, self.epoch, **fields)
        if response.error_code in FENCED:
            self.epoch, self.owned, self.life = 0, {}, self.life + (self.instance_id is not None)
        elif response.error_code == error_codes.NONE:
            self.is_new = False
            self.epoch = response.member_epoch
            self.assigned = dict(response.assignment) if response.assignment is not None else self.assigned
            if self.rng.random() < 0.7:
                self.owned = self.assigned
        else:
            assert response.error_code == error_codes.UNRELEASED_INSTANCE_ID

    def stop(self) -> None:
        """Leave for good, leave for a while if the member is static, or die."""
        self.alive = False
        epochs = [-1] if self.instance_id is None else [-1, -2]
        if self.rng.random() < 0.6 and self.epoch > 0:
            self.host.send(f"c{self.number}-{self.life}", self.rng.choice(epochs), instance_id=self.instance_id)


def _check_invariants(group: ConsumerGroup, epochs: tuple[int, int]) -> tuple[int, int]:
    owners: dict[tuple[str, int], str] = {}
    for member in group.members():
        for assignment in (member.assigned, member.pending_revocation):
            for topic, partitions in assignment.items():
                for partition in partitions:
                    assert owners.setdefault((topic, partition), member.member_id) == member.member_id
        assert member.epoch <= group.state.epoch
    targets = [(topic, number) for target in group.targets.values() for topic in target for number in target[topic]]
    assert len(targets) == len(set(targets))
    assert (group.state.epoch, group.state.assignment_epoch) >= epochs
    assert group.state.assignment_epoch <= group.state.epoch
    assert group.state_name() == group.state.state_name()
    return group.state.epoch, group.state.assignment_epoch


def _check_replay(host: Host) -> None:
    group, state = ConsumerGroup(GROUP), None
    group.apply(host.log)
    for record in host.log:
        state = replay(state, GroupRecord(-1, -1, None, record.type, record.key, record.value))
    assert state is not None
    assert state.to_dict() == group.state.to_dict() == host.group.state.to_dict()
    loaded = ConsumerGroup(GROUP, host.group.state)
    for name in INDEXES:
        assert getattr(group, name) == getattr(host.group, name) == getattr(loaded, name), name


def _failed_append(host: Host, rng: Random) -> None:
    """Run a step whose records cannot be appended."""
    before = host.group.state.to_dict()
    step = host.step()
    members = [*host.group.state.members]
    member_id = rng.choice([*members, "new"])
    member = host.group.member(member_id)
    epoch = 0 if member is None else rng.choice([0, -1, member.epoch])
    regex = rng.choice([None, *EXPRESSIONS])
    instance_id = None if member is None else member.instance_id
    request = ConsumerHeartbeatRequest(GROUP, member_id, epoch, instance_id, None, 1, NAMES[:2], regex, None, {})
    heartbeat(step, host.group, request, token=1)
    for undo in reversed(step.undo):
        undo(step, 16)
    assert host.group.state.to_dict() == before


def _change_topics(host: Host, rng: Random) -> None:
    """Create or delete a topic, or add partitions to one."""
    missing = [name for name in NAMES if name not in host.topics.sizes]
    if rng.random() < 0.4 and host.topics.sizes:
        name = rng.choice([*host.topics.sizes])
        host.topics.extend(name, host.topics.sizes[name] + rng.randint(1, 4))
    elif missing:
        host.topics.create(rng.choice(missing), rng.randint(1, 9))
    else:
        host.topics.delete(rng.choice(NAMES))
    host.change_topics()


def _walk(seed: int, steps: int) -> None:
    rng, host = Random(seed), Host()
    host.topics.create("t1", 3)
    clients = [
        Client(host, number, rng, f"i{number}" if rng.random() < 0.4 else None) for number in range(rng.randint(1, 6))
    ]
    epochs = (0, 0)
    for _ in range(steps):
        action, client = rng.random(), rng.choice(clients)
        if action < 0.06:
            _change_topics(host, rng)
        elif action < 0.08:
            _failed_append(host, rng)
        elif action < 0.25:
            host.advance(rng.choice([1, 1_000, 5_000, 25_000]))
        elif not client.alive:
            client.start()
        elif action < 0.29:
            client.stop()
        elif action < 0.33:
            client.subscribe()
        else:
            client.beat()
        if host.group.exists:
            epochs = _check_invariants(host.group, epochs)
    _check_end(host, clients, epochs)
    _check_replay(host)


def _check_end(host: Host, clients: list[Client], epochs: tuple[int, int]) -> None:
    """Run the clients that are alive until the others are fenced, and check that nothing changes any more."""
    alive = [client for client in clients if client.alive]
    for _ in range(40):
        host.advance(2_500)
        for client in alive:
            client.beat()
            client.owned = client.assigned if client.epoch else {}
        if host.group.exists:
            epochs = _check_invariants(host.group, epochs)
    assert set(host.group.state.members) == {f"c{client.number}-{client.life}" for client in alive}
    if not alive:
        return
    assert host.group.state.state_name() == "Stable"
    subscribed = {name for client in alive for name in client.subscription["subscribed_topics"]}
    subscribed |= {name for topics in host.group.state.regexes.values() for name in topics}
    expected = {
        (host.topics.ids[name], partition)
        for name in subscribed & host.topics.sizes.keys()
        for partition in range(host.topics.sizes[name])
    }
    owned = [(topic, number) for client in alive for topic, numbers in client.owned.items() for number in numbers]
    assert sorted(owned) == sorted(expected)


@pytest.mark.parametrize("seed", range(12))
def test_random_walk(seed: int) -> None:
    _walk(seed, steps=150)


@pytest.mark.long
def test_many_random_walks() -> None:
    for seed in range(1_000, 1_400):
        _walk(seed, steps=300)
