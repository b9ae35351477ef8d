"""The join phase: its initial delay, its end and its timeouts."""

from offsetlake.coordinator.classic.group import ClassicState
from offsetlake.coordinator.steps import Timer, TimerKind
from offsetlake.kafka.error_codes import NONE, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID
from support.coordinator.classic_host import DELAY_MS, REBALANCE_MS, SESSION_MS, Host

JOIN_TIMER = Timer(TimerKind.JOIN, "g")


def test_the_first_rebalance_is_delayed() -> None:
    host = Host()
    _, token = host.join_dynamic()
    host.advance(DELAY_MS - 1)
    assert host.is_waiting(token)
    host.advance(1)
    assert host.joined(token).generation == 1
    assert host.group.state is ClassicState.COMPLETING_REBALANCE


def test_there_may_be_no_initial_delay() -> None:
    host = Host(initial_rebalance_delay_ms=0)
    _, token = host.join_dynamic()
    host.advance(0)
    assert host.joined(token).generation == 1


def test_a_member_that_joins_during_the_initial_delay_extends_it() -> None:
    host = Host()
    tokens = [host.join_dynamic()[1]]
    host.advance(DELAY_MS - 1)
    tokens.append(host.join_dynamic()[1])
    host.advance(2)
    assert all(map(host.is_waiting, tokens))
    host.advance(DELAY_MS - 2)
    assert all(map(host.is_waiting, tokens))
    host.advance(1)
    assert [host.joined(token).generation for token in tokens] == [1, 1]


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    host = Host()
    rebalance_ms = 2 * DELAY_MS + 1_000
    _, first = host.join_dynamic(rebalance_ms=rebalance_ms)
    for _ in range(4):
        host.advance(rebalance_ms // 4 - 1)
        host.join_dynamic(rebalance_ms=rebalance_ms)
    assert host.is_waiting(first)
    host.advance(4)
    assert len(host.joined(first).members) == 5


def test_members_without_a_second_rejoin_are_removed_at_the_rebalance_timeout() -> None:
    host = Host()
    leader, _ = host.stable(2)
    joining = host.join(leader)
    for _ in range(REBALANCE_MS // 1_000):
        host.heartbeat(host.group.leader_id or "", 1)
        for member_id in host.group.members:
            assert host.heartbeat(member_id, 1) == REBALANCE_IN_PROGRESS
        assert host.is_waiting(joining)
        host.advance(1_000)
    assert host.joined(joining).generation == 2
    assert list(host.group.members) == [leader]


def test_the_longest_rebalance_timeout_counts() -> None:
    host = Host()
    first = host.join(version=3, rebalance_ms=10_000)
    second = host.join(version=3, rebalance_ms=40_000)
    host.advance(2 * DELAY_MS)
    host.assign([first, second])
    host.join(version=3, rebalance_ms=20_000)
    assert host.timers[JOIN_TIMER] == host.now_ms + 40_000


def test_a_pending_member_delays_the_end_until_it_joins() -> None:
    host = Host()
    (leader,) = host.stable()
    pending = host.joined(host.join()).member_id
    assert host.group.state is ClassicState.STABLE
    waiting = host.join(leader)
    assert host.is_waiting(waiting)
    token = host.join(pending)
    assert host.joined(waiting).generation == host.joined(token).generation == 2


def test_a_pending_member_delays_the_end_until_its_session_expires() -> None:
    host = Host()
    (leader,) = host.stable()
    host.join()
    waiting = host.join(leader)
    host.advance(SESSION_MS - 1)
    assert host.is_waiting(waiting)
    host.advance(1)
    assert host.joined(waiting).generation == 2


def test_a_pending_member_that_expires_ends_an_initial_delay_as_in_a_broker() -> None:
    host = Host(initial_rebalance_delay_ms=SESSION_MS * 2)
    host.join()
    host.advance(1_000)
    _, token = host.join_dynamic()
    host.advance(SESSION_MS - 1_000)
    assert host.joined(token).generation == 1


def test_a_pending_member_that_leaves_does_not_end_an_initial_delay() -> None:
    host = Host()
    pending = host.joined(host.join()).member_id
    _, token = host.join_dynamic()
    assert host.leave(pending).members[0].error == NONE
    assert host.is_waiting(token)
    host.advance(DELAY_MS)
    assert host.joined(token).generation == 1


def test_a_group_whose_members_all_leave_during_the_initial_delay_is_empty_afterwards() -> None:
    host = Host()
    member_id, token = host.join_dynamic()
    host.leave(member_id)
    assert host.joined(token).error == UNKNOWN_MEMBER_ID
    assert host.group.state is ClassicState.PREPARING_REBALANCE
    host.advance(DELAY_MS)
    assert host.group.is_empty()
    value = host.records[-1].value
    assert value is not None
    assert value["generation"] == 1
    assert value["protocol"] is None
    assert value["leader"] is None
    assert value["protocolType"] == "consumer"


def test_each_rebalance_starts_a_generation() -> None:
    host = Host()
    (leader,) = host.stable()
    for generation in range(2, 6):
        assert host.joined(host.join(leader)).generation == generation
        host.sync(leader, generation)
    assert host.records[-1].value is not None
    assert host.records[-1].value["generation"] == 5


def test_a_new_member_of_a_stable_group_waits_for_the_others() -> None:
    host = Host()
    (leader,) = host.stable()
    new_id, token = host.join_dynamic()
    assert host.heartbeat(leader, 1) == REBALANCE_IN_PROGRESS
    assert host.heartbeat(new_id, 1) == REBALANCE_IN_PROGRESS
    rejoin = host.join(leader)
    assert host.joined(token).leader_id == leader
    assert [member.member_id for member in host.joined(rejoin).members] == [leader, new_id]


def test_the_members_choose_the_protocol_by_votes() -> None:
    host = Host()
    tokens = [
        host.join(version=3, protocols=[("range", b""), ("sticky", b"")]),
        host.join(version=3, protocols=[("sticky", b""), ("range", b"")]),
        host.join(version=3, protocols=[("sticky", b""), ("range", b""), ("other", b"")]),
    ]
    host.advance(2 * DELAY_MS)
    assert {host.joined(token).protocol for token in tokens} == {"sticky"}


def test_a_leader_that_does_not_join_again_is_replaced() -> None:
    host = Host()
    leader, follower = host.stable(2)
    token = host.join(follower, protocols=[("range", b"new")])
    host.advance(SESSION_MS)
    reply = host.joined(token)
    assert reply.leader_id == follower
    assert [member.member_id for member in reply.members] == [follower]
    assert host.heartbeat(leader, 1) == UNKNOWN_MEMBER_ID


def test_a_rebalance_has_a_reason() -> None:
    host = Host()
    (leader,) = host.stable()
    host.join(leader, reason="x" * 1_000)
    assert host.group.reason.startswith(f"member {leader} joined again: xxx")
    assert len(host.group.reason) == 255


def test_negative_rebalance_timeouts_count_as_0() -> None:
    host = Host()
    (leader,) = host.stable()
    host.join(rebalance_ms=-1)
    host.join(leader, rebalance_ms=-1)
    assert host.timers[JOIN_TIMER] == host.now_ms
