"""The assignors: examples, and properties with a brute-force search as the oracle."""

from collections.abc import Callable, Mapping
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlake.coordinator.consumer.assignment.assignors import range as range_assignor
from offsetlake.coordinator.consumer.assignment.assignors import uniform
from offsetlake.coordinator.consumer.assignment.assignors.specification import GroupSpecification
from offsetlake.coordinator.epoch_groups.assignment import Target
from support.coordinator.consumer_groups import topic_id

A, B, C = topic_id(1), topic_id(2), topic_id(3)
Plain = dict[str, dict[str, set[int]]]


def _group(
    subscriptions: Mapping[str, Mapping[str, int]], previous: Mapping[str, Target] | None = None, **instances: str
) -> GroupSpecification:
    previous = previous or {}
    owners: dict[str, dict[int, str]] = {}
    for member, assignment in previous.items():
        for topic, partitions in assignment.items():
            owners.setdefault(topic, {}).update(dict.fromkeys(partitions, member))
    return GroupSpecification(
        members=[*subscriptions],
        instance_ids=instances,
        subscription=subscriptions.__getitem__,
        previous={member: assignment for member, assignment in previous.items() if member in subscriptions},
        sizes=[sum(map(len, previous.get(member, {}).values())) for member in subscriptions],
        # A broker removes members that left from the owners.
        owners={
            topic: {partition: member for partition, member in members.items() if member in subscriptions}
            for topic, members in owners.items()
        },
        homogeneous=len({tuple(topics) for topics in subscriptions.values()}) == 1,
    )


def _uniform(group: GroupSpecification) -> dict[str, Target]:
    return _complete(uniform.assign, group)


def _range(group: GroupSpecification) -> dict[str, Target]:
    return _complete(range_assignor.assign, group)


def _complete(
    assign: Callable[[GroupSpecification], dict[str, Target]], group: GroupSpecification
) -> dict[str, Target]:
    """Return the assignment of each member: an assignor returns those that it may have changed."""
    changed = assign(group)
    return {member: changed.get(member, group.previous.get(member, {})) for member in group.members}


def _plain(assigned: Mapping[str, Target]) -> Plain:
    return {member: {topic: set(found) for topic, found in topics.items()} for member, topics in assigned.items()}


def _flat(target: Target) -> set[tuple[str, int]]:
    return {(topic, partition) for topic, partitions in target.items() for partition in partitions}


def test_range_gives_the_same_ranges_of_each_topic() -> None:
    both = {A: 3, B: 3}
    assert _plain(_range(_group({"m1": both, "m2": both}))) == {
        "m1": {A: {0, 1}, B: {0, 1}}, "m2": {A: {2}, B: {2}},
    }  # fmt: skip


def test_range_with_different_subscriptions() -> None:
    group = _group({"m1": {A: 3, B: 3}, "m2": {C: 2}, "m3": {B: 3, C: 2}})
    assert _plain(_range(group)) == {
        "m1": {A: {0, 1, 2}, B: {0, 1}}, "m2": {C: {0}}, "m3": {B: {2}, C: {1}},
    }  # fmt: skip


def test_range_with_more_members_than_partitions() -> None:
    both = {A: 2, B: 1}
    assert _plain(_range(_group({"m3": both, "m2": both, "m1": both}))) == {
        "m1": {A: {0}, B: {0}}, "m2": {A: {1}}, "m3": {},
    }  # fmt: skip


def test_range_orders_static_members_first_by_instance_id() -> None:
    only = {A: 3}
    group = _group({"m1": only, "m2": only, "m3": only}, m3="i1", m2="i2")
    assert _plain(_range(group)) == {"m3": {A: {0}}, "m2": {A: {1}}, "m1": {A: {2}}}


@pytest.mark.parametrize("assign", [_uniform, _range])
def test_members_without_topics(assign: object) -> None:
    assert callable(assign)
    for subscriptions in ({"m1": {}, "m2": {}}, {"m1": {A: 2}, "m2": {}}):
        assigned = {member: topics for member, topics in _plain(assign(_group(subscriptions))).items() if topics}
        assert assigned == {member: {A: {0, 1}} for member, topics in subscriptions.items() if topics}


def test_uniform_keeps_what_a_member_has() -> None:
    both = {A: 3, B: 3}
    previous = {"m1": {A: (0, 2), B: (1,)}, "m2": {A: (1,), B: (0, 2)}}
    assert _uniform(_group({"m1": both, "m2": both}, previous)) == previous


def test_uniform_moves_no_more_than_the_share_of_a_new_member() -> None:
    both = {A: 3, B: 3}
    previous = {"m1": {A: (0, 2), B: (1,)}, "m2": {A: (1,), B: (0, 2)}}
    assigned = _uniform(_group({"m1": both, "m2": both, "m3": both}, previous))
    assert {member: len(_flat(assigned[member])) for member in assigned} == {"m1": 2, "m2": 2, "m3": 2}
    assert all(_flat(assigned[member]) < _flat(previous[member]) for member in previous)


def test_uniform_with_a_removed_topic_and_a_member_that_left() -> None:
    previous = {"m1": {A: (0,), B: (0,)}, "m2": {A: (1,)}, "m3": {A: (2,)}}
    assigned = _uniform(_group({"m1": {A: 3}, "m2": {A: 3}}, previous))
    assert {len(_flat(assigned[member])) for member in assigned} == {1, 2}
    assert 0 in assigned["m1"][A]
    assert 1 in assigned["m2"][A]
    assert not any(B in assignment for assignment in assigned.values())


def test_uniform_balances_members_with_different_subscriptions() -> None:
    """m1 alone can read A; so that m2 has as much, m1 has nothing else."""
    assigned = _uniform(_group({"m1": {A: 4, B: 4}, "m2": {B: 4}}))
    assert _plain(assigned) == {"m1": {A: {0, 1, 2, 3}}, "m2": {B: {0, 1, 2, 3}}}


def test_uniform_ignores_previous_partitions_that_do_not_exist() -> None:
    previous = {"m1": {A: (0, 1, 7)}, "m2": {B: (5,)}}
    assigned = _uniform(_group({"m1": {A: 2}, "m2": {A: 2, B: 1}}, previous))
    assert set().union(*map(_flat, assigned.values())) == {(A, 0), (A, 1), (B, 0)}


@st.composite
def _groups(draw: st.DrawFn, *, homogeneous: bool, members: int = 5, partitions: int = 9) -> GroupSpecification:
    topics = draw(st.dictionaries(st.sampled_from([A, B, C]), st.integers(1, partitions), min_size=1))
    names = [f"m{number}" for number in range(draw(st.integers(1, members)))]
    subset = st.lists(st.sampled_from([*topics]), unique=True, min_size=0)
    subscriptions = {
        name: topics if homogeneous else {topic: topics[topic] for topic in draw(subset)} for name in names
    }
    previous: dict[str, dict[str, set[int]]] = {}
    for topic, size in topics.items():
        for partition in range(size):
            owner = draw(st.sampled_from([*names, "gone", None]))
            if owner is not None:
                previous.setdefault(owner, {}).setdefault(topic, set()).add(partition)
    frozen = {name: {topic: tuple(found) for topic, found in held.items()} for name, held in previous.items()}
    return _group(subscriptions, frozen)


def _check_valid(group: GroupSpecification, assigned: Mapping[str, Target]) -> None:
    """Each partition that has a subscriber is assigned once, and only to a subscriber."""
    everything = [
        (topic, partition, member)
        for member, topics in assigned.items()
        for topic, partitions in topics.items()
        for partition in partitions
    ]
    assert all(topic in group.subscription(member) for topic, _, member in everything)
    expected = {
        (topic, partition)
        for member in group.members
        for topic, size in group.subscription(member).items()
        for partition in range(size)
    }
    assert sorted((topic, partition) for topic, partition, _ in everything) == sorted(expected)


@given(st.booleans().flatmap(lambda homogeneous: _groups(homogeneous=homogeneous)))
@settings(max_examples=30, deadline=None)
def test_assignments_are_valid(group: GroupSpecification) -> None:
    _check_valid(group, _uniform(group))
    _check_valid(group, _range(group))


@given(_groups(homogeneous=True))
@settings(max_examples=30, deadline=None)
def test_equal_subscriptions_are_balanced_and_a_second_assignment_changes_nothing(group: GroupSpecification) -> None:
    assigned = _uniform(group)
    sizes = [len(_flat(assigned[member])) for member in group.members]
    assert max(sizes) - min(sizes) <= 1
    again = _group({member: group.subscription(member) for member in group.members}, assigned)
    assert _uniform(again) == assigned


@given(_groups(homogeneous=True, members=3, partitions=2))
@settings(max_examples=20, deadline=None)
def test_as_many_partitions_as_possible_stay(group: GroupSpecification) -> None:
    """The oracle tries all balanced assignments."""
    partitions = [
        (topic, number) for topic, size in group.subscription(group.members[0]).items() for number in range(size)
    ]
    owner = {key: member for member in group.previous for key in _flat(group.previous[member])}
    best = 0
    for owners in product(group.members, repeat=len(partitions)):
        sizes = [owners.count(member) for member in group.members]
        if max(sizes) - min(sizes) <= 1:
            best = max(best, sum(owner.get(key) == member for key, member in zip(partitions, owners, strict=True)))
    assigned = _uniform(group)
    kept = sum(len(_flat(assigned[member]) & _flat(group.previous.get(member, {}))) for member in group.members)
    assert kept == best


@given(_groups(homogeneous=False, members=4, partitions=4))
@settings(max_examples=30, deadline=None)
def test_no_single_move_improves_the_balance_of_different_subscriptions(group: GroupSpecification) -> None:
    assigned = _uniform(group)
    sizes = {member: len(_flat(assigned.get(member, {}))) for member in group.members}
    for giver, topics in assigned.items():
        for topic in topics:
            for taker in group.members:
                if topic in group.subscription(taker):
                    assert sizes[giver] - sizes[taker] <= 1
