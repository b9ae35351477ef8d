"""Each state of a member, reconciled with a target assignment (cases of CurrentAssignmentBuilderTest)."""

from typing import Any

import pytest

from offsetlake.coordinator.consumer.assignment.reconciliation import Reconciliation
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.member import NO_METADATA, ConsumerMember, MemberState
from offsetlake.coordinator.epoch_groups.requests import RequestError
from offsetlake.kafka import error_codes
from support.coordinator.consumer_groups import GROUP, topic_id

A, B = topic_id(1), topic_id(2)
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS


def _assignment(text: str) -> dict[str, frozenset[int]]:
    """Return the assignment in a text such as `a123 b4`."""
    return {{"a": A, "b": B}[part[0]]: frozenset(map(int, part[1:])) for part in text.split()}


def _next(
    member: ConsumerMember, target: str, owned: str | None, taken: str = "", subscribed: str = "ab", **more: Any
) -> ConsumerMember:
    """Return the member after a heartbeat with the target of epoch 11; another member owns the taken partitions."""
    group = ConsumerGroup(GROUP)
    group.partition_epochs = {topic: dict.fromkeys(partitions, 10) for topic, partitions in _assignment(taken).items()}
    return Reconciliation(
        group=group,
        epoch=11,
        target=_assignment(target),
        subscribed=[{"a": A, "b": B}[name] for name in subscribed],
        owned=None if owned is None else _assignment(owned),
        subscription_changed=more.get("subscription_changed", False),
    ).next_state(member)


def _member(state: MemberState, assigned: str, pending: str = "", epoch: int = 10) -> ConsumerMember:
    member = ConsumerMember("m1", NO_METADATA)
    return member.with_current(epoch, epoch - 1, state, _assignment(assigned), _assignment(pending))


def _summary(member: ConsumerMember) -> tuple[int, int, MemberState, Any, Any]:
    return member.epoch, member.previous_epoch, member.state, member.assigned, member.pending_revocation


@pytest.mark.parametrize(
    ("state", "assigned", "pending", "target", "owned", "taken", "expected"),
    [
        # A new epoch with the same, more, fewer or other partitions
        (STABLE, "a123 b456", "", "a123 b456", None, "", (11, 10, STABLE, "a123 b456", "")),
        (STABLE, "a123 b456", "", "a1234 b4567", None, "", (11, 10, STABLE, "a1234 b4567", "")),
        (STABLE, "a123 b456", "", "a234 b567", None, "", (10, 10, UNREVOKED, "a23 b56", "a1 b4")),
        (STABLE, "a123 b456", "", "a234 b567", "a123 b456", "", (10, 10, UNREVOKED, "a23 b56", "a1 b4")),
        (STABLE, "a123 b456", "", "a1234 b4567", None, "a4 b7", (11, 10, UNRELEASED, "a123 b456", "")),
        (STABLE, "a123 b456", "", "a1234 b4567", None, "b7", (11, 10, UNRELEASED, "a1234 b456", "")),
        (STABLE, "a123", "", "", None, "", (10, 10, UNREVOKED, "", "a123")),
        # Partitions that the member did not own need no revocation
        (STABLE, "a123 b456", "", "a123 b457", "", "b7", (11, 10, UNRELEASED, "a123 b45", "")),
        (STABLE, "a123 b456", "", "a123 b45", "a1", "", (11, 10, STABLE, "a123 b45", "")),
        # Waiting for a revocation
        (UNREVOKED, "a23 b56", "a1 b4", "a23 b56", "a23 b56", "", (11, 10, STABLE, "a23 b56", "")),
        (UNREVOKED, "a23 b56", "a1 b4", "a23 b56", None, "", None),
        (UNREVOKED, "a23 b56", "a1 b4", "a23 b56", "a123 b56", "", None),
        (UNREVOKED, "a23 b56", "a1 b4", "a3 b6", "a23 b56", "", (10, 10, UNREVOKED, "a3 b6", "a2 b5")),
        (UNREVOKED, "a23 b56", "a1 b4", "a234 b567", "a23 b56", "a4 b7", (11, 10, UNRELEASED, "a23 b56", "")),
        # What is pending revocation returns to the member: nobody else can own it
        (UNREVOKED, "a23 b56", "a1 b4", "a123 b456", "a23 b56", "a1 b4", (11, 10, STABLE, "a123 b456", "")),
        # Waiting for other members
        (UNRELEASED, "a23 b56", "", "a23 b56", None, "", (11, 10, STABLE, "a23 b56", "")),
        (UNRELEASED, "a23 b56", "", "a234 b567", None, "", (11, 10, STABLE, "a234 b567", "")),
        (UNRELEASED, "a23 b56", "", "a234 b567", None, "a4 b7", (11, 10, UNRELEASED, "a23 b56", "")),
        (UNRELEASED, "a23 b56", "", "a3 b6", None, "", (10, 10, UNREVOKED, "a3 b6", "a2 b5")),
    ],
)  # fmt: skip
def test_towards_the_target(
    state: MemberState, assigned: str, pending: str, target: str, owned: str | None, taken: str, expected: Any
) -> None:
    member = _member(state, assigned, pending)
    after = _next(member, target, owned, taken)
    if expected is None:
        assert after is member
        return
    epoch, previous, new_state, new_assigned, new_pending = expected
    assert _summary(after) == (epoch, previous, new_state, _assignment(new_assigned), _assignment(new_pending))


@pytest.mark.parametrize(
    ("member", "owned", "expected"),
    [
        (_member(STABLE, "a12 b34", epoch=11), "a12", (11, 10, STABLE, "a12", "")),
        (_member(STABLE, "a12 b34", epoch=11), None, (11, 10, UNREVOKED, "a12", "b34")),
        (_member(STABLE, "a12 b34", epoch=11), "a12 b34", (11, 10, UNREVOKED, "a12", "b34")),
        (_member(STABLE, "a12", epoch=11), "a12", (11, 10, STABLE, "a12", "")),
        (_member(STABLE, "", epoch=11), None, (11, 10, STABLE, "", "")),
        (_member(UNREVOKED, "a12 b3", "b4"), "a12 b34", (10, 9, UNREVOKED, "a12", "b34")),
        (_member(UNREVOKED, "a12 b3", "a3"), None, (10, 9, UNREVOKED, "a12", "a3 b3")),
    ],
)
def test_topics_that_were_unsubscribed_are_revoked_at_once(
    member: ConsumerMember, owned: str | None, expected: Any
) -> None:
    after = _next(member, "a12 b34", owned, subscribed="a", subscription_changed=True)
    epoch, previous, state, assigned, pending = expected
    assert _summary(after) == (epoch, previous, state, _assignment(assigned), _assignment(pending))


def test_a_target_that_is_not_subscribed_to_is_ignored() -> None:
    after = _next(_member(STABLE, "a12 b34"), "a12 b345", "a12", subscribed="a")
    assert _summary(after) == (11, 10, STABLE, _assignment("a12"), {})


@pytest.mark.parametrize("owned", [None, "a1"])
def test_a_member_in_an_unknown_state_is_fenced_while_it_owns_partitions(owned: str | None) -> None:
    member = _member(MemberState.UNKNOWN, "a23", "a1")
    with pytest.raises(RequestError) as raised:
        _next(member, "a3", owned)
    assert raised.value.error_code == error_codes.FENCED_MEMBER_EPOCH
    assert _summary(_next(member, "a3", "")) == (11, 10, STABLE, _assignment("a3"), {})


def test_the_state_of_a_newer_coordinator_is_unknown() -> None:
    member = ConsumerMember("m1", NO_METADATA, {"memberEpoch": 1, "previousMemberEpoch": 0, "state": 5})
    assert member.state is MemberState.UNKNOWN
