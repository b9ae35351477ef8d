"""Scenarios of share groups (KIP-932) by name: requests that two servers can get in one order."""

from typing import Any

from support.groups.consumer_scenarios import TOPICS, A, B, C
from support.groups.consumer_scenarios import Group as ConsumerGroup
from support.serve.kio_requests import ask

HEARTBEAT, DESCRIBE, LIST_GROUPS, DELETE_GROUPS = 76, 77, 16, 42
DESCRIBE_OFFSETS, ALTER_OFFSETS, DELETE_OFFSETS = 90, 91, 92
ONLY, OTHER = sorted(TOPICS)
"""The topics."""


class Group(ConsumerGroup):
    """A share group of one server; `answers` contains what its members and tools were answered."""

    def beat(self, member: str, version: int = 1, owned: Any = None, **fields: Any) -> Any:
        """Send a heartbeat, by default one without changes, and return the answer."""
        values: dict[str, Any] = {"member_id": member, "member_epoch": self.epochs.get(member, 0), "rack_id": None}
        values |= {"subscribed_topic_names": None, **fields}
        answer = ask(self.bootstrap, HEARTBEAT, version, group_id=self.group_id, **values)
        if not answer["error_code"]:
            self.epochs[member] = max(answer["member_epoch"], 0)
        self.answers.append((member, self.named(answer)))
        return self.answers[-1][1]

    def join(self, member: str, version: int = 1, **fields: Any) -> Any:
        """Send the first heartbeat of a member, and return the answer."""
        return self.beat(member, version, **{"subscribed_topic_names": [ONLY], "member_epoch": 0} | fields)

    def at(self, bootstrap: str) -> "Group":
        """Return the same members as clients of another server."""
        group = Group(bootstrap, self.group_id)
        group.epochs |= self.epochs
        return group

    def describe(self) -> None:
        """Describe the group."""
        self.answers.append(self.named(ask(self.bootstrap, DESCRIBE, 1, group_ids=[self.group_id])))

    def offsets(self, topics: dict[str, list[int]] | None = None) -> Any:
        """Describe the start offsets, by default of all topics, without lags: log end offsets are known to brokers."""
        named = topics and [{"topic_name": name, "partitions": numbers} for name, numbers in topics.items()]
        group = {"group_id": self.group_id, "topics": named}
        self.answers.append(self.named(ask(self.bootstrap, DESCRIBE_OFFSETS, 0, groups=[group])))
        return self.answers[-1]

    def await_offsets(self, partitions: int) -> None:
        """Wait until this many partitions are initialized: a broker answers before it has recorded that."""
        while sum(len(topic["partitions"]) for topic in self.offsets()["groups"][0]["topics"]) < partitions:
            self.answers.pop()

    def alter(self, topics: dict[str, dict[int, int]]) -> None:
        """Set start offsets."""
        requested = [
            {
                "topic_name": name,
                "partitions": [{"partition_index": each, "start_offset": offset} for each, offset in offsets.items()],
            }
            for name, offsets in topics.items()
        ]
        answer = ask(self.bootstrap, ALTER_OFFSETS, 0, group_id=self.group_id, topics=requested)
        self.answers.append(self.named(answer))

    def delete_offsets(self, *names: str) -> None:
        """Delete the start offsets of topics."""
        topics = [{"topic_name": name} for name in names]
        answer = ask(self.bootstrap, DELETE_OFFSETS, 0, group_id=self.group_id, topics=topics)
        self.answers.append(self.named(answer))

    def delete(self) -> None:
        """Delete the group."""
        self.answers.append(self.named(ask(self.bootstrap, DELETE_GROUPS, 2, groups_names=[self.group_id])))

    def list(self) -> None:
        """List the group."""
        groups = ask(self.bootstrap, LIST_GROUPS, 5, states_filter=[], types_filter=["share"])["groups"]
        self.answers.append([group for group in groups if group["group_id"] == self.group_id])


def one_member(group: Group) -> None:
    group.join(A)
    group.await_epoch(A, 2)
    group.describe()
    group.list()
    group.offsets()
    group.beat(A, rack_id="r")
    group.beat(A, member_epoch=-1)
    group.describe()
    group.list()


def three_members(group: Group) -> None:
    for member in (A, B, C):
        group.join(member)
        group.await_epoch(A, 2)
    for member in (A, B, C):
        group.beat(member)
    group.beat(B, member_epoch=-1)
    for member in (A, C):
        group.beat(member)
    group.describe()


def members_of_other_topics(group: Group) -> None:
    group.join(A)
    group.await_epoch(A, 2)
    group.join(B, subscribed_topic_names=[OTHER])
    group.await_epoch(B, 4)
    group.beat(A, subscribed_topic_names=[OTHER])
    group.beat(B)
    group.describe()


def refused(group: Group) -> None:
    group.beat(A, member_epoch=1)
    group.beat(A, member_epoch=-1)
    group.describe()
    group.join(A, subscribed_topic_names=[])
    for member in ("", " ", "m" * 37):
        group.join(member)
    group.join(A, rack_id=" ")
    group.join(A, member_epoch=-2)
    group.join(A)
    group.await_epoch(A, 2)
    for member, epoch in ((A, 1), (A, 5), (B, 1), (B, -1)):
        group.beat(member, member_epoch=epoch)
    group.commit(A)
    group.commit("", generation_id_or_member_epoch=-1)
    group.alter({ONLY: {0: 1}})
    group.delete_offsets(ONLY)
    group.delete()


def start_offsets(group: Group) -> None:
    group.delete_offsets(ONLY)
    group.offsets()
    group.offsets({ONLY: [0, 1], "none": [0]})
    group.alter({ONLY: {0: 3, 1: 4}, "none": {0: 1}})
    group.await_offsets(2)
    group.alter({ONLY: {0: 9, 77: 1}, OTHER: {0: 2}})
    group.await_offsets(3)
    group.offsets({ONLY: [0, 1, 2], OTHER: [1], "none": [0]})
    group.describe()
    group.list()
    group.delete_offsets(OTHER, "none")
    group.delete_offsets(OTHER)
    group.offsets()
    group.delete()
    group.delete()
    group.offsets()


def deleted(group: Group) -> None:
    group.join(A)
    group.await_epoch(A, 2)
    group.beat(A, member_epoch=-1)
    group.delete()
    group.describe()
    group.list()


def consumer_joins(group: Group) -> None:
    group.join(A)
    group.await_epoch(A, 2)
    consumer = ConsumerGroup(group.bootstrap, group.group_id)
    consumer.join(A)
    consumer.describe()
    group.answers += consumer.answers


def commits_first(group: Group) -> None:
    group.commit("", generation_id_or_member_epoch=-1)
    group.join(A)
    group.alter({ONLY: {0: 1}})
    group.delete_offsets(ONLY)
    group.offsets()
    group.describe()


SCENARIOS = {
    "one member": one_member,
    "three members": three_members,
    "members of other topics": members_of_other_topics,
    "refused requests": refused,
    "start offsets": start_offsets,
    "deleted group": deleted,
    "consumer joins": consumer_joins,
    "commits first": commits_first,
}


def warm_up(bootstrap: str) -> None:
    """Make a broker create the topic of share states: the initialization of share partitions fails before."""
    group = Group(bootstrap, "first-share-group")
    group.join(A)
    group.await_epoch(A, 2)
    group.beat(A, member_epoch=-1)
