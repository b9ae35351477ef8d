"""The numbers of a report, asked of the views; each answer has as many rows as are shown, or a few a group shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from offsetlake.lake.answers import PartedAnswer
from offsetlake.lake.engine import SPILLING, Engine
from offsetlake.lake.views import views
from offsetlake.queries import questions
from offsetlake.queries.questions import quoted
from offsetlake.report.scope import MOST_GROUPS, Scope

MOST_JUDGED = 200
"""How many groups are looked at commit by commit: what bounds the memory. Those that commit most, whatever else."""

_DAY = 86_400_000


@dataclass(frozen=True, slots=True)
class Busiest:
    """The groups that commit most, and their records.

    Several views are asked about these groups. All read the copy: history is read once
    instead of once for each.

    | field   | is |
    |---------|----|
    | groups  | the busiest first, as `growth_by_group` returns them |
    | commits | a temporary copy of their rows of `offset_commits` and of all commits in parts, or the table itself |
    """

    groups: pa.Table
    commits: DeltaTable

    @property
    def names(self) -> list[str]:
        """The names of the groups, the busiest first."""
        names: list[str] = self.groups["group_id"].to_pylist()
        return names

    def engine(self, scope: Scope, view: str) -> Engine:
        """Open the SQL engine over a view of the copied records; it spills."""
        return scope.lake.engine([view], {}, settings=SPILLING, instead={"offset_commits": self.commits})


def busiest(scope: Scope) -> Busiest:
    """Find the MOST_JUDGED groups that commit most, and copy their records unless they are most of history."""
    found = growth_by_group(scope, "commits", MOST_JUDGED)
    groups = found.filter(pc.greater(found["commits"], 0))
    if 2 * (pc.sum(groups["records"]).as_py() or 0) > scope.lake.count("offset_commits"):
        return Busiest(groups, scope.lake.delta_table("offset_commits"))
    among = _among(groups["group_id"].to_pylist())
    copied = PartedAnswer("log_offset")
    copied.add(
        scope.lake.engine(["offset_commits"], {}).stream(
            f"SELECT * FROM offset_commits WHERE {among} OR commit_id IS NOT NULL"  # noqa: S608
        )
    )
    return Busiest(groups, copied.answer().table)


def over_time(scope: Scope, of: Busiest) -> pa.Table:
    """Return what the MOST_GROUPS busiest groups did in each step of time, by time.

    | column         | is |
    |----------------|----|
    | group_id       | the group |
    | at             | when the step begins, ms since the epoch |
    | commits        | offsets committed in it |
    | ahead          | by how many records its offsets went ahead, less those they went back |
    | back           | by how many they went back |
    | newest         | when the newest of these commits took effect, ms |
    """
    return of.engine(scope, "commit_steps").query(
        f"""
        SELECT group_id, effective_timestamp - effective_timestamp % {scope.step_ms} AS at, count(*) AS commits,
          coalesce(sum(CAST(new_offset AS DOUBLE) - old_offset), 0) AS ahead,
          coalesce(sum(CASE WHEN new_offset < old_offset THEN CAST(old_offset AS DOUBLE) - new_offset END), 0) AS back,
          max(effective_timestamp) AS newest
        FROM commit_steps
        WHERE kind = 'commit' AND effective_timestamp BETWEEN {scope.from_ms} AND {scope.until_ms}
          AND {_among(of.names[:MOST_GROUPS])}
        GROUP BY group_id, effective_timestamp - effective_timestamp % {scope.step_ms} ORDER BY at"""  # noqa: S608
    )


def worst_committers(scope: Scope, of: Busiest) -> pa.Table:
    """Return the busiest groups that commit most for nothing: group_id, commits, redundant, busiest_hour_commits."""
    first_day = scope.from_ms - scope.from_ms % _DAY
    return of.engine(scope, "commit_rate").query(
        f"""
        SELECT group_id, sum(commits) AS commits, sum(redundant) AS redundant,
          max(busiest_hour_commits) AS busiest_hour_commits
        FROM commit_rate WHERE day_timestamp BETWEEN {first_day} AND {scope.until_ms} AND {_among(of.names)}
        GROUP BY group_id ORDER BY redundant DESC, commits DESC, group_id LIMIT {MOST_GROUPS}"""  # noqa: S608
    )


def worst(scope: Scope, view: str, of: Busiest, condition: str = "true") -> dict[str, Any] | None:
    """Return the first row of a view, of the busiest groups in the period; and `found`, how many rows there are."""
    asked = views()[view]
    found = (
        of.engine(scope, view)
        .query(
            f"""
        SELECT *, count(*) OVER () AS found FROM {view}
        WHERE {condition} AND {asked.since} BETWEEN {scope.from_ms} AND {scope.until_ms} AND {_among(of.names)}
        ORDER BY {asked.order} LIMIT 1""",  # noqa: S608
        )
        .to_pylist()
    )
    return found[0] if found else None


def worst_orphan(scope: Scope) -> dict[str, Any] | None:
    """Return the first row of the view `orphan_groups` in its order; and `found`, how many there are."""
    found = scope.lake.query(
        f"""
        SELECT *, count(*) OVER () AS found FROM orphan_groups WHERE {scope.of_groups}
        ORDER BY {views()["orphan_groups"].order} LIMIT 1""",  # noqa: S608
        "orphan_groups",
    ).to_pylist()
    return found[0] if found else None


def transactions(scope: Scope) -> pa.Table:
    """Return the open transactions that offsets wait for, the oldest first: producer_id, offsets, age_ms."""
    return scope.lake.query(
        f"""
        SELECT producer_id, count(*) AS offsets, {scope.until_ms} - min(log_timestamp) AS age_ms FROM pending_offsets
        WHERE producer_id IS NOT NULL AND {scope.of_groups} GROUP BY producer_id, log_partition
        ORDER BY age_ms DESC, producer_id""",  # noqa: S608
        "pending_offsets",
    )


def decisions(scope: Scope) -> pa.Table:
    """Count the decisions of table `tombstones` by their newest outcome: outcome, rule, decisions; the most first."""
    return questions.outcomes(scope.lake, scope.of_groups)


def counted(scope: Scope, table: str) -> int:
    """Count the rows of a table that are of the groups of the report."""
    return scope.lake.count(table, scope.of_groups)


def _among(groups: Sequence[str]) -> str:
    """Give the condition that lets the engine leave the records of all other groups out before it looks at any."""
    return f"group_id IN ({', '.join(map(quoted, groups))})" if groups else "false"


def growth_by_day(scope: Scope) -> pa.Table:
    """Give the records of each day, or of as many days as are drawn as one: day, commits, tombstones, group_records."""
    step = scope.days_a_step * _DAY
    return scope.lake.query(
        f"""
        SELECT day_timestamp - day_timestamp % {step} AS day, sum(commits) AS commits, sum(tombstones) AS tombstones,
          sum(group_records) AS group_records
        FROM log_growth WHERE {_growing(scope)}
        GROUP BY day_timestamp - day_timestamp % {step} ORDER BY day""",  # noqa: S608
        "log_growth",
    )


def growth_by_group(scope: Scope, most: str, limit: int = MOST_GROUPS) -> pa.Table:
    """Give the groups that have most of a column: group_id, records, commits, tombstones, group_records.

    And `groups`: how many have any of it.
    """
    return scope.lake.query(
        f"""
        SELECT *, count(CASE WHEN {most} > 0 THEN 1 END) OVER () AS groups FROM (
          SELECT group_id, sum(records) AS records, sum(commits) AS commits, sum(tombstones) AS tombstones,
            sum(group_records) AS group_records
          FROM log_growth WHERE {_growing(scope)} GROUP BY group_id
        ) AS counted ORDER BY {most} DESC, group_id LIMIT {limit}""",  # noqa: S608
        "log_growth",
    )


def _growing(scope: Scope) -> str:
    return f"day_timestamp BETWEEN {scope.from_ms - scope.from_ms % _DAY} AND {scope.until_ms} AND {scope.of_groups}"


def newest_runs(scope: Scope) -> pa.Table:
    """Give the newest run of each job, the newest first: job, runs, started_at, finished_at, notes."""
    return scope.lake.query(
        """
        SELECT runs.job, counted.runs, started_at, finished_at, notes FROM runs
        JOIN (SELECT job, count(*) AS runs, max(run_id) AS newest FROM runs GROUP BY job) AS counted
        ON counted.newest = runs.run_id ORDER BY run_id DESC""",
        "runs",
    )


def undecodable(scope: Scope) -> pa.Table:
    """Give the reasons for which most records could not be decoded: reason, records, newest_timestamp."""
    return scope.lake.query(
        f"""
        SELECT reason, count(*) AS records, max(log_timestamp) AS newest_timestamp FROM quarantine
        GROUP BY reason ORDER BY records DESC, reason LIMIT {MOST_GROUPS}""",  # noqa: S608
        "quarantine",
    )
