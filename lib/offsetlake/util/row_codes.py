"""Encodes rows of several columns as integers that compare like the rows, for sorting and joining with numpy."""

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]

_MAX_CODE = 1 << 62
_MAX_RANGE = 1 << 31  # of integers that are used as ranks; times a rank below the number of rows, it does not overflow


def order_codes(rows: pa.Table, names: Iterable[str]) -> Ints:
    """Return an integer for each row; the integers compare like the rows by the named columns, in their order.

    The columns contain no nulls; they are strings, optionally dictionary-encoded and ordered by code points, or
    integers.
    """
    codes, size = np.zeros(rows.num_rows, np.int64), 1
    for name in names:
        ranks, count = _ranks(rows[name])
        if size * count > _MAX_CODE:
            codes = np.unique(codes, return_inverse=True)[1]
            size = len(codes)
        codes, size = codes * count + ranks, size * count
    return codes


def in_order(rows: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return the rows sorted by the named columns, whose types are those of `order_codes`; equal ones stay in order."""
    return rows.take(pa.array(np.argsort(order_codes(rows, names), kind="stable")))


def same_codes(rows: pa.Table, names: Iterable[str]) -> Ints:
    """Return an integer for each row; rows with equal values in these columns, including nulls, have equal integers.

    The columns have the types of `order_codes`, and integers are at least 0. The order of rows is not preserved.
    """
    filled = {}
    for name in names:
        column = rows[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        filled[name] = pc.fill_null(column, "" if pa.types.is_string(column.type) else -1)
    return order_codes(pa.table(filled), filled)


def among(rows: pa.Table, others: pa.Table, names: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Return whether each row has the same values in these columns, including nulls, as any row of `others`."""
    codes, other_codes = _codes_of_both(rows, others, names, same_codes)
    return np.isin(codes, other_codes)


def rows_in(rows: pa.Table, others: pa.Table, names: Iterable[str]) -> Ints:
    """Return, for each row, the number of a row of `others` with the same values in these columns; -1 for none.

    The columns have the types of `order_codes`.
    """
    codes, other_codes = _codes_of_both(rows, others, names, order_codes)
    if not len(codes) or not len(other_codes):
        return np.full(len(codes), -1, np.int64)
    order = np.argsort(other_codes, kind="stable")
    candidates = np.minimum(np.searchsorted(other_codes[order], codes), len(order) - 1)
    return np.where(other_codes[order][candidates] == codes, order[candidates], -1)


def last_at_most(groups: Ints, values: Ints, limit_groups: Ints, limits: Ints) -> Ints:
    """Return, for each limit, the last row of its group whose value does not exceed it; -1 for none.

    Args:
        groups: The group of each row, in ascending order.
        values: The value of each row; not necessarily ordered within a group.
        limit_groups: The group of each limit.
        limits: The limits.
    """
    if not len(values):
        return np.full(len(limits), -1, np.int64)
    columns = {"group": (groups, limit_groups), "value": (values, limits)}
    both = pa.table({name: np.concatenate(parts) for name, parts in columns.items()})
    row_codes, limit_codes = np.split(order_codes(both, columns), [len(values)])
    min_of_rest = np.minimum.accumulate(row_codes[::-1])[::-1]
    last = np.searchsorted(min_of_rest, limit_codes, side="right") - 1
    return np.where((last >= 0) & (groups[last] == limit_groups), last, -1)


def _codes_of_both(
    rows: pa.Table, others: pa.Table, names: Iterable[str], encode: Callable[[pa.Table, Iterable[str]], Ints]
) -> list[Ints]:
    """Return codes of the rows and of the others that can be compared; placeholders if either is empty."""
    if not rows.num_rows or not others.num_rows:
        return [np.full(rows.num_rows, -1, np.int64), np.zeros(others.num_rows, np.int64)]
    selected = rows.select([*names])
    both = pa.concat_tables([selected, others.select([*names]).cast(selected.schema)])
    return np.split(encode(both, names), [rows.num_rows])


def _ranks(column: pa.ChunkedArray) -> tuple[Ints, int]:
    """Return integers that compare like the values, and an exclusive upper limit."""
    if not len(column):
        return np.empty(0, np.int64), 1
    if pa.types.is_integer(column.type):
        values = column.to_numpy().astype(np.int64)
        count = int(values.max()) - int(values.min()) + 1
        if count <= _MAX_RANGE:
            return values - values.min(), count
        distinct, ranks = np.unique(values, return_inverse=True)
        return ranks, len(distinct)
    encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    array = encoded.unify_dictionaries().combine_chunks()
    order = pc.array_sort_indices(array.dictionary).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[array.indices.to_numpy()], len(order)
