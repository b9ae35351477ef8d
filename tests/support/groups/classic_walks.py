"""Random walks of members of a classic group, from one rebalance to the next.

What is answered must not depend on the order in which requests of different connections arrive: between two requests
for which that matters, a walk waits until the first one shows.
"""

import random
from typing import Any

from support.groups.classic_scenarios import commit
from support.groups.comparison import Scenario
from support.serve.members import Members, subscription

ROUNDS = 8
INSTANCES = {"s": "instance-1", "t": "instance-2"}
NAMES = ("a", "b", "c", "d", *INSTANCES)
_ASSIGNORS = (["range"], ["range", "sticky"], ["sticky", "range"])


class Walk:
    """Members that join, synchronize, commit, leave and start again, alone and during the requests of others."""

    def __init__(self, members: Members, seed: int) -> None:
        self._members, self._random = members, random.Random(seed)
        self._present: list[str] = []
        self._joins: dict[str, dict[str, Any]] = {}
        self._protocol = self._leader = ""

    def round(self) -> None:
        """Send requests of the members of a stable group, and rebalance them."""
        for _ in range(self._random.randrange(5) if self._present else 0):
            action = self._random.choice([self._beat, self._beat, self._commit, self._sync_again, self._restart])
            action(self._random.choice(self._present))
        self._members.describe()
        waiting = self._start_rebalance()
        while self._present:
            self._join_again(waiting)
            waiting = set()
            if self._random.random() < 0.7:
                self._synchronize()
                return
            self._wait_for_leader()
        self._members.describe()

    def _start_rebalance(self) -> set[str]:
        """Send JoinGroup and LeaveGroup of members; return those that wait for the end of the rebalance."""
        absent = [name for name in NAMES if name not in self._present]
        if not self._present:
            return {self._enter(self._random.choice(absent))}
        if absent and self._random.random() < 0.5:
            return {self._enter(name) for name in self._random.sample(absent, min(2, len(absent)))}
        if self._random.random() < 0.5:
            for _ in range(self._random.randint(1, len(self._present))):
                self._leave(self._leaving())
            return set()
        self._join(self._leader)
        return {self._leader}

    def _enter(self, name: str) -> str:
        """Join as a new member, and wait until the server knows the member."""
        self._members.ids.pop(name, None)
        was_empty = not self._present
        self._present.append(name)
        self._join(name, changed=True)
        if name not in INSTANCES:
            self._members.receive(name)
            self._join(name)
        while not was_empty and len(self._described()) < len(self._present):
            pass
        return name

    def _described(self) -> list[Any]:
        described: list[Any] = self._members.describe()["groups"][0]["members"]
        self._members.answers.pop()
        return described

    def _join(self, name: str, *, changed: bool = False) -> None:
        if changed:
            topics = self._random.choice([["t"], ["t", "u"]])
            assignors = self._random.choice(_ASSIGNORS)
            protocols = [{"name": assignor, "metadata": subscription(*topics)} for assignor in assignors]
            self._joins[name] = {"protocols": protocols, "group_instance_id": INSTANCES.get(name)}
        self._members.join(name, **self._joins[name])

    def _join_again(self, waiting: set[str]) -> None:
        """Join all members that do not wait already, and receive the new generation."""
        others = [name for name in self._present if name not in waiting]
        for name in others[:1]:
            self._members.await_rebalance(name)
        for name in self._random.sample(others, len(others)):
            self._join(name, changed=self._random.random() < 0.2)
        for name in self._present:
            answer = self._members.receive(name)
            self._protocol = answer["protocol_name"]
            if answer["leader"] == answer["member_id"]:
                self._leader = name

    def _synchronize(self) -> None:
        followers = [name for name in self._present if name != self._leader]
        for name in self._random.sample(followers, len(followers)):
            self._sync(name)
        assigned = {name: bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, number]) for number, name in enumerate(self._present)}
        self._sync(self._leader, assigned)
        for name in self._present:
            self._members.receive(name)

    def _wait_for_leader(self) -> None:
        """Send SyncGroup of followers, which wait for an assignment until a member leaves."""
        followers = [name for name in self._present if name != self._leader]
        leaving = self._leaving()
        syncing = [name for name in followers if name != leaving and self._random.random() < 0.5]
        for name in syncing:
            self._sync(name)
        self._leave(leaving)
        for name in syncing:
            self._members.receive(name)

    def _sync(self, name: str, assigned: dict[str, bytes] | None = None) -> None:
        instance = INSTANCES.get(name)
        self._members.sync(name, assigned=assigned, protocol_name=self._protocol, group_instance_id=instance)

    def _sync_again(self, name: str) -> None:
        self._sync(name)
        self._members.receive(name)

    def _beat(self, name: str) -> None:
        generation = self._members.generation + self._random.choice([0, 0, 1, -1])
        self._members.beat(name, generation_id=generation, group_instance_id=INSTANCES.get(name))

    def _commit(self, name: str) -> None:
        generation = self._members.generation + self._random.choice([0, 0, 1, -1])
        commit(self._members, name, 9, generation_id=generation, group_instance_id=INSTANCES.get(name))

    def _restart(self, name: str) -> None:
        """Start again as a static member, with the same metadata, which starts no rebalance."""
        if name in INSTANCES:
            before = self._members.ids.pop(name)
            self._join(name)
            self._members.receive(name)
            self._members.beat(name, member_id=before, group_instance_id=INSTANCES[name])

    def _leaving(self) -> str:
        """Return a member that can leave: a server replaces a leader by any of the members that are left."""
        return self._random.choice([name for name in self._present if name != self._leader or len(self._present) <= 2])

    def _leave(self, name: str) -> None:
        instance = INSTANCES.get(name)
        member_id = "" if instance and self._random.random() < 0.5 else self._members.ids[name]
        leaving = {"member_id": member_id, "group_instance_id": instance, "reason": None}
        self._members.leave(name, members=[leaving])
        self._present.remove(name)


def walk(seed: int) -> Scenario:
    """Return a random walk."""

    def send(members: Members) -> None:
        steps = Walk(members, seed)
        for _ in range(ROUNDS):
            steps.round()

    return Scenario(Members, send)
