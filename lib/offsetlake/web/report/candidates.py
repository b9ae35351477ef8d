"""Chooses the groups that can have rows of a view, so that the view does not compare the commits of the others."""

from dataclasses import replace

from offsetlake.web.report.numbers import BusiestGroups, is_one_of
from offsetlake.web.report.scope import Scope


def with_possible_resets(scope: Scope, busiest: BusiestGroups) -> BusiestGroups:
    """Return the groups in which the view `changes` can find a reset: by a run of offsetlake, or without members."""
    names = ("offset_commits", "alterations", "empty_periods")
    found = scope.lake.engine(names, {}, replacements=busiest.tables).query(
        """
        SELECT offset_commits.group_id FROM offset_commits JOIN alterations
          ON alterations.log_partition = offset_commits.log_partition
          AND alterations.log_offset = offset_commits.log_offset
        WHERE outcome = 'done'
        UNION SELECT group_id FROM empty_periods"""
    )
    return _only(busiest, found["group_id"].to_pylist())


def with_lag_to_another_group(scope: Scope, busiest: BusiestGroups) -> BusiestGroups:
    """Return the groups in which the view `stalled_partitions` can find an offset: another group has read further."""
    found = scope.lake.query(
        f"""
        SELECT DISTINCT group_id FROM offsets JOIN (
          SELECT topic, partition, max(committed_offset) AS reached FROM offsets GROUP BY topic, partition
        ) AS farthest
          ON farthest.topic = offsets.topic AND farthest.partition = offsets.partition
        WHERE offsets.committed_offset < farthest.reached AND {is_one_of(busiest.names)}""",  # noqa: S608
        "offsets",
    )
    return _only(busiest, found["group_id"].to_pylist())


def _only(busiest: BusiestGroups, groups: list[str]) -> BusiestGroups:
    wanted = {*groups}
    portions = [[name for name in portion if name in wanted] for portion in busiest.portions]
    return replace(busiest, portions=[portion for portion in portions if portion] or [[]])
