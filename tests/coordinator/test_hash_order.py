"""Orders of Java's hash tables; the expected values were printed by Java 17."""

import pytest

from offsetlake.coordinator.hash_order import (
    TimelineOrder,
    hash_code,
    hash_order,
    partition_order,
    set_order,
    topic_id_hash_code,
)


@pytest.mark.parametrize(("text", "code"), [("", 0), ("range", 108280125), ("member-é😀", -1340433831)])
def test_hash_codes(text: str, code: int) -> None:
    assert hash_code(text) == code % 2**32


def test_hash_code_of_a_topic_id() -> None:
    assert topic_id_hash_code("9Ol2zptS5qf5rWsl7xGQnA") == 2030529488


def test_hash_map() -> None:
    keys = [f"consumer-{number * 7}" for number in range(14)]
    numbers = [42, 63, 77, 21, 70, 84, 28, 49, 35, 56, 0, 14, 7, 91]
    assert hash_order(keys, hash_code) == [f"consumer-{number}" for number in numbers]


def test_hash_set() -> None:
    assert partition_order([0, 1, 5, 16, 17, 33]) == (0, 16, 1, 17, 33, 5)
    assert partition_order([17, 33, 1]) == (17, 33, 1)
    assert partition_order([number * 16 + number % 2 for number in range(12)]) == (
        *range(0, 192, 32), *range(17, 192, 32),
    )  # fmt: skip


def test_timeline_hash_map_that_is_copied_to_a_hash_map() -> None:
    order = TimelineOrder()
    for number in range(9):
        order.add(f"c{number * 31}")
    order.remove("c62")
    order.add("c62")
    expected = ["c31", "c186", "new", "c155", "c217", "c93", "c0", "c124", "c248", "c62"]
    assert order.ordered(added="new") == expected
    assert order.ordered(added="new", removed="c0") == [key for key in expected if key != "c0"]
    assert order.ordered(added="c31") == [key for key in expected if key != "new"]


@pytest.mark.parametrize("count", [3, 40, 500])
def test_some_elements_of_a_set_keep_their_order(count: int) -> None:
    names = [f"topic-{number}" for number in range(count)]
    some = names[::3]
    assert set_order(some, hash_code, count) == [name for name in set_order(names, hash_code) if name in some]
