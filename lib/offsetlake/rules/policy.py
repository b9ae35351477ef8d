"""How long offsets are kept: one default, and overrides by group and topic pattern."""

import re
from dataclasses import dataclass
from fnmatch import translate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Override:
    """Keeps the offsets of groups and topics like these, `*` `?` `[abc]` as in a shell, for `retention_ms`."""

    group: str
    topic: str
    retention_ms: int


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The first override that fits an offset's group and topic holds for it, else the default."""

    default_ms: int
    overrides: tuple[Override, ...] = ()

    def retention(self, offsets: pa.Table) -> npt.NDArray[np.int64]:
        """Give each offset's retention in ms. Columns: group_id, topic."""
        retention = np.full(offsets.num_rows, self.default_ms, np.int64)
        for override in reversed(self.overrides):
            fits = like(offsets["group_id"], override.group) & like(offsets["topic"], override.topic)
            retention[fits] = override.retention_ms
        return retention


def like(column: pa.ChunkedArray, pattern: str) -> npt.NDArray[np.bool_]:
    """Tell which values are like the pattern; each different value is looked at once."""
    if pattern == "*":
        return np.ones(len(column), np.bool_)
    names = pc.unique(column).cast(pa.string()).to_pylist()
    fits = re.compile(translate(pattern)).match
    found = pa.array([name for name in names if fits(name)], pa.string())
    like: npt.NDArray[np.bool_] = pc.is_in(column, found).to_numpy()
    return like
