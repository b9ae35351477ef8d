import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.kafka.placement import (
    java_hash,
    partition_for_group,
    partition_for_share_partition,
    share_partition_key,
)
from support.kafka.golden import FIXTURES, lines

HASHES = [re.fullmatch(r"(.*) (-?\d+) p50=(\d+)", line) for line in lines("HASH")]


def placed(topic: str) -> list[tuple[dict[str, str], int]]:
    """The keys in the log a real broker wrote, and the log partition it wrote them to."""
    found = []
    for dump in FIXTURES.glob(f"dump-log/{topic}-*.txt"):
        keys = re.findall(r' key: \{"type":"\d+","data":(\{.*?\})\} payload: ', dump.read_text(encoding="utf-8"))
        found += [(json.loads(key), int(dump.stem.rpartition("-")[2])) for key in keys]
    return found


def test_hashes_equal_java() -> None:
    assert len(HASHES) == 8
    for match in HASHES:
        assert match is not None
        assert java_hash(match[1]) == int(match[2])
        assert partition_for_group(match[1], 50) == int(match[3])


def test_the_smallest_hash_is_placed_at_zero_for_any_count() -> None:
    assert java_hash("polygenelubricants") == -(2**31)
    assert [partition_for_group("polygenelubricants", count) for count in (1, 3, 50, 77)] == [0, 0, 0, 0]


def test_a_character_beyond_the_basic_plane_counts_as_two_units() -> None:
    assert java_hash("😀") == 31 * 0xD83D + 0xDE00
    assert java_hash("\ud83d") == 0xD83D


def test_group_partition_equals_broker() -> None:
    groups = {(key.get("group", key.get("groupId", "")), at) for key, at in placed("__consumer_offsets")}
    assert len(groups) > 10
    for group_id, at in groups:
        assert partition_for_group(group_id, 50) == at


def test_share_partition_placement_equals_broker() -> None:
    keys = placed("__share_group_state")
    assert {at for _, at in keys} == {8, 9}
    for key, at in keys:
        assert partition_for_share_partition(key["groupId"], key["topicId"], int(key["partition"]), 50) == at


def test_share_partition_key() -> None:
    (line,) = lines("SHAREKEY")
    text, number, place = line.split(" ")
    assert share_partition_key("g1", "AQIDBAUGBwgJCgsMDQ4PEA", 7) == text
    assert java_hash(text) == int(number)
    assert f"p50={partition_for_share_partition('g1', 'AQIDBAUGBwgJCgsMDQ4PEA', 7, 50)}" == place


@given(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])), st.integers(1, 100))
def test_the_hash_is_javas_polynomial(text: str, partitions: int) -> None:
    polynomial = sum(ord(unit) * 31**power for power, unit in enumerate(reversed(text)))
    assert (java_hash(text) - polynomial) % 2**32 == 0
    assert -(2**31) <= java_hash(text) < 2**31
    assert 0 <= partition_for_group(text, partitions) < partitions


@pytest.mark.parametrize("units", [255, 256, 257, 512, 32_767])
def test_the_hash_of_long_names_is_javas_polynomial(units: int) -> None:
    """Long names are hashed in blocks."""
    text = "".join(chr(0x20 + 7919 * place % 0xD000) for place in range(units))
    polynomial = 0
    for unit in text:
        polynomial = 31 * polynomial + ord(unit)
    assert (java_hash(text) - polynomial) % 2**32 == 0


@pytest.mark.parametrize("count", [1, 7, 50])
def test_placement_is_by_absolute_value(count: int) -> None:
    assert partition_for_group("my-group", count) == 1906497762 % count
