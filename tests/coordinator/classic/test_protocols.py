"""The protocol that members choose."""

import random

import pytest

from offsetlake.coordinator.classic.group import ClassicGroup
from offsetlake.coordinator.classic.member import ClassicMember, first_of_each


def member(name: str, *protocols: str) -> ClassicMember:
    return ClassicMember(name, None, "client", "/192.0.2.1", 10_000, 10_000, dict.fromkeys(protocols, b""))


def group(*members: ClassicMember) -> ClassicGroup:
    result = ClassicGroup("g")
    for one in members:
        result.add(one, "consumer")
    return result


@pytest.mark.parametrize(
    ("votes", "selected"),
    [
        (["range sticky"], {"range"}),
        (["range sticky", "sticky range"], {"range", "sticky"}),
        (["range sticky", "sticky range", "sticky range"], {"sticky"}),
        (["range sticky", "sticky"], {"sticky"}),
        (["other range sticky", "other range", "sticky range"], {"range"}),
    ],
)
def test_each_member_votes_for_the_first_protocol_that_all_support(votes: list[str], selected: set[str]) -> None:
    members = [member(str(number), *names.split()) for number, names in enumerate(votes)]
    assert group(*members).selected_protocol() in selected


@pytest.mark.parametrize(
    ("first", "second"),
    [("a", "b"), ("p", "q"), ("o", "p")],
)
def test_of_equal_votes_the_first_in_the_order_of_a_java_hash_map_wins(first: str, second: str) -> None:
    """The hash of one character is its code: its position is the code modulo 16, so that "p" is before "o"."""
    expected = min(first, second, key=lambda name: ord(name) % 16)
    for members in ([(first, second), (second, first)], [(second, first), (first, second)]):
        votes = [member(str(number), *names) for number, names in enumerate(members)]
        assert group(*votes).selected_protocol() == expected


def test_the_hash_map_grows_with_the_number_of_protocols() -> None:
    """With more than 12 entries it has 32 buckets, so that "@" (64) is before "P" (80)."""
    names = [chr(code) for code in range(ord("@"), ord("@") + 17)]
    random.Random(1).shuffle(names)
    members = [
        member(f"{name}{copy}", name, *(other for other in names if other != name)) for name in names for copy in "ab"
    ]
    assert group(*members).selected_protocol() == "@"
    few = [name for name in names if name in {"P", "@", "A"}]
    assert group(*(member(name, name, *few) for name in few)).selected_protocol() in {"@", "P"}


def test_the_first_of_equal_names_counts() -> None:
    assert first_of_each([("a", b"1"), ("b", b"2"), ("a", b"3")]) == {"a": b"1", "b": b"2"}


def test_members_that_leave_no_longer_count() -> None:
    present = group(member("a", "range", "sticky"), member("b", "sticky"))
    present.remove("b")
    assert present.selected_protocol() == "range"
    assert present.leader_id == "a"
    present.remove("a")
    assert present.leader_id is None
