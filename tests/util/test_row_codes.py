"""Codes compare as the rows do that they stand for."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.util.row_codes import order_codes

TEXT = st.sampled_from(["", "a", "A", "ab", "b", "\uffff", "\U0001f600", "é", "z"])
NUMBER = st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1, 2**40, -(2**40)])
ROWS = st.lists(st.tuples(TEXT, TEXT, NUMBER, NUMBER), max_size=30)
NAMES = ("group_id", "topic", "partition", "log_offset")


@given(rows=ROWS, dictionaries=st.booleans(), cut=st.integers(0, 30))
def test_codes_compare_as_rows(rows: list[tuple[str, str, int, int]], dictionaries: bool, cut: int) -> None:
    parts = [_table(rows[:cut], dictionaries), _table(rows[cut:], dictionaries)]
    codes = order_codes(pa.concat_tables(parts), NAMES).tolist()
    for row, code in zip(rows, codes, strict=True):
        for other, of_other in zip(rows, codes, strict=True):
            assert (row < other) == (code < of_other)


def _table(rows: list[tuple[str, str, int, int]], dictionaries: bool) -> pa.Table:
    table = pa.Table.from_pylist(
        [dict(zip(NAMES, row, strict=True)) for row in rows],
        schema=pa.schema(
            [(NAMES[0], pa.string()), (NAMES[1], pa.string()), *((name, pa.int64()) for name in NAMES[2:])]
        ),
    )
    if dictionaries:
        for at in (0, 1):
            table = table.set_column(at, NAMES[at], table[at].dictionary_encode())
    return table
