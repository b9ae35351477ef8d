"""The state of a page as its URL contains it, and the command that gives the same answer."""

import shlex
from dataclasses import dataclass, fields, replace
from urllib.parse import urlencode

from offsetlake.errors import BadRequest
from offsetlake.queries.questions import check_state
from offsetlake.util.times import to_ms

PAGE_ROWS = 100
SORTS = ("group_id", "state", "member_count", "offsets")
_MAX_PAGE = 10**9
_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """What a page shows; every field is a parameter of its URL, and those with default values are omitted there.

    Attributes:
        at: The instant, as the reader wrote it; empty for the newest state.
        q: A part of the names of groups, or a shell pattern.
        state: Only groups in this state; empty for all.
        sort: A column of SORTS, after a minus for descending order.
        page: The number of the page, from 1.
        group, topic, partition: The selection of the pages of groups and partitions.

    """

    at: str = ""
    q: str = ""
    state: str = ""
    sort: str = "group_id"
    page: int = 1
    group: str = ""
    topic: str = ""
    partition: int = 0

    def __post_init__(self) -> None:
        """Raise BadRequest for a value that no page can have."""
        if self.sort.removeprefix("-") not in SORTS:
            raise BadRequest(f"Invalid sort {self.sort!r}: expected one of {', '.join(SORTS)}, or one after a minus.")
        if not 1 <= self.page <= _MAX_PAGE:
            raise BadRequest(f"Invalid page {self.page}: expected a number from 1 to {_MAX_PAGE}.")
        check_state(self.state or None)
        if self.at:
            to_ms(self.at)

    @property
    def at_ms(self) -> int | None:
        """The instant in ms since the epoch; None for the newest state."""
        return to_ms(self.at) if self.at else None

    @property
    def pattern(self) -> str | None:
        """The shell pattern that `q` stands for; None for all groups."""
        if not self.q:
            return None
        return self.q if _WILDCARDS & {*self.q} else f"*{self.q}*"

    def url(self, path: str, **changes: str | int) -> str:
        """Return the address of a page with this state after changes to some fields."""
        state = replace(self, **changes)  # type: ignore[arg-type]
        values = {field.name: getattr(state, field.name) for field in fields(state)}
        defaults = {field.name: field.default for field in fields(state)}
        query = urlencode({name: value for name, value in values.items() if value != defaults[name]})
        return f"{path}?{query}" if query else path


def command_line(*words: str, **options: str | int | None) -> str:
    """Return an `offsetlake` command, quoted for a shell; options that are None are omitted."""
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if value is not None]
    return shlex.join(["offsetlake", *words, *given])
