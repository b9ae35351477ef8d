"""Reset strategies by hand; against Kafka's own tool it is tests/e2e/test_reset_oracle.py."""

from typing import Any

import pyarrow as pa
import pytest

from offsetlake.rules import strategies

FIELDS = ("topic", "partition", "committed_offset", "earliest", "latest", "at_time")
LARGEST = strategies.LARGEST_OFFSET


def rows(*values: tuple[int | None, int | None, int | None, int | None]) -> pa.Table:
    numbered = [("t", number, *each) for number, each in enumerate(values)]
    types = [pa.string(), pa.int32(), *[pa.int64()] * 4]
    columns = [pa.array([each[at] for each in numbered], kind) for at, kind in enumerate(types)]
    return pa.table(columns, names=list(FIELDS))


def told(table: pa.Table) -> list[tuple[Any, Any]]:
    assert table.schema.field("new_offset").type == pa.int64()
    assert table.schema.field("note").type == pa.string()
    assert table.column_names == [*FIELDS, "requested_offset", "new_offset", "note"]
    return list(zip(table["new_offset"].to_pylist(), table["note"].to_pylist(), strict=True))


INSIDE, BELOW, BEYOND = (7, 5, 9, 6), (3, 5, 9, 6), (11, 5, 9, 9)
NONE, UNKNOWN, NOTHING = (None, 5, 9, 5), (7, None, None, None), (None, None, None, None)
ALL = rows(INSIDE, BELOW, BEYOND, NONE, UNKNOWN, NOTHING)
UNCLAMPED = "the log's ends are not known: not clamped"
NO_START, NO_END = (None, "the log start is not known"), (None, "the log end is not known")


def test_to_the_ends_of_the_log() -> None:
    assert told(strategies.to_earliest(ALL)) == [(5, None)] * 4 + [NO_START] * 2
    assert told(strategies.to_latest(ALL)) == [(9, None)] * 4 + [NO_END] * 2


def test_to_current_leaves_an_offset_outside_the_log() -> None:
    assert told(strategies.to_current(ALL)) == [
        (7, None),
        (3, None),
        (11, None),
        (9, "no committed offset: the log end"),
        (7, None),
        (None, "no committed offset, and the log end is not known"),
    ]


@pytest.mark.parametrize(
    ("wanted", "known", "unknown"),
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
def test_to_an_offset(wanted: int, known: tuple[int, str | None], unknown: tuple[int, str]) -> None:
    assert told(strategies.to_offset(ALL, wanted)) == [known] * 4 + [unknown] * 2


def test_to_an_offset_a_row() -> None:
    wanted = pa.chunked_array([[6, 20], [None, 0, 0, None]], pa.int64())
    none = (None, "no offset given")
    assert told(strategies.to_offset(ALL, wanted)) == [
        (6, None),
        (9, "clamped to the log end 9"),
        none,
        (5, "clamped to the log start 5"),
        (0, UNCLAMPED),
        none,
    ]


def test_shifting() -> None:
    none = (None, "no committed offset to shift")
    assert told(strategies.shift_by(ALL, 1)) == [
        (8, None),
        (5, "clamped to the log start 5"),
        (9, "clamped to the log end 9"),
        none,
        (8, UNCLAMPED),
        none,
    ]
    back = told(strategies.shift_by(ALL, -8))
    assert back[0] == (5, "clamped to the log start 5")
    assert back[4] == (0, "clamped to the log start 0")


@pytest.mark.parametrize(("count", "known", "unknown"), [(LARGEST, 9, LARGEST), (-LARGEST, 5, 0), (-LARGEST - 1, 5, 0)])
def test_shifting_further_than_offsets_go(count: int, known: int, unknown: int) -> None:
    shifted = [new for new, _ in told(strategies.shift_by(ALL, count))]
    assert shifted == [known, known, known, None, unknown, None]


def test_to_a_time() -> None:
    end, unknown = "no record at or after the time: the log end", "where the log stood at the time is not known"
    assert told(strategies.to_time(ALL)) == [
        (6, None),
        (6, None),
        (9, end),
        (5, None),
        (None, unknown),
        (None, unknown),
    ]
    assert told(strategies.to_time(rows((1, 0, 0, 0), (1, None, None, 4)))) == [(0, end), (4, None)]


def test_no_rows_at_all() -> None:
    empty = ALL.slice(0, 0)
    for table in (
        strategies.to_earliest(empty),
        strategies.to_latest(empty),
        strategies.to_current(empty),
        strategies.to_offset(empty, 5),
        strategies.shift_by(empty, 5),
        strategies.to_time(empty),
    ):
        assert told(table) == []
