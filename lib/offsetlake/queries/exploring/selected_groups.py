"""Selects and sorts groups of a lake for one page of them, without a copy of all columns of all groups."""

import threading
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from offsetlake.queries.selection import like

_ONE_AT_A_TIME = threading.Lock()  # names are matched and copied in Python, which many threads do no sooner


def selected(
    groups: pa.Table,
    pattern: str | None,
    visible: Callable[[pa.Table], pa.Table],
    sort: str = "",
) -> pa.ChunkedArray:
    """Return the numbers of the rows of some groups, in the order to show them.

    Args:
        groups: Groups with the column group_id, and those by which they are selected and sorted.
        pattern: Only groups whose names match this shell pattern.
        visible: Returns the rows with groups that the visitor may read.
        sort: The column that determines the order, after a minus if descending, then the name; empty for the order
            of `groups`.

    """
    column = sort.removeprefix("-")
    names = dict.fromkeys(name for name in ("group_id", column) if name)
    with _ONE_AT_A_TIME:
        rows = pa.table({name: _comparable(groups[name]) for name in names} | {"row": np.arange(groups.num_rows)})
        rows = visible(like(rows, pattern))
        if sort:
            order = [(column, "descending" if sort.startswith("-") else "ascending"), ("group_id", "ascending")]
            rows = rows.sort_by(order[: 1 if column == "group_id" else 2])
        return rows["row"]


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column that Arrow can sort together with others: without a dictionary."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
