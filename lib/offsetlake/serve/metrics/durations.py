"""Histograms of durations, as plain numbers that are cheap to update."""

from bisect import bisect_left

SECONDS = (
    0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""The upper bounds of the buckets."""


class Histogram:
    """A histogram of durations with the buckets SECONDS; it is not thread-safe.

    | Field  | Description |
    |--------|-------------|
    | counts | By bucket; the last bucket contains the durations above all bounds |
    | total  | Sum of the durations in seconds |
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds
