"""The process of one query, forked by `offsetlake.web.console.forked`, which loads this module once for all.

A request has the fields `lake`, `statement`, `max_rows` and `max_bytes`. An answer has `names`, those of the columns,
`numeric`, which of them are numbers, `rows`, the first rows, and `total`, the number of all rows.
"""

import json
from multiprocessing.connection import Connection

import pyarrow as pa

from offsetlake.errors import NotEnoughMemory
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.sql.engine import MEMORY_LIMIT, SMALL
from offsetlake.lake.sql.select import select
from offsetlake.lake.sql.views import views
from offsetlake.util.columns import in_milliseconds
from offsetlake.util.memory_limit import limited
from offsetlake.util.times import to_iso
from offsetlake.web.console import forked

MAX_GROWTH_BYTES = 200 << 20
"""How much larger than before the process may become, which leaves the console enough of its 500 MB."""

_SETTINGS = SMALL | {MEMORY_LIMIT: "128M"}  # for joins of tables of which one is large

views()  # parsed once, for all queries


def answer(request: forked.Request, sending: Connection) -> None:
    """Answer a request, and end this process."""
    message = "A query in the console needs too much memory."
    limit = limited(NotEnoughMemory.exit_code, message, _nothing, MAX_GROWTH_BYTES)
    forked.answer(run, request, sending, limit)


def _nothing() -> None:
    """Remove nothing: the console removes the folder."""


def run(lake: str, statement: str, max_rows: int, max_bytes: int) -> dict[str, object]:
    """Run a SELECT and return its answer, with rows of at most `max_bytes` characters."""
    found = select(open_verified(lake), statement, _SETTINGS)
    first = found.slice(0, max_rows)
    table = first if isinstance(first, pa.Table) else pa.Table.from_batches(first.to_batches(max_rows), first.schema)
    rows, size = [], 0
    for row in zip(*map(_values, table.columns), strict=True):
        rows.append([_plain(value) for value in row])
        size += sum(len(str(value)) for value in rows[-1])
        if size > max_bytes:
            rows.pop()
            break
    kinds = [field.type for field in found.schema]
    numeric = [pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) for kind in kinds]
    return {"names": found.schema.names, "numeric": numeric, "rows": rows, "total": found.num_rows}


def _values(column: pa.ChunkedArray) -> list[object]:
    """Return the values of a column, timestamps as text in ISO 8601."""
    values: list[object] = in_milliseconds(column).to_pylist()
    if not pa.types.is_timestamp(column.type):
        return values
    return [to_iso(value) if isinstance(value, int) else None for value in values]


def _plain(value: object) -> object:
    """Return a value as JSON has it: numbers that JavaScript would round, bytes and lists are texts."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return json.dumps(value, default=str, ensure_ascii=False) if isinstance(value, list | dict) else str(value)
