"""Lags and times by the ends on record: by hand, and against loops over each partition's records."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.rules.ends import UNKNOWN, Ends

Record = tuple[int, int]
"""When it was asked, and the end."""


def ends_of(partitions: list[list[Record]]) -> Ends:
    rows = [
        {"topic": "t", "partition": number, "end_offset": end, "asked_timestamp": asked}
        for number, records in enumerate(partitions)
        for asked, end in records
    ]
    schema = pa.schema(
        [("topic", pa.string()), ("partition", pa.int32()), *((n, pa.int64()) for n in list(rows[0])[2:])]
    )
    return Ends(pa.Table.from_pylist(rows[::-1], schema))


def partitions_of(ends: Ends, *numbers: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    rows = pa.table({"topic": ["t"] * len(numbers), "partition": pa.array(numbers, pa.int32())})
    return ends.partitions(rows)


# Asked each 100 ms: 10 records are written, then none, then 30.
STEADY = [(1000, 40), (1100, 50), (1200, 50), (1300, 80)]


def test_lags_of_commits_by_hand() -> None:
    ends = ends_of([STEADY])
    commits = {
        (999, 40): UNKNOWN,  # before the first record
        (1000, 40): 0,  # at it
        (1050, 40): 0,  # was not behind the end recorded last
        (1050, 39): 6,  # was: half way to 50 is 45
        (1100, 39): 11,
        (1150, 49): 1,
        (1250, 49): 16,  # half way to 80 is 65
        (1250, 50): 0,
        (1300, 79): 1,
        (9999, 79): 1,  # behind the last record: as of that
        (9999, 99): 0,
    }
    times, offsets = np.array(list(commits)).T
    assert ends.lags(partitions_of(ends, *[0] * len(commits)), offsets, times).tolist() == list(commits.values())


def test_when_an_offset_was_the_end_by_hand() -> None:
    ends = ends_of([STEADY])
    known = {39: UNKNOWN, 40: 1000, 45: 1050, 50: 1200, 65: 1250, 79: 1296, 80: 1300, 99: 1300}
    offsets = np.array(list(known))
    assert ends.reached(partitions_of(ends, *[0] * len(known)), offsets).tolist() == list(known.values())


def test_what_had_reached_the_end_before_the_newest() -> None:
    ends = ends_of([STEADY, [(1000, 5)]])
    partitions, offsets = partitions_of(ends, 0, 0, 1, 7), np.array([50, 49, 5, 5])
    assert partitions.tolist()[-1] == UNKNOWN
    assert ends.were_reached(partitions, offsets).tolist() == [True, False, False, False]


def test_of_a_partition_nobody_asked_for_nothing_is_known() -> None:
    ends = ends_of([STEADY])
    unknown = partitions_of(ends, 3)
    assert ends.lags(unknown, np.array([1]), np.array([1100])).tolist() == [UNKNOWN]
    assert ends.reached(unknown, np.array([45])).tolist() == [UNKNOWN]


def test_a_partition_made_anew_counts_from_when_it_was() -> None:
    ends = ends_of([[(1000, 500), (1100, 600), (1200, 10), (1300, 20)]])
    partitions = partitions_of(ends, 0, 0)
    assert ends.reached(partitions, np.array([15, 5])).tolist() == [1250, UNKNOWN]
    assert ends.lags(partitions, np.array([550, 15]), np.array([1190, 1250])).tolist() == [0, 0]


# --- against loops ---


def lag_by_loop(records: list[Record], offset: int, at: int) -> int:
    before = [number for number, (asked, _) in enumerate(records) if asked <= at]
    if not before:
        return UNKNOWN
    asked, end = records[before[-1]]
    if end <= offset:
        return 0
    if records[before[-1] + 1 :]:
        later, grown = records[before[-1] + 1]
        end += int(Fraction((grown - end) * (at - asked), later - asked))
    return max(end - offset, 0)


def reached_by_loop(records: list[Record], offset: int) -> int:
    before = [number for number, (_, end) in enumerate(records) if end <= offset]
    if not before:
        return UNKNOWN
    asked, end = records[before[-1]]
    if records[before[-1] + 1 :]:
        later, grown = records[before[-1] + 1]
        asked += int(Fraction((later - asked) * (offset - end), grown - end))
    return asked


@st.composite
def some_records(draw: st.DrawFn) -> list[Record]:
    asked = draw(st.lists(st.integers(0, 40), min_size=1, max_size=5, unique=True))
    return [(at * 8, draw(st.integers(0, 6)) * 16) for at in sorted(asked)]


@given(st.lists(some_records(), min_size=1, max_size=3), st.data())
def test_as_loops_say(partitions: list[list[Record]], data: st.DataObject) -> None:
    ends = ends_of(partitions)
    asked = data.draw(
        st.lists(st.tuples(st.integers(0, len(partitions) - 1), st.integers(0, 100), st.integers(0, 330)), max_size=9)
    )
    columns = np.array(asked, np.int64).reshape(-1, 3).T
    numbers, (_, offsets, times) = partitions_of(ends, *columns[0].tolist()), columns
    lags = [lag_by_loop(partitions[of], offset, at) for of, offset, at in asked]
    assert np.abs(ends.lags(numbers, offsets, times) - lags).max(initial=0) <= 1  # what is between two is rounded
    instants = [reached_by_loop(partitions[of], offset) for of, offset, _ in asked]
    assert np.abs(ends.reached(numbers, offsets) - instants).max(initial=0) <= 1
    assert [lag == 0 for lag in ends.lags(numbers, offsets, times)] == [lag == 0 for lag in lags]
    reached = [len(partitions[of]) > 1 and partitions[of][-2][1] <= offset for of, offset, _ in asked]
    assert ends.were_reached(numbers, offsets).tolist() == reached
