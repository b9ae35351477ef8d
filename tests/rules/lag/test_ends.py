"""Examples of lags and times from recorded log end offsets, and a comparison with loops over each partition."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.rules.lag.ends import UNKNOWN, Ends

Record = tuple[int, int]
"""The timestamp of a record in ms, and the log end offset."""


def ends_of(partitions: list[list[Record]]) -> Ends:
    rows = [
        {"topic": "t", "partition": number, "end_offset": end, "asked_timestamp": timestamp}
        for number, records in enumerate(partitions)
        for timestamp, end in records
    ]
    schema = pa.schema(
        [("topic", pa.string()), ("partition", pa.int32()), *((name, pa.int64()) for name in list(rows[0])[2:])]
    )
    return Ends(pa.Table.from_pylist(rows[::-1], schema))


def partitions_of(ends: Ends, *numbers: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    rows = pa.table({"topic": ["t"] * len(numbers), "partition": pa.array(numbers, pa.int32())})
    return ends.partitions(rows)


# Recorded every 100 ms: 10 records are written, then none, then 30.
STEADY = [(1000, 40), (1100, 50), (1200, 50), (1300, 80)]


def test_lag_of_a_commit_is_interpolated_unless_it_reached_the_previous_end() -> None:
    ends = ends_of([STEADY])
    commits = {
        (999, 40): UNKNOWN,  # before the first record
        (1000, 40): 0,  # at the first record
        (1050, 40): 0,  # had reached the log end offset recorded before
        (1050, 39): 6,  # had not: half way to 50 is 45
        (1100, 39): 11,
        (1150, 49): 1,
        (1250, 49): 16,  # half way to 80 is 65
        (1250, 50): 0,
        (1300, 79): 1,
        (9999, 79): 1,  # after the last record: compared with it
        (9999, 99): 0,
    }
    times, offsets = np.array(list(commits)).T
    assert ends.lags(partitions_of(ends, *[0] * len(commits)), offsets, times).tolist() == list(commits.values())


def test_instant_at_which_an_offset_was_the_log_end_is_interpolated() -> None:
    ends = ends_of([STEADY])
    known = {39: UNKNOWN, 40: 1000, 45: 1050, 50: 1200, 65: 1250, 79: 1296, 80: 1300, 99: 1300}
    offsets = np.array(list(known))
    assert ends.reached(partitions_of(ends, *[0] * len(known)), offsets).tolist() == list(known.values())


def test_offset_is_compared_with_the_end_recorded_before_the_newest() -> None:
    ends = ends_of([STEADY, [(1000, 5)]])
    partitions, offsets = partitions_of(ends, 0, 0, 1, 7), np.array([50, 49, 5, 5])
    assert partitions.tolist()[-1] == UNKNOWN
    assert ends.were_reached(partitions, offsets).tolist() == [True, False, False, False]


def test_partition_without_records_has_unknown_lag_and_instant() -> None:
    ends = ends_of([STEADY])
    unknown = partitions_of(ends, 3)
    assert ends.lags(unknown, np.array([1]), np.array([1100])).tolist() == [UNKNOWN]
    assert ends.reached(unknown, np.array([45])).tolist() == [UNKNOWN]


def test_recreated_partition_is_measured_from_its_creation() -> None:
    ends = ends_of([[(1000, 500), (1100, 600), (1200, 10), (1300, 20)]])
    partitions = partitions_of(ends, 0, 0)
    assert ends.reached(partitions, np.array([15, 5])).tolist() == [1250, UNKNOWN]
    assert ends.lags(partitions, np.array([550, 15]), np.array([1190, 1250])).tolist() == [0, 0]


# --- comparison with loops ---


def lag_by_loop(records: list[Record], offset: int, timestamp: int) -> int:
    before = [number for number, (recorded, _) in enumerate(records) if recorded <= timestamp]
    if not before:
        return UNKNOWN
    recorded, end = records[before[-1]]
    if end <= offset:
        return 0
    if records[before[-1] + 1 :]:
        later, later_end = records[before[-1] + 1]
        end += int(Fraction((later_end - end) * (timestamp - recorded), later - recorded))
    return max(end - offset, 0)


def reached_by_loop(records: list[Record], offset: int) -> int:
    before = [number for number, (_, end) in enumerate(records) if end <= offset]
    if not before:
        return UNKNOWN
    recorded, end = records[before[-1]]
    if records[before[-1] + 1 :]:
        later, later_end = records[before[-1] + 1]
        recorded += int(Fraction((later - recorded) * (offset - end), later_end - end))
    return recorded


@st.composite
def partition_records(draw: st.DrawFn) -> list[Record]:
    timestamps = draw(st.lists(st.integers(0, 40), min_size=1, max_size=5, unique=True))
    return [(timestamp * 8, draw(st.integers(0, 6)) * 16) for timestamp in sorted(timestamps)]


@given(st.lists(partition_records(), min_size=1, max_size=3), st.data())
def test_lags_and_instants_are_those_of_loops(partitions: list[list[Record]], data: st.DataObject) -> None:
    ends = ends_of(partitions)
    commits = data.draw(
        st.lists(st.tuples(st.integers(0, len(partitions) - 1), st.integers(0, 100), st.integers(0, 330)), max_size=9)
    )
    columns = np.array(commits, np.int64).reshape(-1, 3).T
    numbers, (_, offsets, times) = partitions_of(ends, *columns[0].tolist()), columns
    lags = [lag_by_loop(partitions[number], offset, timestamp) for number, offset, timestamp in commits]
    assert np.abs(ends.lags(numbers, offsets, times) - lags).max(initial=0) <= 1  # interpolated values are rounded
    instants = [reached_by_loop(partitions[number], offset) for number, offset, _ in commits]
    assert np.abs(ends.reached(numbers, offsets) - instants).max(initial=0) <= 1
    assert [lag == 0 for lag in ends.lags(numbers, offsets, times)] == [lag == 0 for lag in lags]
    reached = [len(partitions[number]) > 1 and partitions[number][-2][1] <= offset for number, offset, _ in commits]
    assert ends.were_reached(numbers, offsets).tolist() == reached
