"""Rows by number: codes that compare as the columns they stand for, so that sorting and matching rows is numpy's."""

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]

_LARGEST_CODE = 1 << 62
_LARGEST_RANGE = 1 << 31  # of whole numbers that are their own ranks: with a rank below the number of rows it fits


def order_codes(rows: pa.Table, names: Iterable[str]) -> Ints:
    """Give each row a number; any two compare as the rows do by the columns named, the first column first.

    Columns are strings (plain or as dictionaries; by code points), or whole numbers, without nulls.
    """
    codes, size = np.zeros(rows.num_rows, np.int64), 1
    for name in names:
        ranks, count = _ranks(rows[name])
        if size * count > _LARGEST_CODE:
            codes = np.unique(codes, return_inverse=True)[1]
            size = len(codes)
        codes, size = codes * count + ranks, size * count
    return codes


def same_codes(rows: pa.Table, names: Iterable[str]) -> Ints:
    """Give numbers that are the same for rows with the same values of these columns, nulls included; no order is kept.

    Columns as in `order_codes`, numbers from 0 on.
    """
    filled = {}
    for name in names:
        column = rows[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        filled[name] = pc.fill_null(column, "" if pa.types.is_string(column.type) else -1)
    return order_codes(pa.table(filled), filled)


def among(rows: pa.Table, others: pa.Table, names: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Tell of each row whether some other row has the same values in these columns, nulls included."""
    mine, theirs = _codes_of_both(rows, others, names, same_codes)
    return np.isin(mine, theirs)


def rows_in(rows: pa.Table, others: pa.Table, names: Iterable[str]) -> Ints:
    """Give for each row the number of a row of `others` with the same values in these columns; -1 where there is none.

    Columns as in `order_codes`.
    """
    mine, theirs = _codes_of_both(rows, others, names, order_codes)
    if not len(mine) or not len(theirs):
        return np.full(len(mine), -1, np.int64)
    order = np.argsort(theirs, kind="stable")
    at = np.minimum(np.searchsorted(theirs[order], mine), len(order) - 1)
    return np.where(theirs[order][at] == mine, order[at], -1)


def last_at_most(groups: Ints, values: Ints, of: Ints, wanted: Ints) -> Ints:
    """Find for each value wanted of a group the last row of the group that is not above it; -1 where there is none.

    `groups` and `values` have one a row, a group's rows together, and groups in order; its values may go up and down.
    """
    columns = {"group": (groups, of), "value": (values, wanted)}
    both = pa.table({name: np.concatenate(parts) for name, parts in columns.items()})
    rows, asked = np.split(order_codes(both, columns), [len(values)])
    lowest_from_here = np.minimum.accumulate(rows[::-1])[::-1]
    at = np.searchsorted(lowest_from_here, asked, side="right") - 1
    return np.where((at >= 0) & (groups[at] == of), at, -1)


def _codes_of_both(
    rows: pa.Table, others: pa.Table, names: Iterable[str], codes: Callable[[pa.Table, Iterable[str]], Ints]
) -> list[Ints]:
    """Give numbers for the rows and for the others that go together; none are made where one side is empty."""
    if not rows.num_rows or not others.num_rows:
        return [np.full(rows.num_rows, -1, np.int64), np.zeros(others.num_rows, np.int64)]
    asked = rows.select([*names])
    both = pa.concat_tables([asked, others.select([*names]).cast(asked.schema)])
    return np.split(codes(both, names), [rows.num_rows])


def _ranks(column: pa.ChunkedArray) -> tuple[Ints, int]:
    """Give numbers that compare as the values do, and the number that none of them reaches."""
    if not len(column):
        return np.empty(0, np.int64), 1
    if pa.types.is_integer(column.type):
        values = column.to_numpy().astype(np.int64)
        count = int(values.max()) - int(values.min()) + 1
        if count <= _LARGEST_RANGE:
            return values - values.min(), count
        different, ranks = np.unique(values, return_inverse=True)
        return ranks, len(different)
    encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    array = encoded.unify_dictionaries().combine_chunks()
    order = pc.array_sort_indices(array.dictionary).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[array.indices.to_numpy()], len(order)
