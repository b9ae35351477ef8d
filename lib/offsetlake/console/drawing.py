"""Draws the timeline above the tables as parts of an SVG picture that needs no script."""

from collections.abc import Sequence
from dataclasses import dataclass

from offsetlake.queries.exploring.timeline import Timeline
from offsetlake.util.times import to_iso

HEIGHT = 48
_LANES = (
    ("resets", "set by offsetlake"),
    ("deletions", "deleted or expired"),
    ("rebalances", "rebalances"),
    ("jobs", "runs of jobs that did something"),
)


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
        start_ms, end_ms: The time of the left and of the right edge.
        step_ms: The length of a bin, and of a step of the slider.
        width: The number of bins, and the width of the picture in its own units.
        density: The SVG path of the area below the numbers of commits.
        marks: Marks below it, in a lane for each kind.
        totals: The kinds that occur, each with what it is and its number.
        instants: The positions of the instants of the page.
        busiest: The largest number of commits in a bin.

    """

    start_ms: int
    end_ms: int
    step_ms: int
    width: int
    density: str
    marks: Sequence[Mark]
    totals: Sequence[tuple[str, str, int]]
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
        Mark(kind, int(place), lane, f"{to_iso(timeline.start_ms + int(place) * timeline.step_ms)}: {words} {count:,}")
        for lane, (kind, words) in enumerate(_LANES)
        for place in timeline.counts[kind].nonzero()[0]
        for count in (int(timeline.counts[kind][place]),)
    ]
    totals = [("commits", "commits", int(commits.sum()))]
    totals += [(kind, words, total) for kind, words in _LANES if (total := int(timeline.counts[kind].sum()))]
    places = [(at - timeline.start_ms) / timeline.step_ms for at in instants if at is not None]
    shown = [round(min(max(place, 0), len(commits)), 2) for place in places]
    return Drawing(
        timeline.start_ms, timeline.end_ms, timeline.step_ms, len(commits),
        f"M0 {HEIGHT}{steps}V{HEIGHT}Z", marks, totals, shown, busiest,
    )  # fmt: skip
