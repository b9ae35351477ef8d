"""Random walks of members of a consumer group: each request follows from the answers before it, and from a seed."""

import random
import uuid
from datetime import timedelta
from typing import Any

from support.groups.comparison import Scenario
from support.groups.consumer_scenarios import TOPICS, Group

STEPS = 40
INSTANCES = {"static-1": "instance-1", "static-2": "instance-2"}
NAMES = ["a", "b", "c", *INSTANCES]
SUBSCRIPTIONS = [["consumed-a"], ["consumed-b"], [*TOPICS], [*TOPICS], ["consumed-a", "nowhere"]]
UNKNOWN_MEMBER_ID = 25


class Walk:
    """Members that join, receive and revoke partitions, commit, leave, return, and send wrong epochs."""

    def __init__(self, group: Group, seed: int) -> None:
        self._group, self._random = group, random.Random(seed)
        self._owned: dict[str, dict[str, list[int]]] = {}
        self._ids: dict[str, str] = {}
        self._starts = 0

    def step(self) -> None:
        """Send a request of a random member."""
        name = self._random.choice(NAMES)
        if name not in self._ids:
            self._start(name)
            return
        actions = [self._acknowledge] * 6 + [self._beat] * 3
        actions += [self._subscribe, self._commit, self._leave, self._join, self._wrong_epoch]
        self._random.choice(actions)(name)
        if self._random.random() < 0.1:
            self._group.describe()

    def _start(self, name: str) -> None:
        """Join with an ID that no member had before."""
        self._starts += 1
        self._ids[name] = str(uuid.UUID(int=self._starts))
        self._owned[name] = {}
        self._join(name)

    def _join(self, name: str) -> None:
        fields: dict[str, Any] = {"subscribed_topic_names": self._random.choice(SUBSCRIPTIONS)}
        fields["server_assignor"] = self._random.choice([None, None, None, "range", "uniform"])
        fields["rebalance_timeout"] = timedelta(minutes=self._random.choice([5, 5, 10]))
        self._received(name, self._group.join(self._ids[name], instance_id=INSTANCES.get(name), **fields))

    def _acknowledge(self, name: str) -> None:
        """Report that the member owns what it was assigned last."""
        self._beat(name, owned=self._owned[name])

    def _beat(self, name: str, **fields: Any) -> None:
        self._received(name, self._group.beat(self._ids[name], **fields))

    def _subscribe(self, name: str) -> None:
        self._beat(name, subscribed_topic_names=self._random.choice([*SUBSCRIPTIONS, []]))

    def _wrong_epoch(self, name: str) -> None:
        epoch = self._epoch(name) + self._random.choice([-1, 1])
        self._beat(name, owned=self._owned[name], member_epoch=epoch if epoch > 0 else self._epoch(name))

    def _commit(self, name: str) -> None:
        epoch = self._epoch(name) - self._random.choice([0, 0, 1])
        self._group.commit(self._ids[name], generation_id_or_member_epoch=epoch)

    def _leave(self, name: str) -> None:
        instance = INSTANCES.get(name)
        epoch = -2 if instance is not None and self._random.random() < 0.7 else -1
        self._beat(name, member_epoch=epoch, instance_id=instance)

    def _epoch(self, name: str) -> int:
        return self._group.epochs.get(self._ids[name], 0)

    def _received(self, name: str, answer: Any) -> None:
        if answer["error_code"] == UNKNOWN_MEMBER_ID or answer["member_epoch"] < 0:
            del self._ids[name]
        elif not answer["error_code"] and answer["assignment"] is not None:
            partitions = answer["assignment"]["topic_partitions"]
            self._owned[name] = {row["topic_id"]: row["partitions"] for row in partitions}


def walk(seed: int) -> Scenario:
    """Return a random walk."""

    def send(group: Group) -> None:
        steps = Walk(group, seed)
        for _ in range(STEPS):
            steps.step()
        group.describe()

    return Scenario(Group, send)
