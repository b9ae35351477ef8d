"""Writes answers to standard output as a table, JSON or CSV, and notes to standard error."""

import csv
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, TextIO

import pyarrow as pa

from offsetlake.cli.tables import Column, Layout, cell_len, fit
from offsetlake.errors import OffsetlakeError
from offsetlake.util.amounts import noun
from offsetlake.util.columns import in_milliseconds, is_time
from offsetlake.util.escaping import (
    csv_text,
    ellipsis,
    encodable,
    encoding_of,
    is_unicode,
    to_json,
    unambiguous,
    visible,
)
from offsetlake.util.times import to_iso

DEFAULT_ROWS = 50  # rows of a table; an answer can have millions
DEFAULT_IMPORTANCE = 2  # of each column if the caller names none: the rightmost are dropped first
DEFAULT_WIDTH = 80  # terminal cells, for a terminal of unknown width
_CHUNK = 10_000  # rows turned into Python objects at a time


def write(
    answer: pa.Table,
    style: str,
    shown: Mapping[str, int] | None = None,
    limit: int | None = 0,
    file: TextIO | None = None,
    total: int | None = None,
) -> None:
    """Write an answer.

    | Style | Description |
    |-------|-------------|
    | json  | One object per line with all columns; bytes as hexadecimal digits. |
    | csv   | A header, then all columns; null is empty, and nested values are JSON. |
    | table | The columns `shown`, at most as wide as the terminal; times as ISO 8601. |

    Args:
        answer: The rows.
        style: One of the styles above.
        shown: The columns of a table in their order, each with its importance (`tables.Column`); None is all columns.
        limit: The maximum number of rows; 0 is unlimited, None is DEFAULT_ROWS for a table and unlimited otherwise.
        file: The file to write to instead of standard output.
        total: The number of rows of the whole answer if `answer` contains only those to write.

    Raises:
        OffsetlakeError: Writing failed, for example because the disk is full.
        BrokenPipeError: The reader has closed the pipe.

    """
    out = file or sys.stdout
    rows = answer.slice(0, max_rows(limit, style))
    with writing_to(out):
        if style == "json":
            _write_json(rows, out)
        elif style == "csv":
            _write_csv(rows, out)
        else:
            _write_table(rows, shown or dict.fromkeys(rows.column_names, DEFAULT_IMPORTANCE), out)
    more = (answer.num_rows if total is None else total) - rows.num_rows
    if style == "table" and more > 0:
        write_note(
            f"{ellipsis(encoding_of(sys.stderr))} and {more:,} more {noun(more, 'row')}: use --limit 0 to write all."
        )


def max_rows(limit: int | None, style: str) -> int | None:
    """Return the maximum number of rows that `write` writes with this limit; None is unlimited."""
    if limit is None:
        return DEFAULT_ROWS if style == "table" else None
    return limit or None


@contextmanager
def writing_to(out: TextIO) -> Iterator[None]:
    """Flush the output at the end; raise OffsetlakeError if writing fails, BrokenPipeError if the pipe is closed."""
    try:
        yield
        out.flush()
    except BrokenPipeError:  # not an error: `head` closes its input, for example
        raise
    except OSError as error:
        raise OffsetlakeError(f"Cannot write the answer: {error.strerror}.") from error


def write_note(text: str) -> None:
    """Write a note for people to standard error."""
    print(visible(text), file=sys.stderr)  # noqa: T201


def write_line(text: str) -> None:
    """Write a line for people to standard output."""
    with writing_to(sys.stdout):
        sys.stdout.write(encodable(visible(text), encoding_of(sys.stdout)) + "\n")


def write_exact(text: str) -> None:
    """Write text for another program: unchanged in UTF-8 to a file or a pipe, line by line escaped to a terminal."""
    with writing_to(sys.stdout):
        if sys.stdout.isatty():
            sys.stdout.writelines(f"{visible(line)}\n" for line in text.splitlines())
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(text.encode())
            sys.stdout.buffer.flush()


def _write_json(answer: pa.Table, out: TextIO) -> None:
    encoding = encoding_of(out)
    for row in _rows(answer):
        out.write(to_json(dict(zip(answer.column_names, row, strict=True)), encoding) + "\n")


def _write_csv(answer: pa.Table, out: TextIO) -> None:
    encoding, to_terminal = encoding_of(out), out.isatty()
    numbers = [_is_number(field) for field in answer.schema]
    # With this line terminator the writer also quotes values that contain a carriage return.
    writer = csv.writer(SimpleNamespace(write=lambda line: out.write(line.removesuffix("\r\n") + "\n")))
    writer.writerow(csv_text(name, encoding, to_terminal=to_terminal) for name in answer.column_names)
    for row in _rows(answer):
        writer.writerow(
            csv_text(value, encoding, to_terminal=to_terminal)
            if isinstance(value, str) and not number
            else _nested(value, encoding)
            for number, value in zip(numbers, row, strict=True)
        )


def _write_table(answer: pa.Table, shown: Mapping[str, int], out: TextIO) -> None:
    answer, encoding = answer.select([*shown]), encoding_of(out)
    times = [_is_time(field) for field in answer.schema]

    def lines() -> Iterator[list[str]]:
        for row in _rows(answer):
            yield [_cell(value, encoding, is_time=time) for time, value in zip(times, row, strict=True)]

    widest = [0 if answer.num_rows else 1] * answer.num_columns  # without rows, no column is dropped as empty
    for line in lines():  # twice, to measure and to write, so that only one chunk is in memory
        widest = [max(width, cell_len(cell)) for width, cell in zip(widest, line, strict=True)]
    columns = [
        Column(unambiguous(field.name, encoding), shown[field.name], _is_number(field), _is_text(field), width)
        for field, width in zip(answer.schema, widest, strict=True)
    ]
    width = _width(out)
    layout = fit(columns, width)
    out.writelines(f"{line}\n" for line in layout.header())
    if out.isatty():
        out.write(layout.rule("─" if is_unicode(encoding) else "-") + "\n")
    out.writelines(f"{line}\n" for cells in lines() for line in layout.row(cells, ellipsis(encoding)))
    if answer.num_rows:
        _write_incomplete(layout, width)


def _write_incomplete(layout: Layout, width: int | None) -> None:
    """Write a note with the columns that were dropped or shortened."""
    missing = layout.incomplete()
    if missing and width is None:
        write_note(f"Columns {missing}. Use --format json to see everything.")
    elif missing:
        write_note(
            f"Columns at a width of {width}: {missing}. Use --format json or a wider terminal to see everything."
        )


def _width(out: TextIO) -> int | None:
    """Return the maximum width of a table: COLUMNS or the terminal's; None (unlimited) for a file or a pipe."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    if not out.isatty():
        return None
    try:
        return os.get_terminal_size(out.fileno()).columns or DEFAULT_WIDTH
    except OSError:
        return DEFAULT_WIDTH


def _rows(answer: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in answer.to_batches(max_chunksize=_CHUNK):
        columns = [
            [_plain(value) for value in in_milliseconds(column).to_pylist(maps_as_pydicts="strict")]
            for column in batch.columns
        ]
        yield from zip(*columns, strict=True)


def _plain(value: Any) -> Any:
    """Return the value as types that JSON has."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else str(value)
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return value.hex() if isinstance(value, bytes) else str(value)


def _nested(value: Any, encoding: str) -> Any:
    return to_json(value, encoding) if isinstance(value, dict | list) else value


def _is_number(field: pa.Field) -> bool:
    kind = field.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return is_number and not _is_time(field)


def _is_text(field: pa.Field) -> bool:
    is_other = pa.types.is_boolean(field.type) or pa.types.is_temporal(field.type) or _is_time(field)
    return not is_other and not _is_number(field)


def _is_time(field: pa.Field) -> bool:
    return is_time(field.name) or pa.types.is_timestamp(field.type)


def _cell(value: Any, encoding: str, *, is_time: bool) -> str:
    if value is None:
        return ""
    if is_time and isinstance(value, int):
        return to_iso(value)
    return unambiguous(value, encoding) if isinstance(value, str) else str(_nested(value, encoding))
