"""What the charts of the report show. `pictures` draws them when all queries have ended: Matplotlib takes 36 MB."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lane:
    """The values of one group over time: timestamps in ms since the epoch, and a label for the right side."""

    name: str
    timestamps: npt.NDArray[np.int64]
    values: Values
    label: str


@dataclass(frozen=True, slots=True)
class Lanes:
    """One lane per group over the same period: as `steps` of sums, or as a line."""

    rows: Sequence[Lane]
    first_ms: int
    last_ms: int
    steps: bool


@dataclass(frozen=True, slots=True)
class Calendar:
    """The number of offsets of each group (row) that expire on each day (column), as the opacity of cells."""

    names: Sequence[str]
    days: Sequence[str]
    offsets: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bars:
    """One stacked bar per name, with a label on the right side."""

    names: Sequence[str]
    parts: Mapping[str, Values]
    labels: Sequence[str]


@dataclass(frozen=True, slots=True)
class StackedColumns:
    """One stacked column per day."""

    days: Sequence[str]
    parts: Mapping[str, Values]


Chart = Lanes | Calendar | Bars | StackedColumns
