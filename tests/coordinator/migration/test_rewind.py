"""Offsets that are set while a group changes its protocol or has members of both protocols."""

from collections.abc import Sequence

import pytest

from offsetlake.coordinator import groups
from offsetlake.coordinator.classic.group import ClassicState
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.requests import ConsumerHeartbeatRequest
from offsetlake.coordinator.groups import Committer
from offsetlake.coordinator.migration import requests
from offsetlake.coordinator.rewind import PROTOCOL_CHANGED, RewindReply
from offsetlake.kafka.error_codes import NONE, REBALANCE_IN_PROGRESS
from support.coordinator.consumer_groups import GROUP
from support.coordinator.mixed_groups import MixedHost, assignment
from support.coordinator.rewinds import offset, rewind

CONSUMER = {"subscribed_topics": ("t",), "owned": {}, "rebalance_timeout_ms": 5_000}
TOKEN = -1


def start(host: MixedHost, partition: int) -> None:
    step = host.step()
    groups.start_rewind(step, host.group, rewind(TOKEN, offset("t", partition, 7)))
    host.run(step)


def joined_without(partition: int, instances: Sequence[str | None] = (None, None)) -> tuple[MixedHost, list[str]]:
    """Return a group in which both cooperative members have joined after a rewind has begun, and their IDs."""
    host = MixedHost()
    host.topics.create("t", 3)
    ids = host.classic_group(instances=instances)
    start(host, partition)
    for number, (member_id, instance) in enumerate(zip(ids, instances, strict=True)):
        host.join(member_id, instance, owned={"t": [number]})
    assert host.group.state is ClassicState.COMPLETING_REBALANCE
    return host, ids


def sync_leader(host: MixedHost, ids: list[str], instances: Sequence[str | None] = (None, None)) -> None:
    """Begin the generation without the partitions, which the other member does not know yet."""
    leader = host.group.leader_id
    assigned = {member_id: assignment({"t": [number]}) for number, member_id in enumerate(ids)}
    host.sync(leader, host.group.generation, assigned, instances[ids.index(leader)])
    assert host.group.state is ClassicState.STABLE


def test_static_member_that_changes_its_protocol_meanwhile_leaves_no_partition_unassigned() -> None:
    host, ids = joined_without(0, instances := ("a", "b"))
    sync_leader(host, ids, instances)
    response, _ = host.send("c", 0, instance_id="a", **CONSUMER)
    assert host.replies[TOKEN] == RewindReply(PROTOCOL_CHANGED)
    host.send("c", response.member_epoch, owned={})
    targets = [numbers for target in host.group.targets.values() for numbers in target.values()]
    assert frozenset().union(*targets) == {0, 1, 2}


def test_change_of_the_protocol_that_cannot_be_written_assigns_the_partitions_again() -> None:
    host, ids = joined_without(0)
    sync_leader(host, ids)
    replies = host.fail(requests.consumer_heartbeat, ConsumerHeartbeatRequest(GROUP, "c", 0, **CONSUMER))
    assert RewindReply(PROTOCOL_CHANGED) in replies
    assert host.group.state is ClassicState.PREPARING_REBALANCE


def test_members_own_what_they_keep_if_the_protocol_changes_right_after_the_offsets_are_written() -> None:
    host, _ = joined_without(2)
    assert host.replies[TOKEN] == RewindReply()
    epoch, owned = 0, {}
    for _ in range(2):
        response, _ = host.send("c", epoch, **CONSUMER | {"owned": owned})
        epoch, owned = response.member_epoch, response.assignment or owned
    assert {0, 1}.isdisjoint(*owned.values())


@pytest.mark.parametrize("ends", ["set", "cancelled"])
def test_member_with_the_classic_protocol_does_not_join_again_and_again_until_another_one_revokes(ends: str) -> None:
    host = MixedHost()
    topic = host.topics.create("t", 2)
    (classic,) = host.classic_group()
    epoch = host.send("c", 0, **CONSUMER)[0].member_epoch
    host.sync(classic, host.join(classic, owned={"t": [0]}).generation)
    host.send("c", epoch, owned={topic: frozenset({1})})
    start(host, 1)
    host.send("c", epoch, owned={topic: frozenset({1})})
    assert host.beat(classic, epoch) == REBALANCE_IN_PROGRESS
    generation = host.join(classic, owned={"t": [0]}).generation
    assert host.sync(classic, generation).error == NONE
    assert host.beat(classic, generation) == NONE
    if ends == "set":
        host.send("c", epoch, owned={})
        step = host.step()
        groups.settle_rewind(step, host.group)
    else:
        step = host.step()
        groups.cancel_rewind(step, host.group, "reason")
    host.run(step)
    assert (host.replies[TOKEN].error is None) == (ends == "set")
    assert host.beat(classic, generation) == REBALANCE_IN_PROGRESS


def test_partition_that_a_member_kept_through_a_rebalance_is_revoked_before_its_offset_is_set() -> None:
    """The assignments are not known, because the group changed its protocol before that rebalance had ended."""
    host = MixedHost()
    host.topics.create("t", 2)
    ids = host.classic_group(2)
    host.join(ids[0], owned={"t": [0]}, topics=("t", "u"))
    host.join(ids[1], owned={"t": [1]})
    host.enter()
    host.send("c", 0, **CONSUMER)
    assert isinstance(host.group, ConsumerGroup)
    start(host, 1)
    settle(host)
    assert TOKEN not in host.replies
    host.join(ids[1], owned={})
    settle(host)
    assert host.replies[TOKEN] == RewindReply()
    assert groups.commit_error(host.group, Committer(ids[1], None, 2), 9, transactional=False)


def settle(host: MixedHost) -> None:
    """End a step as the host does."""
    step = host.step()
    groups.settle_rewind(step, host.group)
    host.run(step)
