"""The state of a page as its URL contains it, and the command that gives the same answer."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlencode

from offsetlake.errors import BadRequest
from offsetlake.queries.history.key_history import EVENTS
from offsetlake.queries.selection import check_state
from offsetlake.util.times import to_iso, to_ms

PAGE_ROWS = 100
SORTS = ("group_id", "state", "status", "lag", "member_count", "offsets")
_MAX_PAGE = 10**9
_WILDCARDS = frozenset("*?[")
_LAKE_OPTIONS = ("--lake", "--config", "--fleet", "--cluster")
_PARAMETERS = {"second": "and"}
"""The names of parameters that are not names of fields."""


BASE: ContextVar[str] = ContextVar("base", default="")
"""The path below which the pages of the lake are: that of its cluster if the console shows several, that at which
`offsetlake serve` has the console, otherwise empty."""


CLUSTERS = "/clusters/"
"""The path below which each cluster has a path."""


def cluster() -> str:
    """Return the name of the cluster whose pages are shown; empty if the console shows one lake, or all clusters."""
    base = BASE.get()
    return base.removeprefix(CLUSTERS) if base.startswith(CLUSTERS) else ""


def at_base(path: str) -> str:
    """Return the path of a page of the lake whose request is being handled."""
    return BASE.get() + path


class RejectedEntry(NamedTuple):
    """What a visitor entered as an instant, and why it cannot be used; no message if another entry has it.

    `earliest` is the query of the same page at the earliest instant; empty if the entry is not before history.
    """

    text: str
    message: str
    earliest: str = ""


NEEDS_FIRST = "A second instant needs a first one: enter both to see what differs between them."
REJECTED: ContextVar[Mapping[str, RejectedEntry]] = ContextVar("rejected", default=MappingProxyType({}))
"""The rejected instants of the page that is requested, by the name of their field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """What a page shows; every field is a parameter of its URL, and those with default values are omitted there.

    Attributes:
        at: The instant, as the reader wrote it; empty for the newest state.
        second: A second instant to compare the first one with, the parameter `and`; empty for none.
        q: A part of the names of groups, or a shell pattern.
        state: Only groups in this state; empty for all.
        sort: A column of SORTS, after a minus for descending order.
        page: The number of the page, from 1.
        group, topic, partition: The selection of the pages of groups and partitions.
        record: The log position of the record that a page explains, such as `9:1234`.
        before: The log position of the last row of the preceding page.
        since, until: The period of charts and commits, as the reader wrote it; empty for all of history.
        event: Only commits of this event; empty for all.
        who: Only commits of which the principal or the client id contains this text.
        run: Only the cycle of this run, of the page of runs; 0 for all cycles.
        policy: The retention policy of the page what-if, in TOML; empty for the configured one.

    """

    at: str = ""
    second: str = ""
    q: str = ""
    state: str = ""
    sort: str = "group_id"
    page: int = 1
    group: str = ""
    topic: str = ""
    partition: int = -1
    record: str = ""
    before: str = ""
    since: str = ""
    until: str = ""
    event: str = ""
    who: str = ""
    run: int = 0
    policy: str = ""

    def __post_init__(self) -> None:
        """Raise BadRequest for a value that no page can have."""
        if self.sort.removeprefix("-") not in SORTS:
            raise BadRequest(f"Invalid sort {self.sort!r}: expected one of {', '.join(SORTS)}, or one after a minus.")
        if not 1 <= self.page <= _MAX_PAGE:
            raise BadRequest(f"Invalid page {self.page}: expected a number from 1 to {_MAX_PAGE}.")
        check_state(self.state or None)
        for instant in (self.at, self.second, self.since, self.until):
            if instant:
                to_ms(instant)
        if self.event not in ("", *EVENTS):
            raise BadRequest(f"Invalid event {self.event!r}: expected one of {', '.join(EVENTS)}.")
        if self.second and not self.at:
            raise BadRequest(NEEDS_FIRST)

    @property
    def at_ms(self) -> int | None:
        """The instant in ms since the epoch; None for the newest state."""
        return to_ms(self.at) if self.at else None

    @property
    def second_ms(self) -> int | None:
        """The second instant in ms since the epoch; None for none."""
        return to_ms(self.second) if self.second else None

    @property
    def span_ms(self) -> tuple[int, int] | None:
        """The two instants in ms since the epoch, the earlier one first; None unless there are two."""
        if not self.second:
            return None
        first, second = sorted((to_ms(self.at), to_ms(self.second)))
        return first, second

    @property
    def span_options(self) -> dict[str, str]:
        """The options of `offsetlake diff` for the two instants."""
        first, second = self.span_ms or (0, 0)
        return {"from": to_iso(first), "to": to_iso(second)}

    @property
    def period_ms(self) -> tuple[int | None, int | None]:
        """The period that the page shows, in ms: `since` and `until`, or the time up to or between the instants."""
        first, last = self.span_ms or (None, self.at_ms)
        return to_ms(self.since) if self.since else first, to_ms(self.until) if self.until else last

    @property
    def pattern(self) -> str | None:
        """The shell pattern that `q` stands for; None for all groups."""
        if not self.q:
            return None
        return self.q if _WILDCARDS & {*self.q} else f"*{self.q}*"

    def parameters(self, *omitted: str) -> Iterator[tuple[str, str | int]]:
        """Yield the parameters of the URL that do not have their default values, without the fields `omitted`."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in omitted and value != field.default:
                yield _PARAMETERS.get(field.name, field.name), value

    def url(self, path: str, extra: Mapping[str, str] = MappingProxyType({}), **changes: str | int) -> str:
        """Return the address of a page with this state after changes to some fields.

        `extra` are parameters that only that page has.
        """
        query = urlencode([*extra.items(), *replace(self, **changes).parameters()])  # type: ignore[arg-type]
        return f"{at_base(path)}?{query}" if query else at_base(path)

    def elsewhere(self, path: str, *, extra: Sequence[tuple[str, str]] = (), **selection: str | int) -> str:
        """Return the address of another page at the same instants, with nothing else but a selection.

        `extra` are parameters that only that page has.
        """
        state = PageState(at=self.at, second=self.second, **selection)  # type: ignore[arg-type]
        query = urlencode([*extra, *state.parameters()])
        return f"{at_base(path)}?{query}" if query else at_base(path)


def lake_options(source: Sequence[str]) -> list[str]:
    """Return those of the options with the lake and the log that commands which need no log have."""
    return [option for option in source if option.startswith(_LAKE_OPTIONS)]


def change_command(words: Sequence[str], source: Sequence[str], *, execute: bool = False) -> str:
    """Return the command of a change; the names after `--` in its words are its arguments, at its end.

    Readers append `--execute` to the command of a plan, so `--` is left out unless a name begins with a minus.
    """
    end = words.index("--") if "--" in words else len(words)
    names = words[end + 1 :]
    separator = ["--"] if names and (execute or any(name.startswith("-") for name in names)) else []
    options = [*source, *(["--execute"] if execute else [])]
    return shlex.join(["offsetlake", *words[:end], *options, *separator, *names])


def command_line(*words: str, **options: str | int | None) -> str:
    """Return an `offsetlake` command, quoted for a shell; options that are None are omitted."""
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if value is not None]
    return shlex.join(["offsetlake", *words, *given])
