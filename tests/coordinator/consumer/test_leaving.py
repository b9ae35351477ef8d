"""Members that leave or are fenced, timers, and groups that are loaded from the log."""

from typing import Any

import pytest

from offsetlake.coordinator.consumer import events, leaving, records, timers
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.member import ConsumerMember, MemberState
from offsetlake.coordinator.epoch_groups.assignment import NOTHING_ASSIGNED
from offsetlake.coordinator.steps import Timer, TimerKind
from offsetlake.kafka import error_codes
from support.coordinator.consumer_groups import GROUP, Host, topic_id, types

FOO = topic_id(1)


@pytest.fixture
def host() -> Host:
    """Member m2 waits for partitions that m1 must revoke within 5 s."""
    host = Host()
    host.topics.create("foo", 4)
    host.send("m1", 0, subscribed_topics=("foo",))
    host.send("m2", 0, subscribed_topics=("foo",))
    host.send("m1", 1)
    return host


def test_a_member_leaves(host: Host) -> None:
    response, records = host.send("m1", -1)
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "m1", -1)
    assert types(records) == [-8, -7, -5, 3]
    assert {record.key.get("memberId") for record in records} == {"m1", None}
    assert (host.group.state.epoch, host.group.state.assignment_epoch) == (3, 2)
    assert [timer.member_id for timer in host.timers] == ["m2"]
    response, _ = host.send("m2", 2)
    assert response.assignment == {FOO: frozenset(range(4))}


def test_unknown_members_cannot_leave(host: Host) -> None:
    response, records = host.send("m3", -1)
    assert (response.error_code, records) == (error_codes.UNKNOWN_MEMBER_ID, [])
    response, _ = Host().send("m1", -1)
    assert (response.error_code, response.error_message) == (error_codes.GROUP_ID_NOT_FOUND, "Group orders not found.")


def test_the_last_member_leaves_an_empty_group(host: Host) -> None:
    host.send("m1", -1)
    response, _ = host.send("m2", -1)
    assert response.error_code == error_codes.NONE
    assert (host.group.exists, host.group.state.state_name(), host.group.state.metadata_hash) == (True, "Empty", 0)
    assert not host.timers
    response, _ = host.send("m3", 0, subscribed_topics=("foo",))
    assert response.member_epoch == 5


def test_a_member_without_heartbeats_is_fenced(host: Host) -> None:
    host.send("m1", 1, owned=host.group.member("m1").assigned)  # type: ignore[union-attr]
    host.advance(4_000)
    host.send("m1", 2)
    assert host.advance(40_999) == []
    assert types(host.advance(1)) == [-8, -7, -5, 3]
    assert [*host.group.state.members] == ["m1"]
    assert host.send("m2", 2)[0].error_code == error_codes.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_revoke_is_fenced(host: Host) -> None:
    host.advance(4_999)
    assert "m1" in host.group.state.members
    host.send("m1", 1)
    assert types(host.advance(1)) == [-8, -7, -5, 3]
    assert [*host.group.state.members] == ["m2"]
    assert host.due_in(TimerKind.SESSION, "m1") is None


def test_the_timer_of_a_revocation_is_cancelled(host: Host) -> None:
    owned = host.group.member("m1").assigned  # type: ignore[union-attr]
    host.send("m1", 1, owned=owned)
    assert host.due_in(TimerKind.REVOCATION, "m1") is None
    assert host.advance(6_000) == []


def test_a_timer_that_is_due_late_does_nothing(host: Host) -> None:
    """The host may call a timer that was cancelled in the meantime."""
    owned = host.group.member("m1").assigned  # type: ignore[union-attr]
    host.send("m1", 1, owned=owned)
    for timer in (Timer(TimerKind.REVOCATION, GROUP, "m1"), Timer(TimerKind.SESSION, GROUP, "m3")):
        step = host.step()
        events.timer_due(step, host.group, timer)
        assert step.records == []


def _restart(host: Host, group: ConsumerGroup) -> None:
    host.group, host.timers = group, {}
    step = host.step()
    timers.loaded(step, group)
    host.run(step)


@pytest.mark.parametrize("from_log", [True, False])
def test_a_restart_continues_without_a_rebalance(host: Host, from_log: bool) -> None:
    before = host.group.state.to_dict()
    group = ConsumerGroup(GROUP, None if from_log else host.group.state)
    if from_log:
        group.apply(host.log)
    _restart(host, group)
    assert group.state.to_dict() == before
    assert {timer: host.due_in(timer.kind, timer.member_id) for timer in host.timers} == {
        Timer(TimerKind.SESSION, GROUP, "m1"): 45_000,
        Timer(TimerKind.SESSION, GROUP, "m2"): 45_000,
        Timer(TimerKind.REVOCATION, GROUP, "m1"): 5_000,
    }
    owned: Any = group.member("m1").assigned  # type: ignore[union-attr]
    response, records = host.send("m1", 1, owned=owned)
    assert (response.member_epoch, types(records)) == (2, [8])
    response, records = host.send("m2", 2)
    assert (len(response.assignment or ()), types(records)) == (1, [8])


def test_a_topic_that_changed_during_a_restart_starts_a_rebalance(host: Host) -> None:
    _restart(host, ConsumerGroup(GROUP, host.group.state))
    host.topics.extend("foo", 5)
    assert types(host.send("m2", 2)[1])[0] == 3


def test_members_that_were_fenced_while_nobody_was_there(host: Host) -> None:
    _restart(host, ConsumerGroup(GROUP, host.group.state))
    assert types(host.advance(45_000)) == [-8, -7, -5, 3] * 2
    assert host.group.state.state_name() == "Empty"


def test_an_administrator_removes_members_at_one_group_epoch(host: Host) -> None:
    host.send("m3", 0, subscribed_regex="f.*", instance_id="i3")
    host.send("m4", 0, subscribed_regex="f.*", instance_id="i4")
    identities = [("m1", None), ("", "i3"), ("m4", "i4"), ("m1", "i4"), ("", "i9"), ("m9", None), ("m1", None)]
    epoch, step = host.group.state.epoch, host.step()
    errors = leaving.remove_each(step, host.group, identities)
    assert [error and error.error_code for error in errors] == [
        None, None, None, error_codes.FENCED_INSTANCE_ID, error_codes.UNKNOWN_MEMBER_ID, error_codes.UNKNOWN_MEMBER_ID,
        None,
    ]  # fmt: skip
    assert types(step.records) == [-8, -7, -5] * 3 + [-16, 3]
    assert ([*host.group.state.members], host.group.state.epoch) == (["m2"], epoch + 1)
    host.run(step)
    assert {timer.member_id for timer in host.timers if timer.kind is TimerKind.SESSION} == {"m2"}
    step = host.step()
    assert leaving.remove_each(step, host.group, [("m1", None)]) != [None]
    assert step.records == []


def test_a_log_whose_compaction_removed_revocations(host: Host) -> None:
    """The newest owner of a partition counts, and what a member no longer owns is ignored when it gives it up."""

    def owns(member_id: str, epoch: int, topic: str, *partitions: int) -> None:
        assigned = {topic: frozenset(partitions)} if partitions else NOTHING_ASSIGNED
        member = ConsumerMember(member_id).with_current(
            epoch, epoch - 1, MemberState.STABLE, assigned, NOTHING_ASSIGNED
        )
        group.apply([records.current_assignment(GROUP, member)])

    group = ConsumerGroup(GROUP)
    owns("a", 11, FOO, 0)
    owns("b", 12, FOO, 0)
    owns("a", 13, FOO, 1)
    assert (group.partition_epoch(FOO, 0), group.partition_epoch(FOO, 1)) == (12, 13)
    owns("b", 14, FOO)
    owns("a", 15, FOO, 2)
    assert [group.partition_epoch(FOO, partition) for partition in range(3)] == [-1, -1, 15]
