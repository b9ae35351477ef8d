"""The process of one query: reads a request as JSON from standard input, and writes the answer as JSON.

A request has the fields `lake`, `statement`, `max_rows`, `max_bytes` and `max_seconds`. An answer has `names`, those of
the columns, `numeric`, which of them are numbers, `rows`, the first rows, and `total`, the number of all rows; or
`error`, a sentence.
"""

import json
import signal
import sys

import pyarrow as pa

from offsetlake.errors import OffsetlakeError
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.sql.engine import limited_memory
from offsetlake.lake.sql.select import select


def main() -> None:
    """Answer the request."""
    request = json.load(sys.stdin)
    signal.alarm(request.pop("max_seconds"))  # ends this process also if the console was killed
    try:
        with limited_memory():
            answer = run(**request)
    except OffsetlakeError as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


def run(lake: str, statement: str, max_rows: int, max_bytes: int) -> dict[str, object]:
    """Run a SELECT and return its answer, with rows of at most `max_bytes` characters."""
    found = select(open_verified(lake), statement)
    first = found.slice(0, max_rows)
    table = first if isinstance(first, pa.Table) else pa.Table.from_batches(first.to_batches(max_rows), first.schema)
    rows, size = [], 0
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        rows.append([_plain(value) for value in row])
        size += sum(len(str(value)) for value in rows[-1])
        if size > max_bytes:
            rows.pop()
            break
    kinds = [field.type for field in found.schema]
    numeric = [pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) for kind in kinds]
    return {"names": found.schema.names, "numeric": numeric, "rows": rows, "total": found.num_rows}


def _plain(value: object) -> object:
    """Return a value as JSON has it: numbers that JavaScript would round, bytes and lists are texts."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return json.dumps(value, default=str, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


if __name__ == "__main__":
    main()
