"""The report's pictures, drawn as SVG. No other module imports Matplotlib.

They are narrow, so that their letters can be read on a phone. What is drawn is in the table beside each, by full name.
"""

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib.style
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from offsetlake.report.scope import step_of
from offsetlake.report.words import count, moment, shortened

_WIDTH = 4.4  # inches
_LANE = 0.58  # inches a row
_LONGEST_NAME = 34  # characters
_MOST_TICKS = 4
_FEW = 12  # values: a line of so few has a dot for each
_BLUE, _ORANGE, _GREY = "#0072b2", "#e69f00", "#999999"  # told apart by the colour-blind, and in print
_COLORS = {
    "commits": _BLUE, "needed": _BLUE, "bytes": _BLUE, "decisions": _BLUE, "redundant": _ORANGE, "tombstones": _ORANGE,
    "about groups": _GREY,
}  # fmt: skip
_STYLE = {
    "font.size": 9.5,
    "font.family": "sans-serif",
    "text.parse_math": False,  # a name may have any characters
    "svg.fonttype": "none",  # letters are the reader's: small, and of every script
    "svg.hashsalt": "offsetlake",  # the same picture is the same file
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
}

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lane:
    """What one group did over time: `at` is ms since the epoch; `says` stands at its right end."""

    name: str
    at: npt.NDArray[np.int64]
    values: Values
    says: str


def lanes(rows: Sequence[Lane], first_ms: int, last_ms: int, *, steps: bool) -> bytes:
    """Draw one lane a group, all over the same time: as `steps`, each a sum, or as a line."""
    with _figure(len(rows), 0.35) as (figure, out):
        drawn = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
        for axes, row in zip(drawn, rows, strict=True):
            if steps:
                axes.fill_between(row.at, row.values, step="post", color=_BLUE, linewidth=0)
            else:
                few = "." if len(row.at) < _FEW else None
                axes.plot(row.at, row.values, color=_BLUE, linewidth=1.3, marker=few)
            low, high = min(float(row.values.min()), 0.0), max(float(row.values.max()), 1.0)
            room = (high - low) * 0.08  # for the width of the line, which must not touch the text above
            axes.set_ylim(low - room, high + room)
            axes.set_title(_name(row.name), loc="left", fontsize="medium", pad=3)
            axes.set_title(row.says, loc="right", fontsize="medium", color="#555555", pad=3)
            scale = sorted({low, 0.0, high})
            axes.set_yticks(scale, [count(round(value)) for value in scale], fontsize="x-small", color="#555555")
            axes.tick_params(axis="x", length=2)
            axes.tick_params(axis="y", length=2)
        last = max(last_ms, first_ms + 1)
        step = step_of(last - first_ms, _MOST_TICKS)
        ticks = range(-(-first_ms // step) * step, last + 1, step)
        drawn[-1].set_xticks(ticks, [moment(at, step) for at in ticks])
        room = (last - first_ms) / 100  # for a dot at either end
        drawn[-1].set_xlim(first_ms - room, last + room)
    return out.getvalue()


def calendar(names: Sequence[str], days: Sequence[str], offsets: npt.NDArray[np.int64]) -> bytes:
    """Draw how many offsets of each group (a row) go on each day (a column): the darker, the more."""
    with _figure(len(names), 0.45) as (figure, out):
        axes = figure.subplots()
        at_most = max(int(offsets.max()), 1)
        cells = np.full((2 * len(names), len(days)), np.nan)  # a row of a name above each row of days
        cells[1::2] = offsets
        edges = np.arange(2 * len(names) + 1) / 2
        scale = PowerNorm(0.4, 0, at_most * 1.3)
        axes.pcolormesh(np.arange(len(days) + 1), edges, cells, cmap="Blues", norm=scale, edgecolors="white")
        for row, column in zip(*np.nonzero(offsets), strict=True):
            number = int(offsets[row, column])
            color = "white" if number > at_most * 0.25 else "black"
            axes.text(column + 0.5, row + 0.75, count(number), ha="center", va="center", color=color, fontsize="small")
        for row, name in enumerate(names):
            axes.text(0.05, row + 0.25, _name(name), ha="left", va="center")
        axes.set_ylim(len(names), 0)
        axes.set_yticks([])
        axes.set_xticks(np.arange(len(days)) + 0.5, days)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    return out.getvalue()


def bars(names: Sequence[str], parts: Mapping[str, Values], says: Sequence[str]) -> bytes:
    """Draw one bar a group, made of parts; `says` stands at the right of each."""
    with _figure(len(names), 0.6) as (figure, out):
        axes = figure.subplots()
        at, left = np.arange(len(names)), np.zeros(len(names))
        for part, values in parts.items():
            axes.barh(at + 0.2, values, 0.4, left=left, color=_COLORS[part], label=part)
            left = left + values
        for row, (name, said) in enumerate(zip(names, says, strict=True)):
            axes.text(0, row - 0.22, _name(name), ha="left", va="center")
            axes.text(
                1, row - 0.22, said, ha="right", va="center", color="#555555", transform=axes.get_yaxis_transform()
            )
        axes.set_xlim(0, max(left.max(), 1) * 1.02)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_axis_off()
        _legend(axes)
    return out.getvalue()


def columns(days: Sequence[str], parts: Mapping[str, Values]) -> bytes:
    """Draw one column a day, made of parts."""
    with _figure(4, 0.45) as (figure, out):
        axes = figure.subplots()
        at, bottom = np.arange(len(days)), np.zeros(len(days))
        for part, values in parts.items():
            axes.bar(at, values, 0.8, bottom=bottom, color=_COLORS[part], label=part)
            bottom = bottom + values
        step = -(-len(days) // 7)
        axes.set_xticks(at[::step], days[::step])
        axes.set_xlim(-0.6, max(len(days), 4) - 0.4)
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count(int(value))))
        _legend(axes)
    return out.getvalue()


@contextmanager
def _figure(rows: int, margin: float) -> Iterator[tuple[Figure, io.BytesIO]]:
    """Make a figure of so many rows, and its SVG in the end; always the same, whatever settings the machine has."""
    out = io.BytesIO()
    with warnings.catch_warnings(), matplotlib.style.context(["default", _STYLE]):
        warnings.filterwarnings("ignore", "Glyph .* missing")  # whoever looks at it has other fonts
        figure = Figure(figsize=(_WIDTH, max(rows, 1) * _LANE + margin), layout="constrained")
        yield figure, out
        FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None, "Creator": None})


def _name(name: str) -> str:
    return shortened(name, _LONGEST_NAME)


def _legend(axes: Axes) -> None:
    """Say what the colours are, where there is more than one."""
    if len(axes.containers) > 1:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, handlelength=1)
