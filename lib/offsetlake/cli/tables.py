"""How a table fits a terminal: headers wrap, long texts are shortened, and the least important columns are dropped."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len as terminal_cells
from rich.cells import set_cell_size

MAX_CELL_WIDTH = 255  # terminal cells, however wide the terminal: a name in a log line has as many characters
READABLE_WIDTH = 24  # terminal cells that a text keeps while there is a less important column to drop
MIN_TEXT_WIDTH = 8
GAP = "  "


def cell_len(text: str) -> int:
    """Return how many terminal cells a printable text takes."""
    return len(text) if text.isascii() else terminal_cells(text)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    | field      | is |
    |------------|----|
    | name       | its header |
    | importance | 1 for a column that the table makes no sense without; columns with the highest number are dropped first |
    | is_number  | aligned to the right |
    | is_text    | may be shortened; numbers, times and booleans never are |
    | widest     | terminal cells of its widest value; 0 where all are null |
    """  # noqa: E501 - a row of a table

    name: str
    importance: int
    is_number: bool
    is_text: bool
    widest: int

    @property
    def header_width(self) -> int:
        """Terminal cells that the header needs when it wraps after each underscore."""
        return max(map(cell_len, _parts(self.name)))

    @property
    def full_width(self) -> int:
        """Terminal cells that show the header in one line and all values in full."""
        return max(cell_len(self.name), self.values_width)

    @property
    def values_width(self) -> int:
        """Terminal cells of the widest value, of a text no more than MAX_CELL_WIDTH."""
        return min(self.widest, MAX_CELL_WIDTH) if self.is_text else self.widest

    @property
    def is_cut(self) -> bool:
        """Whether some value is longer than any table shows."""
        return self.widest > self.values_width

    @property
    def readable_width(self) -> int:
        """Terminal cells that the column needs at least to be readable."""
        values = min(self.values_width, READABLE_WIDTH) if self.is_text else self.values_width
        return max(self.header_width, values)

    @property
    def min_width(self) -> int:
        """Terminal cells below which the column is of no use."""
        return max(self.header_width, min(self.values_width, MIN_TEXT_WIDTH)) if self.is_text else self.readable_width


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns a table has, by their positions, and how wide each is."""

    columns: Sequence[Column]
    widths: dict[int, int]

    def incomplete(self) -> str:
        """Return which columns are dropped or shortened; an empty text where the table shows everything."""
        dropped = [column for at, column in enumerate(self.columns) if at not in self.widths]
        shortened = [self.columns[at] for at, width in self.widths.items() if width < self.columns[at].widest]
        kinds = {
            "not shown": [column for column in dropped if column.widest],
            "empty and not shown": [column for column in dropped if not column.widest],
            "shortened": [column for column in shortened if column is not self._wrapping or column.is_cut],
        }
        return "; ".join(f"{kind}: {', '.join(each.name for each in named)}" for kind, named in kinds.items() if named)

    def header(self) -> Iterator[str]:
        """Return the lines of the header."""
        cells = {at: _header(self.columns[at].name, width) for at, width in self.widths.items()}
        height = max(map(len, cells.values()))
        for number in range(height):  # aligned to the last line, next to the values
            yield self._line(
                {at: ["", *lines][max(0, number - height + len(lines) + 1)] for at, lines in cells.items()}
            )

    def rule(self, character: str) -> str:
        """Return the line between the header and the rows."""
        return GAP.join(character * width for width in self.widths.values())

    def row(self, cells: Sequence[str], ellipsis: str) -> Iterator[str]:
        """Return the lines of a row; `cells` has one text for each column, also for those not shown.

        Where the last column is text, it goes on in more lines: most often it is a sentence.
        """
        line = {at: shorten(cells[at], width, ellipsis) for at, width in self.widths.items()}
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
        for at, text in cells.items():
            padding = " " * (self.widths[at] - cell_len(text))
            aligned.append(padding + text if self.columns[at].is_number else text + padding)
        return GAP.join(aligned).rstrip()


def fit(columns: Sequence[Column], width: int | None) -> Layout:
    """Return the layout with which no line is wider than `width` terminal cells; None is unlimited."""
    full = {at: column.full_width for at, column in enumerate(columns)}
    if width is None or _total(full) <= width:
        return Layout(columns, full)
    widths: dict[int, int] = {}
    for at in sorted(full, key=lambda at: (columns[at].importance, at)):
        column = columns[at]
        fits = column.widest and _total({**widths, at: column.readable_width}) <= width  # not where all are null
        if column.importance == 1 or fits:
            widths[at] = column.readable_width
    widths = widths or {0: width}
    widths = _squeezed(columns, dict(sorted(widths.items())), width)
    return Layout(columns, _widened(columns, widths, width))


def shorten(text: str, width: int, ellipsis: str) -> str:
    """Return the text in at most `width` terminal cells: its beginning and its end, and an ellipsis between them."""
    if cell_len(text) <= width:
        return text
    if width <= len(ellipsis):
        return "." * width
    kept = width - len(ellipsis)
    end = kept // 3
    tail = set_cell_size(text[::-1][:kept], end).rstrip()[::-1] if end else ""
    return set_cell_size(text[:kept], kept - end).rstrip() + ellipsis + tail


def _squeezed(columns: Sequence[Column], widths: dict[int, int], width: int) -> dict[int, int]:
    """Return widths that fit: the widest text gives first; where texts cannot give more, columns at the right."""
    while _total(widths) > width:
        texts = [at for at, current in widths.items() if current > columns[at].min_width]
        if texts:
            widths[max(texts, key=widths.__getitem__)] -= 1
        elif len(widths) > 1:
            widths.popitem()
        else:
            widths = dict.fromkeys(widths, width)
    return widths


def _widened(columns: Sequence[Column], widths: dict[int, int], width: int) -> dict[int, int]:
    """Return widths with what is left of the line: first for values cut short, the shortest first, then for headers."""
    left = width - _total(widths)
    for wanted in ([each.values_width for each in columns], [each.full_width for each in columns]):
        for at in sorted(widths, key=wanted.__getitem__):
            more = min(left, max(0, wanted[at] - widths[at]))
            widths[at] += more
            left -= more
    return widths


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + len(GAP) * (len(widths) - 1)


def _parts(name: str) -> list[str]:
    """Return where a header can wrap: after each underscore."""
    return [part for part in name.replace("_", "_\0").split("\0") if part] or [name]


def _header(name: str, width: int) -> list[str]:
    """Return the lines of a header; a part that is too wide is cut."""
    return _joined(_parts(name), width, "")


def _wrapped(words: Sequence[str], width: int, ellipsis: str) -> list[str]:
    """Return words in lines; a word that is too wide is shortened."""
    return _joined([shorten(word, width, ellipsis) for word in words], width, " ")


def _joined(parts: Sequence[str], width: int, separator: str) -> list[str]:
    lines: list[str] = []
    for part in parts:
        if lines and cell_len(lines[-1] + separator + part) <= width:
            lines[-1] += separator + part
        else:
            lines.append(set_cell_size(part, min(cell_len(part), width)))
    return lines
