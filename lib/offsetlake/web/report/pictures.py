"""Draws the charts of the report as SVG. No other module imports Matplotlib.

The charts are narrow, so that their text is legible on a phone. The table next to a chart has the full names.
Each chart has the colours of the text and the background of a light and a dark page; a browser that does not apply the
preference to images shows the light ones.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from unicodedata import east_asian_width

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FuncFormatter, MaxNLocator

from offsetlake.web.report.charts import Bars, Calendar, Chart, Lanes, StackedColumns
from offsetlake.web.report.scope import round_step
from offsetlake.web.report.words import count, moment, shortened

_WIDTH = 4.4  # inches
_LANE = 0.58  # inches a row
_MAX_NAME_CHARACTERS = 34
_MIN_NAME_CHARACTERS = 8
_MAX_LINE_POINTS = 275  # of a name and the label beside it: the width without the numbers of the axis
_FONT_POINTS = 9.5
_MAX_TICKS = 4
_MAX_DOTS = 12  # a line with fewer values has a dot for each
_BLUE, _ORANGE, _GREY, _GREEN = (
    "#0072b2",
    "#e69f00",
    "#999999",
    "#009e73",
)  # distinguishable by colour-blind readers and in print
_COLORS = {
    "commits": _BLUE, "needed": _BLUE, "bytes": _BLUE, "decisions": _BLUE, "redundant": _ORANGE, "tombstones": _ORANGE,
    "group records": _GREY, "acknowledged": _GREEN, "archived": _GREY, "available": _ORANGE, "acquired": _BLUE,
}  # fmt: skip
_STYLE = {
    "font.size": _FONT_POINTS,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],  # as wide as each other, and wider than other fonts of readers
    "text.parse_math": False,  # names may contain any characters
    "svg.fonttype": "none",  # text in the fonts of the reader: small files, and all scripts
    "svg.hashsalt": "offsetlake",  # deterministic IDs: the same chart is the same file
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": "#888888",
    "xtick.color": "#888888",
    "ytick.color": "#888888",
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
}
_THEME = (  # Matplotlib writes no colour of black text
    b"svg{background:#fff}text{fill:#1a1a1a}"
    b"@media(prefers-color-scheme:dark){svg{background:#16181b}text{fill:#e8eaed}}"
)
_SECONDARY = 0.75  # the opacity of text that is less important
_MIN_CELL_OPACITY, _MAX_CELL_OPACITY = 0.06, 0.7  # text is legible on each


def draw(chart: Chart) -> bytes:
    """Draw a chart as SVG."""
    match chart:
        case Lanes():
            return _lanes(chart)
        case Calendar():
            return _calendar(chart)
        case Bars():
            return _bars(chart)
        case StackedColumns():
            return _columns(chart)


def _lanes(chart: Lanes) -> bytes:
    rows, first_ms, last_ms = chart.rows, chart.first_ms, chart.last_ms
    with _figure(len(rows), 0.35) as (figure, out):
        drawn = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
        for axes, row in zip(drawn, rows, strict=True):
            if chart.steps:
                axes.fill_between(row.timestamps, row.values, step="post", color=_BLUE, linewidth=0)
            else:
                marker = "." if len(row.timestamps) < _MAX_DOTS else None
                axes.plot(row.timestamps, row.values, color=_BLUE, linewidth=1.3, marker=marker)
            low, high = min(float(row.values.min()), 0.0), max(float(row.values.max()), 1.0)
            margin = (high - low) * 0.08  # so that the line does not touch the text above
            axes.set_ylim(low - margin, high + margin)
            axes.set_title(_name(row.name, row.label), loc="left", fontsize="medium", pad=3)
            axes.set_title(row.label, loc="right", fontsize="medium", alpha=_SECONDARY, pad=3)
            scale = sorted({low, 0.0, high})
            axes.set_yticks(scale, [count(round(value)) for value in scale], fontsize="x-small", alpha=_SECONDARY)
            axes.tick_params(axis="x", length=2)
            axes.tick_params(axis="y", length=2)
        last = max(last_ms, first_ms + 1)
        step = round_step(last - first_ms, _MAX_TICKS)
        ticks = range(-(-first_ms // step) * step, last + 1, step)
        drawn[-1].set_xticks(ticks, [moment(tick, step) for tick in ticks])
        margin = (last - first_ms) / 100  # for a dot at either end
        drawn[-1].set_xlim(first_ms - margin, last + margin)
    return out.getvalue()


def _calendar(chart: Calendar) -> bytes:
    names, days, offsets = chart.names, chart.days, chart.offsets
    with _figure(len(names), 0.45) as (figure, out):
        axes = figure.subplots()
        scale = PowerNorm(0.4, 0, max(int(offsets.max()), 1))
        for row, column in np.ndindex(offsets.shape):  # a row with the name above each row of days
            number = int(offsets[row, column])
            opacity = _MIN_CELL_OPACITY + (_MAX_CELL_OPACITY - _MIN_CELL_OPACITY) * scale(number)
            axes.barh(row + 0.75, 0.96, 0.46, column + 0.02, color=(_BLUE, opacity), linewidth=0)
            if number:
                axes.text(column + 0.5, row + 0.75, count(number), ha="center", va="center", fontsize="small")
        for row, name in enumerate(names):
            axes.text(0.05, row + 0.25, _name(name), ha="left", va="center", in_layout=False)
        axes.set_xlim(0, len(days))
        axes.set_ylim(len(names), 0)
        axes.set_yticks([])
        axes.set_xticks(np.arange(len(days)) + 0.5, days)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    return out.getvalue()


def _bars(chart: Bars) -> bytes:
    names = chart.names
    with _figure(len(names), 0.6) as (figure, out):
        axes = figure.subplots()
        position, left = np.arange(len(names)), np.zeros(len(names))
        for part, values in chart.parts.items():
            axes.barh(position + 0.2, values, 0.4, left=left, color=_COLORS[part], label=part)
            left = left + values
        for row, (name, label) in enumerate(zip(names, chart.labels, strict=True)):
            axes.text(0, row - 0.22, _name(name, label), ha="left", va="center", in_layout=False)
            right = axes.get_yaxis_transform()
            axes.text(1, row - 0.22, label, ha="right", va="center", alpha=_SECONDARY, transform=right)
        axes.set_xlim(0, max(left.max(), 1) * 1.02)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_axis_off()
        _legend(axes)
    return out.getvalue()


def _columns(chart: StackedColumns) -> bytes:
    days = chart.days
    with _figure(4, 0.45) as (figure, out):
        axes = figure.subplots()
        position, bottom = np.arange(len(days)), np.zeros(len(days))
        for part, values in chart.parts.items():
            axes.bar(position, values, 0.8, bottom=bottom, color=_COLORS[part], label=part)
            bottom = bottom + values
        step = -(-len(days) // 7)
        axes.set_xticks(position[::step], days[::step])
        axes.set_xlim(-0.6, max(len(days), 4) - 0.4)
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count(int(value))))
        _legend(axes)
    return out.getvalue()


@contextmanager
def _figure(rows: int, margin: float) -> Iterator[tuple[Figure, io.BytesIO]]:
    """Yield a figure with a number of rows, and the file that its SVG is written to at the end.

    The result does not depend on the Matplotlib settings of the machine.
    """
    out = io.BytesIO()
    with warnings.catch_warnings(), matplotlib.style.context(["default", _STYLE]):
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the fonts of the reader are used
        figure = Figure(figsize=(_WIDTH, max(rows, 1) * _LANE + margin), layout="constrained")
        yield figure, out
        FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None, "Creator": None})
        start, style, end = out.getvalue().partition(b'<style type="text/css">')
        out.seek(0)
        out.write(start + style + _THEME + end)


def _name(name: str, label: str = "") -> str:
    """Return the start and the end of a name, so short that the label beside it does not touch it."""
    characters, available = _MAX_NAME_CHARACTERS, _MAX_LINE_POINTS - _points(f" {label}")
    while characters > _MIN_NAME_CHARACTERS and _points(shortened(name, characters)) > available:
        characters -= 1
    return shortened(name, characters)


def _points(text: str) -> float:
    """Return the width of a text in which East Asian characters, which other fonts contain, are as wide as an em."""
    measured = "".join("\N{EM DASH}" if east_asian_width(character) in "WF" else character for character in text)
    width, _, _ = text_to_path.get_text_width_height_descent(measured, FontProperties(size=_FONT_POINTS), ismath=False)
    return float(width)


def _legend(axes: Axes) -> None:
    """Add a legend of the colours if there is more than one."""
    if len(axes.containers) > 1:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, handlelength=1)
