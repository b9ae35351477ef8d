"""How answers and progress look: answers on standard output, all else on standard error."""

import csv
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from types import TracebackType
from typing import Any, Self, TextIO

import pyarrow as pa
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from offsetlake.errors import OffsetlakeError
from offsetlake.times import to_iso

MOST_DRAWN = 1000  # rows: more would take rich seconds to lay out, and nobody reads them on a screen
WIDEST_DRAWN = 60  # characters of a line in a cell on a screen; longer texts go on in the next line
_ENDLESS = 1_000_000  # characters: a line that nothing limits
_CHUNK = 10_000  # rows turned into Python objects at a time


def write(answer: pa.Table, style: str, shown: Sequence[str] = (), file: TextIO | None = None) -> None:
    """Write an answer.

    | style | is |
    |-------|----|
    | json  | one object a line with all columns; bytes as hexadecimal digits |
    | csv   | a header, then all columns; null is empty, lists and the like are JSON |
    | table | for people: the columns `shown` (all where none are named), times as ISO 8601, never cut off |

    Raises OffsetlakeError where the output takes no more, BrokenPipeError where nobody reads it any more.
    """
    out = file or sys.stdout
    with writing_to(out):
        _write(answer, style, shown, out)


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


def _write(answer: pa.Table, style: str, shown: Sequence[str], out: TextIO) -> None:
    if style == "json":
        for row in _rows(answer):
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    elif style == "csv":
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(answer.column_names)
        for row in _rows(answer):
            writer.writerow([_nested(value) for value in row.values()])
    else:
        _write_table(answer.select(list(shown)) if shown else answer, out)


def _rows(answer: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in answer.to_batches(max_chunksize=_CHUNK):
        columns = [[_plain(value) for value in column.to_pylist(maps_as_pydicts="strict")] for column in batch.columns]
        for values in zip(*columns, strict=True):
            yield dict(zip(answer.column_names, values, strict=True))


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


def _nested(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _write_table(answer: pa.Table, out: TextIO) -> None:
    names = answer.column_names
    numbers = [_is_number(field) for field in answer.schema]
    cells = [[_cell(name, value) for name, value in row.items()] for row in _rows(answer)]
    console = Console(file=out)
    if console.is_terminal and len(cells) <= MOST_DRAWN:
        table = _drawn(names, numbers, cells)
        if console.measure(table, options=console.options.update(width=_ENDLESS)).maximum <= console.width:
            console.print(table)
            return
    widths = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    for row in [names, *cells]:
        line = (_aligned(*each) for each in zip(row, widths, numbers, strict=True))
        out.write("  ".join(line).rstrip() + "\n")


def _drawn(names: list[str], numbers: list[bool], cells: list[list[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, number in zip(names, numbers, strict=True):
        table.add_column(Text(name), justify="right" if number else "left", overflow="fold", max_width=WIDEST_DRAWN)
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _aligned(text: str, width: int, number: bool) -> str:
    gap = " " * (width - cell_len(text))
    return gap + text if number else text + gap


def _is_number(field: pa.Field) -> bool:
    kind = field.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return is_number and not _is_time(field.name)


def _is_time(name: str) -> bool:
    return name.endswith("_timestamp") or name in ("started_at", "finished_at")


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if _is_time(name) and isinstance(value, int):
        return to_iso(value)
    return visible(str(_nested(value)))


def visible(text: str) -> str:
    """Spell out what would break a line or steer the terminal: names and metadata come from anybody."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class Progress:
    """Says on standard error what is being done right now and for how long; on a terminal it moves."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        columns = (
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        )
        self._bars = Bars(*columns, console=console) if console.is_interactive else None
        self._current: TaskID | None = None
        self._said = ""
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars:
            self._end(done=error is None)
            self._bars.stop()

    def say(self, text: str) -> None:
        """Say what begins now; what was said before has ended, unless it is the same."""
        if text == self._said:
            return
        self._said = text
        if self._bars is None:
            print(f"{time.monotonic() - self._began:7.1f} s  {visible(text)}", file=sys.stderr, flush=True)  # noqa: T201
            return
        self._end(done=True)
        self._current = self._bars.add_task(visible(text), total=1)

    def _end(self, *, done: bool) -> None:
        if self._bars and self._current is not None and done:
            self._bars.update(self._current, completed=1)
