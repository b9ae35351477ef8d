"""Limits so small that a compaction of a few records divides its log partitions by ranges of groups."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from offsetlake.lake import state_files
from offsetlake.pipeline.compact import division


@contextmanager
def divided() -> Iterator[list[int]]:
    """Divide each log partition; yield a list to which the number of ranges of each is appended."""
    counts: list[int] = []
    choose_bounds = division.choose_bounds

    def count(*arguments: object) -> list[str]:
        bounds: list[str] = choose_bounds(*arguments)  # type: ignore[arg-type]
        counts.append(len(bounds) + 1)
        return bounds

    limits = {"TASK_ROWS": 20, "MAX_TASK_ROWS": 20, "MIN_RANGE_ROWS": 5, "SAMPLED_ROWS": 1}
    with (
        patch.multiple(division, **limits, choose_bounds=count),
        patch.object(state_files, "STATE_FILE_ROWS", 10),
    ):
        yield counts
