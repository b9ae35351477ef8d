"""The report's page: one HTML file that needs nothing else. No other module imports Jinja."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from offsetlake.report.words import shortened

Row = Mapping[str, str | int | None]
"""One row of a table: by heading a text, a number, or nothing."""

_LONGEST_CELL = 80  # characters


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page.

    | field    | is |
    |----------|----|
    | title    | its heading |
    | says     | what there is to see, and what to do |
    | rows     | the numbers, rows of the same headings |
    | picture  | SVG; None where there is nothing to draw |
    | left_out | how many more rows there are |
    | command  | what tells all of it |
    """

    title: str
    says: str
    rows: Sequence[Row] = ()
    picture: bytes | None = None
    left_out: int = 0
    command: str = ""

    @property
    def source(self) -> str:
        """The picture as an address that holds all of it."""
        return f"data:image/svg+xml;base64,{b64encode(self.picture or b'').decode()}"


def page(title: str, says: Sequence[str], facts: Mapping[str, str], sections: Sequence[Section]) -> str:
    """Write the page; whatever a text has in it stands there as it is, and is no HTML."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = _cell
    template = environment.from_string(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(title=title, says=says, facts=facts, sections=sections)


def _cell(value: str | int | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else shortened(value, _LONGEST_CELL)
