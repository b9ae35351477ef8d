"""What a report is about: which groups, and from when to when."""

import shlex
from dataclasses import dataclass

from offsetlake.lake.lake import Lake
from offsetlake.queries.audits import of_groups
from offsetlake.util.times import LAST_INSTANT

PERIOD = 7 * 86_400_000  # ms: a broker keeps offsets as long, and a week has every rhythm there is
MOST_GROUPS = 8
"""How many groups a picture or a table has: those that matter most."""

_STEPS = (
    *(1000 * s for s in (1, 2, 5, 10, 20, 30)),
    *(60_000 * m for m in (1, 2, 5, 10, 20, 30)),
    *(3_600_000 * h for h in (1, 2, 3, 6, 12)),
)
_DAY = 86_400_000
_MOST_STEPS = 60


@dataclass(frozen=True, slots=True)
class Scope:
    """The groups of a report and its period.

    | field     | is |
    |-----------|----|
    | pattern   | of the groups; None: all |
    | of_groups | the same as an SQL condition on group_id |
    | from_ms, until_ms | the period, ms since the epoch; its end is the newest record read |
    """

    lake: Lake
    pattern: str | None
    of_groups: str
    from_ms: int
    until_ms: int

    def command(self, *words: str, by_group: bool = True) -> str:
        """Return a whole command about the lake, and about these groups alone if it takes `--group`."""
        named = ["--group", self.pattern] if by_group and self.pattern is not None else []
        return shlex.join(["offsetlake", *words, *named, "--lake", str(self.lake.path)])

    @property
    def read_log(self) -> str:
        """The command that reads a log for the first time."""
        return self.command("run", "--log", "DIR", by_group=False)

    @property
    def step_ms(self) -> int:
        """How long a step of time is, so that the period has about as many as can be drawn."""
        return step_of(self.until_ms - self.from_ms, _MOST_STEPS)

    @property
    def days_a_step(self) -> int:
        """How many days are drawn as one, where days are drawn."""
        return -(-self.step_ms // _DAY)


def step_of(length_ms: int, most: int) -> int:
    """Give the shortest round step of time, in ms, that so many of make up a length."""
    return next((step for step in _STEPS if step * most >= length_ms), -(-length_ms // (_DAY * most)) * _DAY)


def scope(lake: Lake, pattern: str | None, since_ms: int | None) -> Scope:
    """Take the period up to the newest record, since an instant or PERIOD before it, but not before there was anything.

    Raises BadRequest where history has no group like the pattern.
    """
    chosen = "true" if pattern is None else of_groups(lake, pattern)
    clock = lake.query("SELECT clock_timestamp FROM log_clock", "log_clock")["clock_timestamp"][0].as_py()
    until = min(max(clock or 0, 0), LAST_INSTANT)
    since = until - PERIOD if since_ms is None else since_ms
    oldest = lake.query(
        f"SELECT min(log_timestamp) AS at FROM offset_commits WHERE log_timestamp >= {since} AND {chosen}",  # noqa: S608
        "offset_commits",
    )["at"][0].as_py()
    return Scope(lake, pattern, chosen, min(until if oldest is None else max(oldest, 0), until), until)
