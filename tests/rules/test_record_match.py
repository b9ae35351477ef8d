"""Positions found by content against the position that a record was copied to."""

from hypothesis import given
from hypothesis import strategies as st

from offsetlake.rules.record_match import Copied, first_not_before

WINDOW = 4


@given(st.data())
def test_a_match_is_never_after_the_first_copy_of_a_later_record(data: st.DataObject) -> None:
    contents = data.draw(st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), min_size=1, max_size=20))
    offset = data.draw(st.integers(0, len(contents)))
    restarts = data.draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=3))
    copies: list[int] = []
    for start, count in [*restarts, (0, len(contents))]:
        position = min(start, max(copies, default=-1) + 1)  # a replicator omits nothing
        copies += range(position, min(position + count, len(contents)))
    shift = data.draw(st.integers(0, 5))
    target = [Copied(2 * at + shift, contents[number]) for at, number in enumerate(copies)]
    before, after = contents[max(offset - WINDOW, 0) : offset], contents[offset : offset + WINDOW]
    match = first_not_before(before, after, target)
    first = min((at for at, number in enumerate(copies) if number >= offset), default=len(copies))
    limit = 2 * first + shift if first < len(copies) else target[-1].offset + 1
    assert match is None or match <= limit


@given(st.integers(1, 30), st.data())
def test_distinct_records_are_found_and_unique(count: int, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, count))
    contents = [str(number).encode() for number in range(count)]
    target = [Copied(3 * number + 7, content) for number, content in enumerate(contents)]
    before, after = contents[max(offset - WINDOW, 0) : offset], contents[offset : offset + WINDOW]
    expected = 3 * offset + 7 if after else 3 * (count - 1) + 8
    assert first_not_before(before, after, target) == expected


def test_longer_context_decides_between_equal_neighbours_only_if_it_decides_for_the_first() -> None:
    target = [Copied(at, content) for at, content in enumerate([b"x", b"a", b"b", b"y", b"a", b"b", b"z"])]
    assert first_not_before([b"x", b"a"], [b"b", b"y"], target) == 2
    assert first_not_before([b"y", b"a"], [b"b", b"z"], target) is None


def test_records_that_were_not_copied_are_not_found() -> None:
    target = [Copied(0, b"a"), Copied(1, b"c")]
    assert first_not_before([b"a"], [b"b"], target) is None
    assert first_not_before([b"b"], [], target) is None
    assert first_not_before([], [], []) is None
