"""How long things took, counted in buckets: plain numbers, which cost what they count next to nothing."""

from bisect import bisect_left

SECONDS = (
    0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""Upper bounds of the buckets of a histogram of durations."""


class Histogram:
    """Counts durations by SECONDS; one thread at a time may.

    | field  | is |
    |--------|----|
    | counts | by bucket; the last one is of those longer than all bounds |
    | total  | seconds |
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds
