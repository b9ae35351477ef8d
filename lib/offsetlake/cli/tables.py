"""Fits a table to a terminal: wraps headers, shortens long texts, and drops the least important columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len as terminal_cells
from rich.cells import set_cell_size

MAX_CELL_WIDTH = 255  # terminal cells, whatever the width of the terminal
READABLE_WIDTH = 24  # terminal cells to which a text is shortened before a less important column is dropped
MIN_TEXT_WIDTH = 8
GAP = "  "


def cell_len(text: str) -> int:
    """Return the number of terminal cells of a printable text."""
    return len(text) if text.isascii() else terminal_cells(text)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    | Field      | Description |
    |------------|-------------|
    | name       | The header. |
    | importance | 1 for a column that is never dropped; columns with the highest number are dropped first. |
    | is_number  | Whether the values are aligned to the right. |
    | is_text    | Whether the values may be shortened; numbers, times and booleans never are. |
    | widest     | The terminal cells of the widest value; 0 if all are null. |
    """

    name: str
    importance: int
    is_number: bool
    is_text: bool
    widest: int

    @property
    def header_width(self) -> int:
        """The terminal cells of the header if it is wrapped after each underscore."""
        return max(map(cell_len, _parts(self.name)))

    @property
    def full_width(self) -> int:
        """The terminal cells of the header in one line and all values in full."""
        return max(cell_len(self.name), self.values_width)

    @property
    def values_width(self) -> int:
        """The terminal cells of the widest value; at most MAX_CELL_WIDTH for texts."""
        return min(self.widest, MAX_CELL_WIDTH) if self.is_text else self.widest

    @property
    def is_cut(self) -> bool:
        """Whether a value is longer than MAX_CELL_WIDTH."""
        return self.widest > self.values_width

    @property
    def readable_width(self) -> int:
        """The terminal cells below which a column is dropped rather than shortened further, unless it is important."""
        values = min(self.values_width, READABLE_WIDTH) if self.is_text else self.values_width
        return max(self.header_width, values)

    @property
    def min_width(self) -> int:
        """The terminal cells below which the column is never shortened unless it is the only one."""
        return max(self.header_width, min(self.values_width, MIN_TEXT_WIDTH)) if self.is_text else self.readable_width


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table that are shown, by their positions, with the width of each in terminal cells."""

    columns: Sequence[Column]
    widths: dict[int, int]

    def incomplete(self) -> str:
        """Return a text with the columns that are dropped or shortened; empty if the table shows everything."""
        dropped = [column for position, column in enumerate(self.columns) if position not in self.widths]
        shortened = [
            self.columns[position] for position, width in self.widths.items() if width < self.columns[position].widest
        ]
        kinds = {
            "not shown": [column for column in dropped if column.widest],
            "empty and not shown": [column for column in dropped if not column.widest],
            "shortened": [column for column in shortened if column is not self._wrapping or column.is_cut],
        }
        return "; ".join(
            f"{kind}: {', '.join(column.name for column in found)}" for kind, found in kinds.items() if found
        )

    def header(self) -> Iterator[str]:
        """Return the lines of the header."""
        cells = {position: _header(self.columns[position].name, width) for position, width in self.widths.items()}
        height = max(map(len, cells.values()))
        for number in range(height):  # aligned to the bottom
            yield self._line(
                {position: ["", *lines][max(0, number - height + len(lines) + 1)] for position, lines in cells.items()}
            )

    def rule(self, character: str) -> str:
        """Return the line between the header and the rows."""
        return GAP.join(character * width for width in self.widths.values())

    def row(self, cells: Sequence[str], ellipsis: str) -> Iterator[str]:
        """Return the lines of a row; `cells` contains a text for each column, including those not shown.

        If the last column is text, which is usually a sentence, it is wrapped instead of shortened.
        """
        line = {position: shorten(cells[position], width, ellipsis) for position, width in self.widths.items()}
        if self._wrapping is None:
            yield self._line(line)
            return
        last = next(reversed(self.widths))
        width = self.widths[last]
        first, *others = _wrapped(shorten(cells[last], MAX_CELL_WIDTH, ellipsis).split(" "), width, ellipsis)
        yield self._line({**line, last: first})
        for other in others:
            yield self._line({**dict.fromkeys(line, ""), last: other})

    @property
    def _wrapping(self) -> Column | None:
        last = self.columns[next(reversed(self.widths))]
        return last if last.is_text else None

    def _line(self, cells: dict[int, str]) -> str:
        aligned = []
        for position, text in cells.items():
            padding = " " * (self.widths[position] - cell_len(text))
            aligned.append(padding + text if self.columns[position].is_number else text + padding)
        return GAP.join(aligned).rstrip()


def fit(columns: Sequence[Column], width: int | None) -> Layout:
    """Return a layout in which no line is wider than `width` terminal cells; None is unlimited."""
    full = {position: column.full_width for position, column in enumerate(columns)}
    if width is None or _total(full) <= width:
        return Layout(columns, full)
    widths: dict[int, int] = {}
    for position in sorted(full, key=lambda position: (columns[position].importance, position)):
        column = columns[position]
        fits = (
            column.widest and _total({**widths, position: column.readable_width}) <= width
        )  # a column of nulls is dropped
        if column.importance == 1 or fits:
            widths[position] = column.readable_width
    widths = widths or {0: width}
    widths = _squeezed(columns, dict(sorted(widths.items())), width)
    return Layout(columns, _widened(columns, widths, width))


def shorten(text: str, width: int, ellipsis: str) -> str:
    """Return the text in at most `width` terminal cells: its beginning, an ellipsis, and its end."""
    if cell_len(text) <= width:
        return text
    if width <= len(ellipsis):
        return "." * width
    kept = width - len(ellipsis)
    end = kept // 3
    tail = set_cell_size(text[::-1][:kept], end).rstrip()[::-1] if end else ""
    return set_cell_size(text[:kept], kept - end).rstrip() + ellipsis + tail


def _squeezed(columns: Sequence[Column], widths: dict[int, int], width: int) -> dict[int, int]:
    """Return widths that fit: the widest texts are shortened first, then the rightmost columns are dropped."""
    while _total(widths) > width:
        texts = [position for position, current in widths.items() if current > columns[position].min_width]
        if texts:
            widths[max(texts, key=widths.__getitem__)] -= 1
        elif len(widths) > 1:
            widths.popitem()
        else:
            widths = dict.fromkeys(widths, width)
    return widths


def _widened(columns: Sequence[Column], widths: dict[int, int], width: int) -> dict[int, int]:
    """Return widths that use the rest of the line: for shortened values, the narrowest first, then for headers."""
    left = width - _total(widths)
    for wanted in ([column.values_width for column in columns], [column.full_width for column in columns]):
        for position in sorted(widths, key=wanted.__getitem__):
            more = min(left, max(0, wanted[position] - widths[position]))
            widths[position] += more
            left -= more
    return widths


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + len(GAP) * (len(widths) - 1)


def _parts(name: str) -> list[str]:
    """Return the parts of a header between which it can be wrapped: after each underscore."""
    return [part for part in name.replace("_", "_\0").split("\0") if part] or [name]


def _header(name: str, width: int) -> list[str]:
    """Return the lines of a header; a part that is too wide is truncated."""
    return _joined(_parts(name), width, "")


def _wrapped(words: Sequence[str], width: int, ellipsis: str) -> list[str]:
    """Return the lines of wrapped words; a word that is too wide is shortened."""
    return _joined([shorten(word, width, ellipsis) for word in words], width, " ")


def _joined(parts: Sequence[str], width: int, separator: str) -> list[str]:
    lines: list[str] = []
    for part in parts:
        if lines and cell_len(lines[-1] + separator + part) <= width:
            lines[-1] += separator + part
        else:
            lines.append(set_cell_size(part, min(cell_len(part), width)))
    return lines
