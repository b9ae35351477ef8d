"""The numbers of a report, asked of the views; each answer has as many rows as are shown, or a few a group shown."""

import pyarrow as pa

from offsetlake.report.scope import MOST_GROUPS, Scope

_DAY = 86_400_000


def over_time(scope: Scope) -> pa.Table:
    """Give what the MOST_GROUPS groups that commit most did in each step of time, by group and time.

    | column         | is |
    |----------------|----|
    | group_id       | the group |
    | at             | when the step begins, ms since the epoch |
    | commits        | offsets committed in it |
    | ahead          | by how many records its offsets went ahead, less those they went back |
    | back           | by how many they went back |
    | newest         | when the newest of these commits took effect, ms |
    | total, groups  | commits of the group in all; how many groups committed |
    """
    return scope.lake.query(
        f"""
        SELECT group_id, at, commits, ahead, back, newest, total, groups FROM (
          SELECT *, dense_rank() OVER (ORDER BY total DESC, group_id) AS place, max(number) OVER () AS groups FROM (
            SELECT *, sum(commits) OVER (PARTITION BY group_id) AS total,
              dense_rank() OVER (ORDER BY group_id) AS number
            FROM (
              SELECT group_id, effective_timestamp - effective_timestamp % {scope.step_ms} AS at, count(*) AS commits,
                coalesce(sum(CAST(new_offset AS DOUBLE) - old_offset), 0) AS ahead,
                coalesce(sum(CASE WHEN new_offset < old_offset THEN CAST(old_offset AS DOUBLE) - new_offset END), 0)
                  AS back,
                max(effective_timestamp) AS newest
              FROM commit_steps
              WHERE kind = 'commit' AND effective_timestamp BETWEEN {scope.from_ms} AND {scope.until_ms}
                AND {scope.of_groups}
              GROUP BY group_id, effective_timestamp - effective_timestamp % {scope.step_ms}
            ) AS steps
          ) AS totals
        ) AS placed WHERE place <= {MOST_GROUPS} ORDER BY place, at""",  # noqa: S608
        "commit_steps",
    )


def worst_committers(scope: Scope) -> pa.Table:
    """Give the groups that commit most for nothing: group_id, commits, redundant, busiest_hour_commits, groups."""
    first_day = scope.from_ms - scope.from_ms % _DAY
    return scope.lake.query(
        f"""
        SELECT *, count(*) OVER () AS groups FROM (
          SELECT group_id, sum(commits) AS commits, sum(redundant) AS redundant,
            max(busiest_hour_commits) AS busiest_hour_commits
          FROM commit_rate WHERE day_timestamp BETWEEN {first_day} AND {scope.until_ms} AND {scope.of_groups}
          GROUP BY group_id
        ) AS counted ORDER BY redundant DESC, commits DESC, group_id LIMIT {MOST_GROUPS}""",  # noqa: S608
        "commit_rate",
    )


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


def growth_by_group(scope: Scope) -> pa.Table:
    """Give the groups whose records are most: group_id, records, commits, tombstones, group_records, groups."""
    return scope.lake.query(
        f"""
        SELECT *, count(*) OVER () AS groups FROM (
          SELECT group_id, sum(records) AS records, sum(commits) AS commits, sum(tombstones) AS tombstones,
            sum(group_records) AS group_records
          FROM log_growth WHERE {_growing(scope)} GROUP BY group_id
        ) AS counted ORDER BY records DESC, group_id LIMIT {MOST_GROUPS}""",  # noqa: S608
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
