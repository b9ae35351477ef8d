"""Scenarios of classic groups by name: requests of members, which two servers can get in the same order."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from support.serve.members import HEARTBEAT, LEAVE_GROUP, OFFSET_COMMIT, SYNC_GROUP, Members, subscription

Scenario = Callable[[Members], object]
SCENARIOS: dict[str, Scenario] = {}
TOPIC = "members"
NOTHING = b"\0\0\0\0\0\0\xff\xff\xff\xff"
JOIN_VERSIONS, SYNC_VERSIONS, HEARTBEAT_VERSIONS, LEAVE_VERSIONS = range(10), range(6), range(5), range(6)


def add(name: str, scenario: Scenario) -> None:
    assert name not in SCENARIOS
    SCENARIOS[name] = scenario


def stable(m: Members, *names: str, version: int = 9, **values: Any) -> None:
    """Join members one after the other, the first one as the leader, until all are in a stable group."""
    for number, name in enumerate(names):
        m.enter(name, version, **values)
        if number:
            m.await_rebalance(names[0])
        for other in names[:number]:
            m.join(other, version, member_id=m.ids[other], **values)
        for joined in reversed(names[: number + 1]):
            m.receive(joined)
        for synced in (*names[1 : number + 1], names[0]):
            assigned = dict.fromkeys(names[: number + 1], NOTHING) if synced == names[0] else {}
            m.sync(synced, assigned=assigned)
        for synced in names[: number + 1]:
            m.receive(synced)


def life(join: int, sync: int, heartbeat: int, leave: int) -> Scenario:
    def scenario(m: Members) -> None:
        m.enter("a", join)
        m.receive("a")
        m.describe()
        m.sync("a", sync, {"a": NOTHING})
        m.receive("a")
        m.beat("a", heartbeat)
        m.describe()
        m.leave("a", leave, member_id=m.ids["a"])
        m.describe()
        m.beat("a", heartbeat)

    return scenario


for version in JOIN_VERSIONS:
    versions = min(version, 5), min(version, 4), min(version, 5)
    add(f"one member from join to leave, JoinGroup {version}", life(version, *versions))


def two_members(version: int) -> Scenario:
    def scenario(m: Members) -> None:
        stable(m, "a", "b", version=version)
        m.describe()
        m.beat("b")
        m.leave("b")
        m.beat("a")
        m.join("a", version)
        m.receive("a")
        m.sync("a", assigned={"a": NOTHING})
        m.receive("a")
        m.describe()

    return scenario


for version in JOIN_VERSIONS:
    add(f"two members, one leaves, JoinGroup {version}", two_members(version))


def refused_join(version: int, **values: Any) -> Scenario:
    def scenario(m: Members) -> None:
        m.join("a", version, **values)
        m.receive("a")
        m.describe()

    return scenario


REFUSED_JOINS: dict[str, dict[str, Any]] = {
    "an empty group id": {"group_id": ""},
    "a session timeout of 0": {"session_timeout": timedelta(0)},
    "a session timeout above the maximum": {"session_timeout": timedelta(hours=1)},
    "a negative session timeout": {"session_timeout": timedelta(milliseconds=-1)},
    "an unknown member id": {"member_id": "nobody"},
    "no protocols": {"protocols": []},
    "no protocol type": {"protocol_type": ""},
    "no protocols and no protocol type": {"protocols": [], "protocol_type": ""},
}
for reason, fields in REFUSED_JOINS.items():
    for version in (0, 3, 4, 9):
        add(f"join with {reason}, JoinGroup {version}", refused_join(version, **fields))


def second_join(version: int, **values: Any) -> Scenario:
    def scenario(m: Members) -> None:
        stable(m, "a")
        m.join("b", version, **values)
        m.receive("b")
        m.beat("a")
        m.describe()

    return scenario


INCONSISTENT: dict[str, dict[str, Any]] = {
    "another protocol type": {"protocol_type": "connect"},
    "no common protocol": {"protocols": [{"name": "roundrobin", "metadata": subscription("t")}]},
    "an unknown member id": {"member_id": "nobody"},
    "no protocols": {"protocols": []},
    "an empty protocol type": {"protocol_type": ""},
}
for reason, fields in INCONSISTENT.items():
    for version in (0, 3, 4, 9):
        add(f"second member joins with {reason}, JoinGroup {version}", second_join(version, **fields))


def request_of(api: int, version: int, when: str, **values: Any) -> Scenario:
    """Send a request of a member with other values in a state of the group."""

    def scenario(m: Members) -> None:
        if when != "without a group":
            m.enter("a")
            m.receive("a")
        if when in {"in a stable group", "during a rebalance"}:
            m.sync("a", assigned={"a": NOTHING})
            m.receive("a")
        if when == "during a rebalance":
            m.enter("b")
            m.await_rebalance("a")
        if when == "in an empty group":
            m.leave("a")
        send = {HEARTBEAT: m.beat, LEAVE_GROUP: m.leave}
        if api == SYNC_GROUP:
            m.sync("a", version, {"a": b"x"} if "a" in m.ids else {}, **values)
            m.receive("a")
        else:
            send[api]("a", version, **values)
        m.describe()

    return scenario


WHEN = (
    "without a group",
    "before the assignment",
    "in a stable group",
    "during a rebalance",
    "in an empty group",
)
OTHER_VALUES: dict[str, dict[str, Any]] = {
    "as a member": {},
    "of another generation": {"generation_id": 77},
    "of a negative generation": {"generation_id": -1},
    "of an unknown member": {"member_id": "nobody"},
    "of an unknown instance": {"group_instance_id": "nowhere"},
}
for when in WHEN:
    for reason, fields in OTHER_VALUES.items():
        add(f"Heartbeat {reason} {when}", request_of(HEARTBEAT, 4, when, **fields))
        if when != "during a rebalance" or fields:
            add(f"SyncGroup {reason} {when}", request_of(SYNC_GROUP, 5, when, **fields))
for when in WHEN:
    nobody = {"member_id": "nobody", "group_instance_id": None, "reason": None}
    nowhere = {"member_id": "", "group_instance_id": "nowhere", "reason": "r"}
    add(f"LeaveGroup of an unknown member {when}", request_of(LEAVE_GROUP, 5, when, members=[nobody]))
    add(f"LeaveGroup of an unknown instance {when}", request_of(LEAVE_GROUP, 5, when, members=[nowhere]))
    add(f"LeaveGroup of two unknown members {when}", request_of(LEAVE_GROUP, 3, when, members=[nobody, nowhere]))
    add(f"LeaveGroup of nobody {when}", request_of(LEAVE_GROUP, 4, when, members=[]))
    add(f"LeaveGroup 1 of an unknown member {when}", request_of(LEAVE_GROUP, 1, when, member_id="nobody"))
for name, fields in {
    "another protocol type": {"protocol_type": "connect"},
    "another protocol": {"protocol_name": "roundrobin"},
    "no protocol type": {"protocol_type": None},
    "no protocol": {"protocol_name": None},
    "an empty group id": {"group_id": ""},
}.items():
    for version in (3, 4, 5):
        add(f"SyncGroup {version} with {name}", request_of(SYNC_GROUP, version, "before the assignment", **fields))
for version in HEARTBEAT_VERSIONS:
    add(f"Heartbeat {version} with an empty group id", request_of(HEARTBEAT, version, "in a stable group", group_id=""))
for version in LEAVE_VERSIONS:
    empty = {"group_id": ""} | ({"member_id": "nobody"} if version < 3 else {})
    add(f"LeaveGroup {version} with an empty group id", request_of(LEAVE_GROUP, version, "in a stable group", **empty))


def commit(m: Members, name: str, version: int, **values: Any) -> Any:
    partition = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    fields = {"generation_id_or_member_epoch": values.pop("generation_id", m.generation), "retention_time_ms": -1}
    fields |= {"generation_id": fields["generation_id_or_member_epoch"]}
    return m.ask(
        name, OFFSET_COMMIT, version, **fields | {"topics": [{"name": TOPIC, "partitions": [partition]}]} | values
    )


def commits(when: str, version: int, **values: Any) -> Scenario:
    def scenario(m: Members) -> None:
        m.enter("a")
        m.receive("a")
        if when != "before the assignment":
            m.sync("a", assigned={"a": NOTHING})
            m.receive("a")
        if when == "during a rebalance":
            m.enter("b")
            m.await_rebalance("a")
        if when == "in an empty group":
            m.leave("a")
        commit(m, "a", version, **values)

    return scenario


for when in WHEN[1:]:
    for reason, fields in OTHER_VALUES.items():
        add(f"OffsetCommit {reason} {when}", commits(when, 9, **fields))
    add(f"OffsetCommit of nobody {when}", commits(when, 9, generation_id=-1, member_id=""))


def replaced(version: int, *, metadata: bytes, leader: bool) -> Scenario:
    """A static member starts again, with the same metadata or other."""

    def scenario(m: Members) -> None:
        names = ("s", "d") if leader else ("d", "s")
        for name in names:
            instance = "instance-1" if name == "s" else None
            m.enter(name, version, group_instance_id=instance)
            if name != names[0]:
                m.await_rebalance(names[0])
                first = "instance-1" if names[0] == "s" else None
                m.join(names[0], version, member_id=m.ids[names[0]], group_instance_id=first)
                m.receive(name)
            m.receive(names[0])
        m.sync(names[1], group_instance_id=None if leader else "instance-1")
        m.sync(names[0], assigned=dict.fromkeys(names, NOTHING), group_instance_id="instance-1" if leader else None)
        m.receive(names[0])
        m.receive(names[1])
        old = m.ids["s"]
        m.ids["again"] = ""
        m.join("again", version, group_instance_id="instance-1", protocols=[{"name": "range", "metadata": metadata}])
        m.receive("again")
        m.sync("again", group_instance_id="instance-1")
        m.receive("again")
        m.beat("s", member_id=old, group_instance_id="instance-1")
        m.beat("d")
        m.describe()
        m.leave("d", members=[{"member_id": "", "group_instance_id": "instance-1", "reason": None}])
        m.describe()

    return scenario


for version in (5, 7, 8, 9):
    for leader in (True, False):
        who = "leader" if leader else "follower"
        same, other = subscription("t"), subscription("u")
        add(f"static {who} starts again, JoinGroup {version}", replaced(version, metadata=same, leader=leader))
        add(f"static {who} starts again with other topics, JoinGroup {version}",
            replaced(version, metadata=other, leader=leader))  # fmt: skip


def joins_again(name: str, *, changed: bool, when: str) -> Scenario:
    def scenario(m: Members) -> None:
        stable(m, "a", "b")
        metadata = subscription("t", "u") if changed else subscription("t")
        if when == "during a rebalance":
            m.enter("c")
            m.await_rebalance("a")
        m.join(name, protocols=[{"name": "range", "metadata": metadata}])
        other = "b" if name == "a" else "a"
        if name == "b" and not changed and when == "in a stable group":
            m.receive(name)
        else:
            m.await_rebalance(other)
        m.beat(other)
        m.describe()

    return scenario


for name, who in {"a": "leader", "b": "follower"}.items():
    for changed in (False, True):
        for when in ("in a stable group", "during a rebalance"):
            what = "with other topics" if changed else "unchanged"
            add(f"{who} joins again {what} {when}", joins_again(name, changed=changed, when=when))


def votes(m: Members) -> None:
    both = [{"name": "x", "metadata": b"1"}, {"name": "y", "metadata": b"2"}]
    m.enter("a", protocols=both, protocol_type="work")
    m.receive("a")
    m.enter("b", protocols=both[::-1], protocol_type="work")
    m.enter("c", protocols=both[::-1], protocol_type="work")
    m.await_rebalance("a")
    m.join("a", protocols=both, protocol_type="work")
    for name in "bca":
        m.receive(name)
    m.describe()


add("members vote for a protocol", votes)
