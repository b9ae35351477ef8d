"""Scenarios of consumer groups (KIP-848) by name: requests of members, which two servers can get in the same order."""

import uuid
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from support.serve.kio_requests import ask
from support.serve.members import OFFSET_COMMIT

HEARTBEAT, DESCRIBE, METADATA = 68, 69, 3
TOPICS = {"consumed-a": 4, "consumed-b": 3}
A, B, C = (str(uuid.UUID(int=number)) for number in (1, 2, 3))


class Group:
    """A consumer group of one server; `answers` contains what its members were answered.

    `rename` is applied to every text in an answer, and the first topic is that of commits.
    """

    def __init__(
        self,
        bootstrap: str,
        group_id: str,
        topics: Iterable[str] = TOPICS,
        rename: Callable[[str], str] = lambda text: text,
    ) -> None:
        self.bootstrap, self.group_id, self._rename = bootstrap, group_id, rename
        self.epochs: dict[str, int] = {}
        named = [{"name": name, "topic_id": None} for name in topics]
        found = ask(bootstrap, METADATA, 12, topics=named)["topics"]
        self._names = {topic["topic_id"]: topic["name"] for topic in found}
        self._ids = {name: uuid.UUID(bytes=id_) for id_, name in self._names.items()}
        self.answers: list[Any] = []

    def beat(self, member: str, version: int = 1, owned: dict[str, list[int]] | None = None, **fields: Any) -> Any:
        """Send a heartbeat, by default one without changes, and return the answer."""
        partitions = [{"topic_id": self._ids[name], "partitions": numbers} for name, numbers in (owned or {}).items()]
        values: dict[str, Any] = {"member_id": member, "member_epoch": self.epochs.get(member, 0), "rack_id": None}
        values |= {"instance_id": None, "rebalance_timeout": timedelta(milliseconds=-1), "server_assignor": None}
        values |= {"subscribed_topic_names": None, "subscribed_topic_regex": None}
        values |= {"topic_partitions": None if owned is None else partitions, **fields}
        answer = ask(self.bootstrap, HEARTBEAT, version, group_id=self.group_id, **values)
        if not answer["error_code"]:
            self.epochs[member] = max(answer["member_epoch"], 0)
        self.answers.append((member, self.named(answer)))
        return self.answers[-1][1]

    def join(self, member: str, version: int = 1, **fields: Any) -> Any:
        """Send the first heartbeat of a member, and return the answer."""
        full = {"subscribed_topic_names": sorted(self._ids), "rebalance_timeout": timedelta(minutes=5), "owned": {}}
        return self.beat(member, version, **full | {"member_epoch": 0} | fields)

    def await_epoch(self, member: str, epoch: int) -> None:
        """Send heartbeats until a member has an epoch: a broker evaluates regular expressions after it has answered."""
        while self.beat(member)["member_epoch"] < epoch:
            self.answers.pop()

    def commit(self, member: str, version: int = 9, **fields: Any) -> None:
        """Commit an offset."""
        row = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
        epoch = {
            "generation_id_or_member_epoch": self.epochs.get(member, 0),
            "generation_id": self.epochs.get(member, 0),
        }
        topics = [{"name": min(self._ids), "partitions": [row]}]
        values = epoch | {"member_id": member, "group_instance_id": None, "topics": topics} | fields
        self.answers.append(ask(self.bootstrap, OFFSET_COMMIT, version, group_id=self.group_id, **values))

    def describe(self) -> None:
        """Describe the group."""
        self.answers.append(self.named(ask(self.bootstrap, DESCRIBE, 1, group_ids=[self.group_id])))

    def at(self, bootstrap: str) -> "Group":
        """Return the same members as clients of another server."""
        group = Group(bootstrap, self.group_id)
        group.epochs |= self.epochs
        return group

    def members(self) -> list[str]:
        """Return the names of the members, which are their IDs."""
        return [*self.epochs]

    def close(self) -> None:
        """Do nothing: every request has a connection of its own."""

    def named(self, value: Any) -> Any:
        """Return a value with the names of topics, and sorted lists."""
        if isinstance(value, dict):
            return {
                name: self._names.get(each, each) if name == "topic_id" else self.named(each)
                for name, each in value.items()
                if name != "throttle_time"
            }
        if isinstance(value, str):
            return self._rename(value)
        return sorted((self.named(each) for each in value), key=str) if isinstance(value, list) else value


def one_member(group: Group) -> None:
    group.join(A)
    group.describe()
    group.beat(A, owned=TOPIC_ROWS)
    group.commit(A)
    group.beat(A, member_epoch=-1)
    group.describe()


TOPIC_ROWS = {name: [*range(count)] for name, count in TOPICS.items()}


def two_members(group: Group) -> None:
    """Of one topic: how the uniform assignor divides several depends on their random IDs, and so do valid requests."""
    group.join(A, subscribed_topic_names=["consumed-a"])
    group.join(B, subscribed_topic_names=["consumed-a"])
    group.beat(A)
    group.describe()
    group.beat(B)
    group.beat(A, owned={"consumed-a": [0, 1]})
    group.beat(A, owned={"consumed-a": [2, 3]})
    group.beat(B)
    group.describe()
    group.beat(A, member_epoch=-1)
    group.beat(B)
    group.describe()


def three_members_of_other_topics(group: Group) -> None:
    group.join(A, subscribed_topic_names=["consumed-a"])
    group.join(B, subscribed_topic_names=["consumed-b"])
    group.join(C)
    for _ in range(2):
        for member in (A, B, C):
            group.beat(member)
    group.describe()
    group.beat(B, subscribed_topic_names=["consumed-a"])
    group.describe()


def static_member_returns(group: Group) -> None:
    group.join(A, instance_id="i")
    group.beat(A, member_epoch=-2, instance_id="i")
    group.describe()
    group.join(B, instance_id="i")
    group.beat(A, instance_id="i", member_epoch=1)
    group.join(C, instance_id="i")
    group.describe()


def ranged(group: Group) -> None:
    for member in (A, B, C):
        group.join(member, server_assignor="range")
    for _ in range(3):
        for member in (A, B, C):
            group.beat(member)
    group.describe()


def regular_expression(group: Group) -> None:
    group.join(A, subscribed_topic_names=None, subscribed_topic_regex="consumed-.*")
    group.await_epoch(A, 2)
    group.describe()
    group.join(B, subscribed_topic_names=["consumed-a"], subscribed_topic_regex="consumed-.*")
    group.beat(A)
    group.beat(A, owned={"consumed-a": [0, 1], "consumed-b": [0]})
    group.beat(B)
    group.describe()
    for member in (A, B):
        group.beat(member, member_epoch=-1)
    group.describe()


def unsubscribed_topics(group: Group) -> None:
    """Topics are revoked as soon as they are unsubscribed, by a new target assignment or not."""
    group.join(A)
    group.beat(A, owned=TOPIC_ROWS)
    group.join(B)
    group.beat(A, subscribed_topic_names=["consumed-b"])
    group.describe()
    group.beat(A, owned={"consumed-b": [0]})
    group.beat(B)
    group.describe()


def commits(group: Group) -> None:
    group.join(A)
    for version in (2, 8, 9):
        group.commit(A, version)
    group.commit(A, generation_id_or_member_epoch=7)
    group.commit(A, member_id="nobody")
    group.commit(A, member_id="", generation_id_or_member_epoch=-1)


def bad(**fields: Any) -> Callable[[Group], None]:
    def scenario(group: Group) -> None:
        group.join(A)
        group.beat(A, **fields)
        group.describe()

    return scenario


SCENARIOS: dict[str, Callable[[Group], None]] = {
    "one member": one_member,
    "two members": two_members,
    "members of other topics": three_members_of_other_topics,
    "a static member returns": static_member_returns,
    "range": ranged,
    "a regular expression": regular_expression,
    "commits": commits,
    "version 0": lambda group: group.join(A, 0),
    "an epoch that is too large": bad(member_epoch=9),
    "an epoch below -2": bad(member_epoch=-3),
    "a static leave without an instance": bad(member_epoch=-2),
    "an unknown member": bad(member_id="nobody", member_epoch=1),
    "an unknown assignor": bad(server_assignor="sticky"),
    "an empty member id": bad(member_id=""),
    "an empty instance id": bad(instance_id=""),
    "an empty rack": bad(rack_id=""),
    "a second join with partitions": bad(member_epoch=0, owned=TOPIC_ROWS),
    "a second join without topics": bad(member_epoch=0, owned={}, rebalance_timeout=timedelta(minutes=1)),
    "a second join without a timeout": bad(member_epoch=0, owned={}, subscribed_topic_names=["consumed-a"]),
    "a join again": bad(
        member_epoch=0, owned={}, subscribed_topic_names=["consumed-b"], rebalance_timeout=timedelta(minutes=1)
    ),
    "a back reference": bad(subscribed_topic_regex=r"(a)\1"),
    "no topics": bad(subscribed_topic_names=[]),
    "topics that do not exist": bad(subscribed_topic_names=["nowhere"]),
    "other partitions than the assigned ones": bad(owned={"consumed-a": [3]}),
    "a heartbeat without a group": lambda group: group.beat(A, member_epoch=1),
    "a leave without a group": lambda group: group.beat(A, member_epoch=-1),
}

SINCE_4_2: dict[str, Callable[[Group], None]] = {
    "unsubscribed topics": unsubscribed_topics,
}
"""Behaves differently in Kafka 4.1."""
