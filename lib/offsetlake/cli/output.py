"""How answers and progress look: answers on standard output, all else on standard error."""

import csv
import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from types import SimpleNamespace, TracebackType
from typing import Any, Self, TextIO

import pyarrow as pa
from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from offsetlake.cli.tables import Column, Layout, cell_len, fit
from offsetlake.errors import OffsetlakeError
from offsetlake.util.amounts import progress_text
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

DEFAULT_ROWS = 50  # rows of a table: more than a person reads, and a question can have millions
DEFAULT_IMPORTANCE = 2  # of the columns of a table without a choice of columns: from the right, all can be dropped
DEFAULT_WIDTH = 80  # terminal cells, where a terminal does not tell
FIRST_LINE_SECONDS, LINE_INTERVAL_SECONDS = 2.0, 10.0  # of work that says how far it is, where standard error is a file
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

    | style | is |
    |-------|----|
    | json  | one object a line with all columns; bytes as hexadecimal digits |
    | csv   | a header, then all columns; null is empty, lists and the like are JSON |
    | table | for people: the columns `shown`, as wide as the terminal, times as ISO 8601 |

    Args:
        answer: The rows.
        style: One of the styles above.
        shown: The columns of a table in their order, each with its importance (`tables.Column`); None is all.
        limit: How many rows to write; 0 is all, None is all of JSON and CSV and DEFAULT_ROWS of a table.
        file: Where to write instead of standard output.
        total: How many rows there are, if `answer` has only those to write.

    Raises:
        OffsetlakeError: The output takes no more.
        BrokenPipeError: Nobody reads the output any more.

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
        tell(f"{ellipsis(encoding_of(sys.stderr))} and {more:,} more: --limit 0")


def max_rows(limit: int | None, style: str) -> int | None:
    """Return how many rows `write` writes at most with this limit; None is all."""
    if limit is None:
        return DEFAULT_ROWS if style == "table" else None
    return limit or None


@contextmanager
def writing_to(out: TextIO) -> Iterator[None]:
    """Write out all at the end; OffsetlakeError where the output takes no more, BrokenPipeError where nobody reads."""
    try:
        yield
        out.flush()
    except BrokenPipeError:  # whoever reads has seen enough
        raise
    except OSError as error:
        raise OffsetlakeError(f"the answer cannot be written: {error.strerror}") from error


def tell(text: str) -> None:
    """Write to standard error what a person reads beside the answer."""
    print(visible(text), file=sys.stderr)  # noqa: T201


def write_line(text: str) -> None:
    """Write a line to standard output for people."""
    with writing_to(sys.stdout):
        sys.stdout.write(encodable(visible(text), encoding_of(sys.stdout)) + "\n")


def write_exact(text: str) -> None:
    """Write text that another program reads: in UTF-8 to a file or a pipe, escaped line by line to a terminal."""
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
    # The writer quotes what has a character of its line terminator: a carriage return in a name as well.
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

    def lines() -> Iterator[list[str]]:
        for row in _rows(answer):
            yield [_cell(name, value, encoding) for name, value in zip(answer.column_names, row, strict=True)]

    widest = [0 if answer.num_rows else 1] * answer.num_columns  # without rows no column counts as empty
    for line in lines():  # once to measure, once to write: no more than a chunk is in memory
        widest = [max(before, cell_len(cell)) for before, cell in zip(widest, line, strict=True)]
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
        _tell_what_is_missing(layout, width)


def _tell_what_is_missing(layout: Layout, width: int | None) -> None:
    """Name the columns that were dropped or shortened."""
    missing = layout.incomplete()
    if missing and width is None:
        tell(f"Columns {missing}. Use --format json.")
    elif missing:
        tell(f"Columns at a width of {width}: {missing}. Use --format json or a wider terminal.")


def _width(out: TextIO) -> int | None:
    """Return the width of a table: COLUMNS, or the terminal's; None, without a limit, for a file or a pipe."""
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
        columns = [[_plain(value) for value in column.to_pylist(maps_as_pydicts="strict")] for column in batch.columns]
        yield from zip(*columns, strict=True)


def _plain(value: Any) -> Any:
    """Give what JSON can hold."""
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
    return is_number and not _is_time(field.name)


def _is_text(field: pa.Field) -> bool:
    is_other = pa.types.is_boolean(field.type) or pa.types.is_temporal(field.type) or _is_time(field.name)
    return not is_other and not _is_number(field)


def _is_time(name: str) -> bool:
    return name.endswith("_timestamp") or name in ("started_at", "finished_at")


def _cell(name: str, value: Any, encoding: str) -> str:
    if value is None:
        return ""
    if _is_time(name) and isinstance(value, int):
        return to_iso(value)
    return unambiguous(value, encoding) if isinstance(value, str) else str(_nested(value, encoding))


class Progress:
    """Says on standard error what is being done right now and for how long; on a terminal it moves."""

    def __init__(self, *, quiet: bool = False) -> None:
        """Begin; `quiet` for questions: what is said disappears at the end, or is written only of long work."""
        console = Console(stderr=True, highlight=False)
        columns = (
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        )
        self._bars = Bars(*columns, console=console, transient=quiet) if console.is_interactive else None
        self._quiet = quiet
        self._current: TaskID | None = None
        self._said = ""
        self._began = self._said_at = time.monotonic()
        self._next_line_seconds = FIRST_LINE_SECONDS
        self._first_line = threading.Timer(0, lambda: None)

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    def __enter__(self) -> Self:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._first_line.cancel()
        if self._bars:
            self._end(done=error is None)
            self._bars.stop()

    def say(self, text: str) -> None:
        """Say what begins now; what was said before has ended, unless it is the same."""
        if text == self._said:
            return
        self._said, self._said_at = text, time.monotonic()
        self._next_line_seconds = FIRST_LINE_SECONDS
        if self._bars:
            self._end(done=True)
            self._current = self._bars.add_task(visible(text), total=1)
        elif self._quiet:
            self._first_line.cancel()
            self._first_line = threading.Timer(FIRST_LINE_SECONDS, self._line, [text])
            self._first_line.start()
        else:
            self._line(text)

    def advance(self, done: int, total: int, unit: str = "records") -> None:
        """Show how many of `total` records, or other units, the current work has processed, if it takes longer."""
        seconds = time.monotonic() - self._said_at
        text = f"{self._said}: {progress_text(done, total, seconds, unit)}"
        if self._bars and self._current is not None:
            self._bars.update(self._current, description=visible(text))
        elif seconds >= self._next_line_seconds and done < total:
            self._next_line_seconds = seconds + LINE_INTERVAL_SECONDS
            self._first_line.cancel()
            self._line(text)

    def _line(self, text: str) -> None:
        print(f"{self.seconds:7.1f} s  {visible(text)}", file=sys.stderr, flush=True)  # noqa: T201

    def _end(self, *, done: bool) -> None:
        if self._bars and self._current is not None and done:
            self._bars.update(self._current, completed=1)
