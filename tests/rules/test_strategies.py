"""Examples of the reset strategies; tests/e2e/live/test_reset_oracle.py compares them with Kafka's own tool."""

from typing import Any

import pyarrow as pa
import pytest

from offsetlake.rules import strategies

FIELDS = ("topic", "partition", "committed_offset", "earliest", "latest", "at_time")
LARGEST = strategies.MAX_OFFSET


def rows(*values: tuple[int | None, int | None, int | None, int | None]) -> pa.Table:
    numbered = [("t", partition, *offsets) for partition, offsets in enumerate(values)]
    types = [pa.string(), pa.int32(), *[pa.int64()] * 4]
    columns = [pa.array([row[index] for row in numbered], kind) for index, kind in enumerate(types)]
    return pa.table(columns, names=list(FIELDS))


def results(table: pa.Table) -> list[tuple[Any, Any]]:
    assert table.schema.field("new_offset").type == pa.int64()
    assert table.schema.field("note").type == pa.string()
    assert table.column_names == [*FIELDS, "requested_offset", "new_offset", "note"]
    return list(zip(table["new_offset"].to_pylist(), table["note"].to_pylist(), strict=True))


INSIDE, BELOW, BEYOND = (7, 5, 9, 6), (3, 5, 9, 6), (11, 5, 9, 9)
NONE, UNKNOWN, NOTHING = (None, 5, 9, 5), (7, None, None, None), (None, None, None, None)
ALL = rows(INSIDE, BELOW, BEYOND, NONE, UNKNOWN, NOTHING)
UNCLAMPED = "not clamped: the range of the log is unknown"
NO_START, NO_END = (None, "the log start offset is unknown"), (None, "the log end offset is unknown")


def test_to_earliest_and_to_latest_use_the_range_of_the_log() -> None:
    assert results(strategies.to_earliest(ALL)) == [(5, None)] * 4 + [NO_START] * 2
    assert results(strategies.to_latest(ALL)) == [(9, None)] * 4 + [NO_END] * 2


def test_to_current_leaves_an_offset_outside_the_log() -> None:
    assert results(strategies.to_current(ALL)) == [
        (7, None),
        (3, None),
        (11, None),
        (9, "no committed offset: reset to the log end"),
        (7, None),
        (None, "no committed offset, and the log end offset is unknown"),
    ]


@pytest.mark.parametrize(
    ("offset", "known", "unknown"),
    [
        (6, (6, None), (6, UNCLAMPED)),
        (5, (5, None), (5, UNCLAMPED)),
        (9, (9, None), (9, UNCLAMPED)),
        (10, (9, "clamped to the log end 9"), (10, UNCLAMPED)),
        (LARGEST, (9, "clamped to the log end 9"), (LARGEST, UNCLAMPED)),
        (0, (5, "clamped to the log start 5"), (0, UNCLAMPED)),
        (-1, (5, "clamped to the log start 5"), (0, "clamped to the log start 0")),
    ],
)
def test_to_offset_is_clamped_if_the_range_is_known(
    offset: int, known: tuple[int, str | None], unknown: tuple[int, str]
) -> None:
    assert results(strategies.to_offset(ALL, offset)) == [known] * 4 + [unknown] * 2


def test_to_offset_takes_one_offset_per_row() -> None:
    offsets = pa.chunked_array([[6, 20], [None, 0, 0, None]], pa.int64())
    none = (None, "no offset given")
    assert results(strategies.to_offset(ALL, offsets)) == [
        (6, None),
        (9, "clamped to the log end 9"),
        none,
        (5, "clamped to the log start 5"),
        (0, UNCLAMPED),
        none,
    ]


def test_shifted_offset_is_clamped() -> None:
    none = (None, "no committed offset to shift")
    assert results(strategies.shift_by(ALL, 1)) == [
        (8, None),
        (5, "clamped to the log start 5"),
        (9, "clamped to the log end 9"),
        none,
        (8, UNCLAMPED),
        none,
    ]
    decreased = results(strategies.shift_by(ALL, -8))
    assert decreased[0] == (5, "clamped to the log start 5")
    assert decreased[4] == (0, "clamped to the log start 0")


@pytest.mark.parametrize(("count", "known", "unknown"), [(LARGEST, 9, LARGEST), (-LARGEST, 5, 0), (-LARGEST - 1, 5, 0)])
def test_shift_beyond_the_largest_offset_does_not_overflow(count: int, known: int, unknown: int) -> None:
    shifted = [new for new, _ in results(strategies.shift_by(ALL, count))]
    assert shifted == [known, known, known, None, unknown, None]


def test_to_time_uses_the_offset_at_the_time() -> None:
    end, unknown = "no record at or after the time: reset to the log end", "the offset at the time is unknown"
    assert results(strategies.to_time(ALL)) == [
        (6, None),
        (6, None),
        (9, end),
        (5, None),
        (None, unknown),
        (None, unknown),
    ]
    assert results(strategies.to_time(rows((1, 0, 0, 0), (1, None, None, 4)))) == [(0, end), (4, None)]


def test_empty_table_is_accepted() -> None:
    empty = ALL.slice(0, 0)
    for table in (
        strategies.to_earliest(empty),
        strategies.to_latest(empty),
        strategies.to_current(empty),
        strategies.to_offset(empty, 5),
        strategies.shift_by(empty, 5),
        strategies.to_time(empty),
    ):
        assert results(table) == []
