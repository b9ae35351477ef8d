"""The HTML page of the report, which is self-contained. Besides, only `offsetlake.web.console.pages` imports Jinja."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

from jinja2 import Environment, StrictUndefined

from offsetlake.web.report.charts import Chart
from offsetlake.web.report.words import shortened


class Link(NamedTuple):
    """A cell that links to another page."""

    text: str
    target: str


Row = Mapping[str, str | int | Link | None]
"""One row of a table: a string, a number, a link or None by heading."""

_MAX_CELL_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Section:
    """One section of the page.

    Attributes:
        title: The heading.
        text: A description of the data, and advice.
        rows: The rows of the table, all with the same headings.
        chart: What its chart shows; None if there is none.
        omitted: The number of rows that are not shown.
        command: The command that lists all rows.
        groups: The group that each row is about, None for several; empty if the table names them.
        picture: The chart as SVG, once it is drawn.
    """

    title: str
    text: str
    rows: Sequence[Row] = ()
    chart: Chart | None = None
    omitted: int = 0
    command: str = ""
    groups: Sequence[str | None] = ()
    picture: bytes | None = None

    @property
    def source(self) -> str:
        """The chart as a data URL."""
        return f"data:image/svg+xml;base64,{b64encode(self.picture or b'').decode()}"


def page(title: str, introduction: Sequence[str], facts: Mapping[str, str], sections: Sequence[Section]) -> str:
    """Return the page; all texts are escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = _cell
    template = environment.from_string(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(title=title, introduction=introduction, facts=facts, sections=sections)


def _cell(value: str | int | Link | None) -> str:
    if value is None:
        return ""
    if isinstance(value, Link):
        return value.text
    return f"{value:,}" if isinstance(value, int) else shortened(value, _MAX_CELL_CHARACTERS)
