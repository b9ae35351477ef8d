"""Draws the timeline above the tables as parts of an SVG picture that needs no script."""

from collections.abc import Sequence
from dataclasses import dataclass

from offsetlake.queries.exploring.timeline import Timeline
from offsetlake.util.amounts import counted
from offsetlake.util.times import to_iso

HEIGHT = 48
_LANES = (
    ("resets", "offset set by offsetlake", "offsets set by offsetlake"),
    ("deletions", "offset deleted or expired", "offsets deleted or expired"),
    ("rebalances", "rebalance", "rebalances"),
    ("jobs", "run of a job that did something", "runs of jobs that did something"),
)
_COUNTED = (("commits", "commit", "commits"), *_LANES)


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark in the picture: where something other than commits happened."""

    kind: str
    left: int
    lane: int
    title: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """What the template draws.

    Attributes:
        start_ms, end_ms: The time of the first and of the last record, at the left and at the right edge.
        step_ms: The length of a bin, and of a step of the slider.
        left, width: The place of the left edge, and the width of the picture, in bins: the first and the last bin can
            begin before the first record, and end after the last one.
        density: The SVG path of the area below the numbers of commits.
        marks: Marks below it, in a lane for each kind.
        totals: The kinds that occur, each with its number in words.
        instants: The positions of the instants of the page.
        busiest: The largest number of commits in a bin.

    """

    start_ms: int
    end_ms: int
    step_ms: int
    left: float
    width: float
    density: str
    marks: Sequence[Mark]
    totals: Sequence[tuple[str, str]]
    instants: Sequence[float]
    busiest: int


def draw(timeline: Timeline, instants: Sequence[int | None]) -> Drawing:
    """Return the drawing of a timeline on which the instants, in ms, are marked."""
    commits = timeline.counts["commits"]
    busiest = int(commits.max())
    # The square root keeps quiet times visible beside busy ones.
    heights = [HEIGHT - round(HEIGHT * (int(n) / (busiest or 1)) ** 0.5, 1) for n in commits]
    steps = " ".join(f"V{height:g}H{number + 1}" for number, height in enumerate(heights))
    marks = [
        Mark(
            kind,
            int(place),
            lane,
            f"{to_iso(timeline.start_ms + int(place) * timeline.step_ms)}: {counted(count, one, many)}",
        )
        for lane, (kind, one, many) in enumerate(_LANES)
        for place in timeline.counts[kind].nonzero()[0]
        for count in (int(timeline.counts[kind][place]),)
    ]
    sums = [(kind, one, many, int(timeline.counts[kind].sum())) for kind, one, many in _COUNTED]
    totals = [(kind, counted(total, one, many)) for kind, one, many, total in sums if total or kind == "commits"]
    places = [(at - timeline.start_ms) / timeline.step_ms for at in instants if at is not None]
    shown = [round(min(max(place, 0), len(commits)), 2) for place in places]
    left = (timeline.first_ms - timeline.start_ms) / timeline.step_ms
    width = (timeline.last_ms + 1 - timeline.first_ms) / timeline.step_ms
    return Drawing(
        timeline.first_ms, timeline.last_ms, timeline.step_ms, round(left, 4), round(max(width, 0.01), 4),
        f"M0 {HEIGHT}{steps}V{HEIGHT}Z", marks, totals, shown, busiest,
    )  # fmt: skip
