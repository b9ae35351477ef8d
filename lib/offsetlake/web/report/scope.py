"""The scope of a report: its groups and its period."""

import shlex
from dataclasses import dataclass

from offsetlake.lake.lake import Lake
from offsetlake.queries.audits import of_groups
from offsetlake.queries.selection import name_or_pattern
from offsetlake.util.times import MAX_TIMESTAMP_MS

MAX_GROUPS = 8
"""The maximum number of groups in a chart or a table."""

_DAY_MS = 86_400_000
DEFAULT_PERIOD_MS = 7 * _DAY_MS  # the default retention time of a broker, and long enough for weekly patterns

_STEPS_MS = (
    *(1000 * seconds for seconds in (1, 2, 5, 10, 20, 30)),
    *(60_000 * minutes for minutes in (1, 2, 5, 10, 20, 30)),
    *(3_600_000 * hours for hours in (1, 2, 3, 6, 12)),
)
_MAX_STEPS = 60


@dataclass(frozen=True, slots=True)
class Scope:
    """The groups of a report and its period.

    Attributes:
        lake: The lake of the report.
        pattern: The shell pattern of the groups; None for all groups.
        group_condition: The same as an SQL condition on group_id.
        from_ms: The start of the period, in ms since the epoch.
        until_ms: The end of the period: the timestamp of the newest record, in ms since the epoch.
    """

    lake: Lake
    pattern: str | None
    group_condition: str
    from_ms: int
    until_ms: int

    def command(self, *words: str, by_group: bool = True) -> str:
        """Return a command on the lake, with `--group` if the scope has a pattern and the command takes one."""
        group = ["--group", self.pattern] if by_group and self.pattern is not None else []
        return shlex.join(["offsetlake", *words, *group, "--lake", str(self.lake.location)])

    @property
    def read_log(self) -> str:
        """The command that reads a log for the first time."""
        return self.command("run", "--log", "DIR", by_group=False)

    @property
    def step_ms(self) -> int:
        """The length of a time step of charts, in ms."""
        return round_step(self.until_ms - self.from_ms, _MAX_STEPS)

    @property
    def days_per_step(self) -> int:
        """The number of days per column of charts by day."""
        return -(-self.step_ms // _DAY_MS)


def round_step(length_ms: int, max_steps: int) -> int:
    """Return the shortest round time step in ms that divides a length into at most `max_steps` steps."""
    days = -(-length_ms // (_DAY_MS * max_steps))
    return next((step for step in _STEPS_MS if step * max_steps >= length_ms), days * _DAY_MS)


def find_scope(lake: Lake, pattern: str | None, since_ms: int | None) -> Scope:
    """Return the scope of the groups that match a pattern.

    The period ends with the newest record. It starts at `since_ms`, by default DEFAULT_PERIOD_MS earlier, but not
    before the oldest record.

    Raises:
        BadRequest: No group in the history matches the pattern.
    """
    pattern = name_or_pattern(lake, pattern)
    group_condition = "true" if pattern is None else of_groups(lake, pattern)
    clock = lake.query("SELECT clock_timestamp FROM log_clock", "log_clock")["clock_timestamp"][0].as_py()
    until = min(max(clock or 0, 0), MAX_TIMESTAMP_MS)
    since = until - DEFAULT_PERIOD_MS if since_ms is None else since_ms
    sql = (
        f"SELECT min(log_timestamp) AS oldest FROM offset_commits WHERE log_timestamp >= {since} AND {group_condition}"  # noqa: S608
    )
    oldest = lake.query(sql, "offset_commits")["oldest"][0].as_py()
    return Scope(lake, pattern, group_condition, min(until if oldest is None else max(oldest, 0), until), until)
