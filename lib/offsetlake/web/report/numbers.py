"""The queries of a report. Each result has only the rows that are shown, or a few per group that is shown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.sql.answers import PartedAnswer
from offsetlake.lake.sql.engine import SMALL, Engine, Tables, quoted
from offsetlake.lake.sql.views import views
from offsetlake.queries import questions
from offsetlake.web.report.scope import MAX_GROUPS, Scope

MAX_BUSIEST_GROUPS = 200
"""The maximum number of groups whose commits are read one by one, which bounds the time."""

MAX_PORTION_RECORDS = 200_000
"""The maximum number of records that a view compares at once, which bounds the memory; a single group may have more."""

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class BusiestGroups:
    """The groups with the most commits, and their records.

    The records are copied once, so that each view over these groups reads the copy instead of the whole history.

    Attributes:
        groups: The result of `growth_by_group`, the busiest group first.
        tables: `offset_commits`: a temporary copy of their rows and of all commits in parts, or the table itself.
        portions: Their names, divided so that a portion has at most MAX_PORTION_RECORDS rows or is a single group.
    """

    groups: pa.Table
    tables: Tables
    portions: Sequence[Sequence[str]]

    @property
    def names(self) -> list[str]:
        """The group IDs, the busiest group first."""
        names: list[str] = self.groups["group_id"].to_pylist()
        return names

    def query(self, scope: Scope, view: str, sql: str) -> pa.Table:
        """Return the rows, which are few, of a query over a view of the copied records."""
        engine = scope.lake.engine([view], {}, settings=SMALL, replacements=self.tables)
        return engine.query(sql)

    def by_portion(self, scope: Scope, view: str, order: str, select: Callable[[str], str]) -> pa.Table:
        """Return the rows, which are few, of a query over a view for each portion, sorted by an ORDER BY.

        `select` returns the query for the groups that satisfy an SQL condition.
        """
        found = PartedAnswer(order)
        for names in self.portions:
            found.add(self.query(scope, view, select(is_one_of(names))).to_reader())
        rows = found.answer()
        return pa.Table.from_batches(rows.to_batches(MAX_BUSIEST_GROUPS), rows.schema)


def busiest_groups(scope: Scope) -> BusiestGroups:
    """Return the MAX_BUSIEST_GROUPS groups with the most commits.

    Their records are copied unless they are more than half of the history.
    """
    groups = growth_by_group(scope, "commits", MAX_BUSIEST_GROUPS)
    groups = groups.filter(pc.greater(groups["commits"], 0))
    table = scope.lake.delta_table("offset_commits")
    condition = is_one_of(groups["group_id"].to_pylist())
    if 2 * (pc.sum(groups["records"]).as_py() or 0) <= scope.lake.count("offset_commits"):
        copy = PartedAnswer("log_offset")
        copy.add(
            scope.lake.engine(["offset_commits"], {}).stream(
                f"SELECT * FROM offset_commits WHERE {condition} OR commit_id IS NOT NULL"  # noqa: S608
            )
        )
        table = copy.answer().table
    counts = Engine({"commits": table}).query(
        f"SELECT group_id, count(*) AS records FROM commits WHERE {condition} GROUP BY group_id ORDER BY group_id"  # noqa: S608
    )
    return BusiestGroups(groups, {"offset_commits": table}, _portions(counts))


def _portions(counts: pa.Table) -> list[list[str]]:
    portions: list[list[str]] = []
    size = MAX_PORTION_RECORDS
    for row in counts.to_pylist():
        size += row["records"]
        if size > MAX_PORTION_RECORDS:
            portions.append([])
            size = row["records"]
        portions[-1].append(row["group_id"])
    return portions or [[]]


def over_time(scope: Scope, busiest: BusiestGroups) -> pa.Table:
    """Return the commits of the MAX_GROUPS busiest groups per time step, sorted by time.

    | Column         | Type    | Description |
    |----------------|---------|-------------|
    | group_id       | string  | the group |
    | at             | integer | the start of the step, in ms since the epoch |
    | commits        | integer | the number of committed offsets |
    | ahead          | double  | the sum of the changes of committed offsets, in records |
    | back           | double  | the sum of the decreases alone, in records |
    | newest         | integer | when the newest of these commits took effect, in ms since the epoch |
    """
    return busiest.query(
        scope,
        "commit_steps",
        f"""
        SELECT group_id, effective_timestamp - effective_timestamp % {scope.step_ms} AS at, count(*) AS commits,
          coalesce(sum(CAST(new_offset AS DOUBLE) - old_offset), 0) AS ahead,
          coalesce(sum(CASE WHEN new_offset < old_offset THEN CAST(old_offset AS DOUBLE) - new_offset END), 0) AS back,
          max(effective_timestamp) AS newest
        FROM commit_steps
        WHERE kind = 'commit' AND effective_timestamp BETWEEN {scope.from_ms} AND {scope.until_ms}
          AND {is_one_of(busiest.names[:MAX_GROUPS])}
        GROUP BY group_id, effective_timestamp - effective_timestamp % {scope.step_ms} ORDER BY at""",  # noqa: S608
    )


def worst_committers(scope: Scope, busiest: BusiestGroups) -> pa.Table:
    """Return those of the busiest groups with the most redundant commits.

    Columns: group_id, commits, redundant, busiest_hour_commits.
    """
    first_day = scope.from_ms - scope.from_ms % _DAY_MS
    order = "redundant DESC, commits DESC, group_id"
    return busiest.by_portion(
        scope,
        "commit_rate",
        order,
        lambda names: (
            f"""
        SELECT group_id, sum(commits) AS commits, sum(redundant) AS redundant,
          max(busiest_hour_commits) AS busiest_hour_commits
        FROM commit_rate WHERE day_timestamp BETWEEN {first_day} AND {scope.until_ms} AND {names}
        GROUP BY group_id ORDER BY {order} LIMIT {MAX_GROUPS}"""  # noqa: S608
        ),
    ).slice(0, MAX_GROUPS)


def worst(scope: Scope, view: str, busiest: BusiestGroups, condition: str = "true") -> dict[str, Any] | None:
    """Return the first row of a view for the busiest groups in the period, and as `matches` the number of rows."""
    definition = views()[view]
    in_period = f"{definition.since} BETWEEN {scope.from_ms} AND {scope.until_ms}"
    rows = busiest.by_portion(
        scope,
        view,
        definition.order,
        lambda names: (
            f"""
        SELECT *, count(*) OVER () AS matches FROM {view} WHERE {condition} AND {in_period} AND {names}
        ORDER BY {definition.order} LIMIT 1"""  # noqa: S608
        ),
    ).to_pylist()
    return {**rows[0], "matches": sum(row["matches"] for row in rows)} if rows else None


def worst_orphan(scope: Scope) -> dict[str, Any] | None:
    """Return the first row of the view `orphan_groups`, and as `matches` the number of rows."""
    engine = scope.lake.engine(["orphan_groups"], {}, settings=SMALL)
    rows = engine.query(
        f"""
        SELECT *, count(*) OVER () AS matches FROM orphan_groups WHERE {scope.group_condition}
        ORDER BY {views()["orphan_groups"].order} LIMIT 1"""  # noqa: S608
    ).to_pylist()
    return rows[0] if rows else None


def worst_share_partitions(scope: Scope) -> pa.Table:
    """Return the share partitions with records in flight: redelivered records first, then the longest unmoved start.

    Columns: those of `share_partitions` about records, stalled_ms, and in every row matches, their number, and
    poisoned, the number of those with redelivered records.
    """
    return scope.lake.query(
        f"""
        SELECT stored.group_id, stored.topic_id, stored.partition, stored.in_flight_records, stored.available_records,
          stored.acknowledged_records, stored.archived_records, stored.redelivered_records, stored.max_delivery_count,
          stalled.stalled_ms, count(*) OVER () AS matches,
          count(CASE WHEN stored.redelivered_records > 0 THEN 1 END) OVER () AS poisoned
        FROM (SELECT * FROM share_partitions WHERE in_flight_records > 0 AND {scope.group_condition}) AS stored
        LEFT JOIN stalled_share_partitions AS stalled ON stalled.group_id = stored.group_id
          AND stalled.topic_id = stored.topic_id AND stalled.partition = stored.partition
        ORDER BY CASE WHEN stored.redelivered_records > 0 THEN stored.max_delivery_count ELSE 0 END DESC,
          stalled.stalled_ms DESC NULLS LAST, stored.group_id, stored.topic_id, stored.partition
        LIMIT {MAX_GROUPS}""",  # noqa: S608
        "share_partitions",
        "stalled_share_partitions",
    )


def worst_redelivered(scope: Scope) -> dict[str, Any] | None:
    """Return the first row of the view `poison_records`, and as `matches` the number of rows."""
    rows = scope.lake.query(
        f"""
        SELECT *, count(*) OVER () AS matches FROM poison_records WHERE {scope.group_condition}
        ORDER BY {views()["poison_records"].order} LIMIT 1""",  # noqa: S608
        "poison_records",
    ).to_pylist()
    return rows[0] if rows else None


def transactions(scope: Scope) -> pa.Table:
    """Return the open transactions with pending offsets, the oldest first. Columns: producer_id, offsets, age_ms.

    The age is null if no timestamp of the transaction is right (`queries.log_clock.wrong_clocks`).
    """
    is_right = f"log_timestamp BETWEEN 0 AND {scope.until_ms}"
    return scope.lake.query(
        f"""
        SELECT producer_id, count(*) AS offsets,
          {scope.until_ms} - min(CASE WHEN {is_right} THEN log_timestamp END) AS age_ms FROM pending_offsets
        WHERE producer_id IS NOT NULL AND {scope.group_condition} GROUP BY producer_id, log_partition
        ORDER BY age_ms DESC, producer_id""",  # noqa: S608
        "pending_offsets",
    )


def decisions(scope: Scope) -> pa.Table:
    """Return the number of decisions by newest outcome and rule. Columns: outcome, rule, decisions."""
    return questions.outcomes(scope.lake, scope.group_condition)


def count_rows(scope: Scope, table: str) -> int:
    """Return the number of rows of a table that belong to the groups of the report."""
    return scope.lake.count(table, scope.group_condition)


def is_one_of(groups: Sequence[str]) -> str:
    """Return an SQL condition that allows the engine to skip files without these groups."""
    return f"group_id IN ({', '.join(map(quoted, groups))})" if groups else "false"


def growth_by_day(scope: Scope) -> pa.Table:
    """Return the number of records per column of the chart. Columns: day, commits, tombstones, group_records."""
    step = scope.days_per_step * _DAY_MS
    return scope.lake.query(
        f"""
        SELECT day_timestamp - day_timestamp % {step} AS day, sum(commits) AS commits, sum(tombstones) AS tombstones,
          sum(group_records) AS group_records
        FROM log_growth WHERE {_in_period(scope)}
        GROUP BY day_timestamp - day_timestamp % {step} ORDER BY day""",  # noqa: S608
        "log_growth",
    )


def growth_by_group(scope: Scope, column: str, limit: int = MAX_GROUPS) -> pa.Table:
    """Return the groups with the greatest values of a column.

    Columns: group_id, records, commits, tombstones, group_records, and groups: how many have a value above 0.
    """
    return scope.lake.query(
        f"""
        SELECT *, count(CASE WHEN {column} > 0 THEN 1 END) OVER () AS groups FROM (
          SELECT group_id, sum(records) AS records, sum(commits) AS commits, sum(tombstones) AS tombstones,
            sum(group_records) AS group_records
          FROM log_growth WHERE {_in_period(scope)} GROUP BY group_id
        ) AS counted ORDER BY {column} DESC, group_id LIMIT {limit}""",  # noqa: S608
        "log_growth",
    )


def _in_period(scope: Scope) -> str:
    first_day = scope.from_ms - scope.from_ms % _DAY_MS
    return f"day_timestamp BETWEEN {first_day} AND {scope.until_ms} AND {scope.group_condition}"


def newest_runs(scope: Scope) -> pa.Table:
    """Return the newest run of each job, the newest first. Columns: job, runs, started_at, finished_at, notes."""
    return scope.lake.query(
        """
        SELECT runs.job, counted.runs, started_at, finished_at, notes FROM runs
        JOIN (SELECT job, count(*) AS runs, max(run_id) AS newest FROM runs GROUP BY job) AS counted
        ON counted.newest = runs.run_id ORDER BY run_id DESC""",
        "runs",
    )


def quarantine_reasons(scope: Scope) -> pa.Table:
    """Return the most frequent reasons of quarantined records. Columns: reason, records, newest_timestamp."""
    return scope.lake.query(
        f"""
        SELECT reason, count(*) AS records, max(log_timestamp) AS newest_timestamp FROM quarantine
        GROUP BY reason ORDER BY records DESC, reason LIMIT {MAX_GROUPS}""",  # noqa: S608
        "quarantine",
    )
