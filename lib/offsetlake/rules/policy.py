"""The retention times that are configured: of offsets, by patterns of group and topic; of history and audit events."""

import re
from dataclasses import dataclass
from fnmatch import translate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Override:
    """The retention time of offsets whose group and topic match shell patterns: `*`, `?` and `[abc]`."""

    group: str
    topic: str
    retention_ms: int


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The retention times of offsets and of idle share groups.

    Attributes:
        default_ms: The retention of offsets that no override matches.
        overrides: The first override that matches the group and topic of an offset applies to it.
        share_idle_ms: How long share groups that nobody reads from are kept; None: forever, as brokers do.
    """

    default_ms: int
    overrides: tuple[Override, ...] = ()
    share_idle_ms: int | None = None

    def retention(self, offsets: pa.Table) -> npt.NDArray[np.int64]:
        """Return the retention time of each offset in ms; `offsets` has the columns group_id and topic."""
        retention = np.full(offsets.num_rows, self.default_ms, np.int64)
        for override in reversed(self.overrides):
            matches = like(offsets["group_id"], override.group) & like(offsets["topic"], override.topic)
            retention[matches] = override.retention_ms
        return retention


@dataclass(frozen=True, slots=True)
class Keep:
    """How long history and audit events are kept, in ms; None: forever."""

    history_ms: int | None = None
    audit_events_ms: int | None = None


FOREVER = Keep()


def like(column: pa.ChunkedArray, pattern: str) -> npt.NDArray[np.bool_]:
    """Return which values match the shell pattern; each distinct value is matched once."""
    if pattern == "*":
        return np.ones(len(column), np.bool_)
    names = pc.unique(column).cast(pa.string()).to_pylist()
    match = re.compile(translate(pattern)).match
    matching = pa.array([name for name in names if match(name)], pa.string())
    matches: npt.NDArray[np.bool_] = pc.is_in(column, matching).to_numpy()
    return matches
