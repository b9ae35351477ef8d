"""Groups with members of both protocols: the same requests get the same answers from a real broker and from the server.

With six partitions and one, two or three members, the assignment does not depend on the random IDs of members.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from support.broker.broker import Broker
from support.broker.requests import await_coordinator
from support.broker.workload import create_topic
from support.coordinator.mixed_groups import assignment, subscription
from support.groups.consumer_scenarios import Group
from support.serve.members import OFFSET_COMMIT, Members
from support.serve.serving import Serving

pytestmark = [pytest.mark.broker, pytest.mark.slow]
TOPIC = "mixed"
C, D = (str(uuid.UUID(int=number)) for number in (3, 4))


class Mixed:
    """The members of one group of one server: those with the classic protocol have names, the others IDs."""

    def __init__(self, bootstrap: str, group_id: str) -> None:
        self.members = Members(bootstrap, group_id)
        self.consumers = Group(bootstrap, group_id, [TOPIC], self.members.named)
        self.consumers.answers = self.answers = self.members.answers
        self._generations: dict[str, int] = {}

    def send_join(self, name: str, version: int = 9, *, owned: Sequence[int] = (), **values: Any) -> None:
        """Send JoinGroup; a new dynamic member receives its ID first."""
        metadata = values.pop("metadata", subscription(TOPIC, owned={TOPIC: owned} if owned else None))
        fields: dict[str, Any] = {"protocols": [{"name": "range", "metadata": metadata}]} | values
        if name in self.members.ids:
            self.members.join(name, version, **fields)
        else:
            self.members.enter(name, version, **fields)

    def receive_join(self, name: str) -> None:
        self._generations[name] = self.members.receive(name)["generation_id"]

    def join(self, name: str, version: int = 9, *, owned: Sequence[int] = (), **values: Any) -> None:
        self.send_join(name, version, owned=owned, **values)
        self.receive_join(name)

    def sync(self, name: str, assigned: dict[str, Sequence[int]] | None = None, **values: Any) -> None:
        blobs = {member: assignment({TOPIC: numbers}) for member, numbers in (assigned or {}).items()}
        self.members.sync(name, assigned=blobs, **{"generation_id": self._generations[name]} | values)
        self.members.receive(name)

    def beat(self, name: str, **values: Any) -> None:
        self.members.beat(name, **{"generation_id": self._generations[name]} | values)

    def commit(self, name: str, version: int, **values: Any) -> None:
        row = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
        epoch = values.pop("epoch", self._generations[name])
        fields = {"generation_id_or_member_epoch": epoch, "generation_id": epoch, "retention_time_ms": -1}
        topics = [{"name": TOPIC, "partitions": [row]}]
        self.members.ask(name, OFFSET_COMMIT, version, **fields | {"topics": topics} | values)

    def describe(self) -> None:
        self.members.describe()
        self.consumers.describe()

    def classic_group(self, *names: str, instances: bool = False) -> None:
        """Create a stable classic group; the first member is the leader, and all have as many partitions."""
        share = 6 // len(names)
        for number, name in enumerate(names):
            instance = {"group_instance_id": f"instance-{name}"} if instances else {}
            self.send_join(name, **instance)
            if number:
                self.members.await_rebalance(names[0])
            for other in names[:number]:
                of_other = {"group_instance_id": f"instance-{other}"} if instances else {}
                self.send_join(other, **of_other)
            for joined in names[: number + 1]:
                self.receive_join(joined)
            assigned = {each: range(at * share, (at + 1) * share) for at, each in enumerate(names[: number + 1])}
            of_first = {"group_instance_id": f"instance-{names[0]}"} if instances else {}
            self.sync(names[0], assigned, **of_first)
            for synced in names[1 : number + 1]:
                of_synced = {"group_instance_id": f"instance-{synced}"} if instances else {}
                self.sync(synced, **of_synced)


def up_and_down(m: Mixed) -> None:
    m.classic_group("a")
    m.consumers.join(C)
    m.describe()
    m.beat("a")
    m.commit("a", 2)
    m.join("a", owned=range(6))
    m.sync("a")
    m.describe()
    m.beat("a")
    m.join("a", owned=range(3))
    m.sync("a")
    m.beat("a")
    m.consumers.beat(C)
    m.describe()
    m.commit("a", 9)
    m.commit("a", 9, epoch=1)
    m.consumers.commit(C)
    m.consumers.beat(C, member_epoch=-1)
    m.describe()
    m.beat("a")
    m.join("a", owned=range(3))
    m.sync("a", {"a": range(6)})
    m.beat("a")
    m.describe()


def two_of_three(m: Mixed) -> None:
    m.classic_group("a", "b")
    m.consumers.join(C)
    m.describe()
    for owned in (3, 2):
        m.join("a", owned=range(owned))
        m.join("b", owned=range(3, 3 + owned))
    m.sync("a")
    m.sync("b")
    m.consumers.beat(C)
    m.describe()
    for name in "ab":
        m.members.leave(name)
        m.beat(name)
    m.consumers.beat(C)
    m.describe()


def during_a_join_phase(m: Mixed) -> None:
    m.classic_group("a")
    m.send_join("b")
    m.members.await_rebalance("a")
    m.consumers.join(C)
    m.receive_join("b")
    m.beat("a")
    m.sync("a")
    m.join("b")
    m.describe()


def before_an_assignment(m: Mixed) -> None:
    m.join("a")
    m.consumers.join(C)
    m.sync("a", {"a": range(6)})
    m.beat("a")
    m.join("a")
    m.sync("a")
    m.describe()


def static_members(m: Mixed) -> None:
    m.classic_group("a", "b", instances=True)
    m.consumers.join(C, instance_id="instance-b")
    m.describe()
    m.beat("b", group_instance_id="instance-b")
    m.beat("a", group_instance_id="instance-a")
    m.commit("b", 9, group_instance_id="instance-b")
    m.members.ids["again"] = ""
    m.join("again", group_instance_id="instance-b")
    m.describe()
    m.beat("a", group_instance_id="instance-a")
    m.beat("again", group_instance_id="instance-b")
    m.sync("again", group_instance_id="instance-b")
    m.consumers.beat(C, instance_id="instance-b")


def static_member_with_other_topics(m: Mixed) -> None:
    m.classic_group("a", "b", instances=True)
    m.consumers.join(C, instance_id="instance-b")
    m.members.ids["again"] = ""
    m.join("again", group_instance_id="instance-b", metadata=subscription(TOPIC, "nowhere"))
    m.describe()
    m.beat("a", group_instance_id="instance-a")


def removed_by_an_administrator(m: Mixed) -> None:
    m.classic_group("a")
    m.consumers.join(C)
    m.members.leave("-", members=[{"member_id": C, "group_instance_id": None, "reason": "r"}])
    m.describe()
    m.beat("a")
    m.consumers.beat(C)


def joins_a_consumer_group(version: int) -> Callable[[Mixed], None]:
    def scenario(m: Mixed) -> None:
        m.consumers.join(C)
        m.join("a", version)
        m.sync("a")
        m.beat("a")
        m.consumers.beat(C)
        m.consumers.beat(C, owned={TOPIC: [0, 1, 2]})
        m.beat("a")
        m.join("a", version)
        m.sync("a")
        m.beat("a")
        m.describe()
        m.members.leave("a")
        m.describe()

    return scenario


def refused(**values: Any) -> Callable[[Mixed], None]:
    def scenario(m: Mixed) -> None:
        m.consumers.join(C)
        m.join("a")
        m.members.join("b", **values)
        m.members.receive("b")
        m.beat("a")
        m.describe()

    return scenario


def of_other_senders(**values: Any) -> Callable[[Mixed], None]:
    def scenario(m: Mixed) -> None:
        m.consumers.join(C)
        m.join("a")
        m.join("b", group_instance_id="instance-b")
        m.join("a")
        m.beat("a", **values)
        m.sync("a", **values)
        m.commit("a", 9, **{"epoch": values["generation_id"]} if "generation_id" in values else values)
        m.describe()

    return scenario


def refused_upgrade(assigned: bytes, **values: Any) -> Callable[[Mixed], None]:
    def scenario(m: Mixed) -> None:
        m.join("a", **values)
        sent = {"a": assigned}
        protocol = {"protocol_type": values.get("protocol_type", "consumer")}
        m.members.sync("a", assigned=sent, **protocol)
        m.members.receive("a")
        m.consumers.join(C)
        m.consumers.beat(C, member_epoch=1)
        m.consumers.beat(C, member_epoch=-1)
        m.beat("a")
        m.describe()

    return scenario


def empty_groups(m: Mixed) -> None:
    m.classic_group("a")
    m.members.leave("a")
    m.consumers.join(C)
    m.describe()
    m.beat("a")
    m.consumers.beat(C, member_epoch=-1)
    m.members.ids.clear()
    m.join("a")
    m.describe()


SCENARIOS: dict[str, Callable[[Mixed], None]] = {
    "up and down": up_and_down,
    "three members, two leave": two_of_three,
    "an upgrade during a join phase": during_a_join_phase,
    "an upgrade before an assignment": before_an_assignment,
    "static members": static_members,
    "a static member with other topics": static_member_with_other_topics,
    "a member is removed by an administrator": removed_by_an_administrator,
    "empty groups": empty_groups,
    "a join with another protocol type": refused(protocol_type="connect"),
    "a join with another protocol": refused(protocols=[{"name": "sticky", "metadata": subscription(TOPIC)}]),
    "a join without protocols": refused(protocols=[]),
    "a malformed join": refused(protocols=[{"name": "range", "metadata": b"\0"}], group_instance_id="j"),
    "a join of an unknown static member": refused(member_id="nobody", group_instance_id="j"),
    "a join with a short session": refused(session_timeout=timedelta(0)),
    "an unknown member": of_other_senders(member_id="nobody"),
    "a member with the other protocol": of_other_senders(member_id=C),
    "an unknown instance": of_other_senders(group_instance_id="nowhere"),
    "another instance": of_other_senders(group_instance_id="instance-b"),
    "another generation": of_other_senders(generation_id=77),
    "no upgrade with user data": refused_upgrade(assignment({TOPIC: [0]}, b"\0\0\0\1x")),
    "no upgrade with a malformed assignment": refused_upgrade(b"\0\1\0"),
    "no upgrade of another protocol type": refused_upgrade(b"x", protocol_type="connect", metadata=b"x"),
    "no upgrade with a malformed subscription": refused_upgrade(b"", metadata=b"\0"),
}
SCENARIOS |= {f"JoinGroup {version} to a consumer group": joins_a_consumer_group(version) for version in range(10)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("mixed-groups")
    settings = {"topics": {TOPIC: 6}, "coordinator": {"initial_rebalance_delay_ms": 0}}
    with Serving(folder / "lake", folder / "log", **settings) as serving:
        yield serving


@pytest.fixture(scope="module")
def coordinating_broker(broker: Broker) -> Broker:
    """A broker that has loaded the log partitions of all groups."""
    create_topic(broker.bootstrap, TOPIC, 6)
    asyncio.run(await_coordinator(broker.bootstrap, (f"mixed {name}" for name in SCENARIOS)))
    return broker


@pytest.mark.parametrize("name", SCENARIOS)
def test_members_get_the_answers_of_a_broker(name: str, coordinating_broker: Broker, server: Serving) -> None:
    answers = []
    for bootstrap in (coordinating_broker.bootstrap, server.bootstrap):
        group = Mixed(bootstrap, f"mixed {name}")
        try:
            SCENARIOS[name](group)
        finally:
            group.members.close()
        answers.append(group.answers)
    assert answers[1] == answers[0]
