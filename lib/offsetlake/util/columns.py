"""Looks up and encodes values of columns, without an object for each row; which columns are times."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.util.row_codes import Ints


def is_time(name: str) -> bool:
    """Return whether columns of this name in tables and views are times, in ms since the epoch."""
    return name.endswith("_timestamp") or name in ("started_at", "finished_at")


def in_milliseconds(column: pa.Array) -> pa.Array:
    """Return timestamps as bigint, in ms since the epoch, and other columns as they are."""
    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())


def mapped(keys: pa.ChunkedArray, values: Mapping[str, str | None]) -> pa.ChunkedArray:
    """Return the value of each key, null if the key has none."""
    indices = pc.index_in(keys, value_set=pa.array([*values], pa.string()))
    return pa.chunked_array([pa.array([*values.values()], pa.string())]).take(indices)


def by_row(values: Mapping[int, str], rows: int) -> pa.Array:
    """Return a column with the values of some rows, null for all others."""
    return pa.array(map(values.get, range(rows)), pa.string())


def taken(column: pa.ChunkedArray, rows: Ints) -> pa.ChunkedArray:
    """Return the values in some rows of a column, null for the row -1."""
    return column.take(pa.array(rows, mask=rows < 0))


def encoded(rows: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Return rows with other types of some columns, such as dictionaries of texts of which each occurs many times."""
    return rows.cast(pa.schema([field.with_type(types.get(field.name, field.type)) for field in rows.schema]))
