"""Rejected tombstones: a person decides that offsets and groups stay although a rule would expire them.

The rejections are in a file of the lake, and end when their offset is committed again or deleted, or no rule expires it
any more: then an evaluation removes them, so that the file does not grow with the history.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from offsetlake.lake.lake import Lake
from offsetlake.pipeline.emit.decisions import SELECTION, TOMBSTONE
from offsetlake.rules.retention import Bools
from offsetlake.util.row_codes import among

_FILE = "rejections.json"
_COLUMNS = SELECTION.append(pa.field("requester", pa.string()))


@dataclass(slots=True)
class Rejections:
    """The rejections of an evaluation, and those of them that have kept something."""

    rows: pa.Table
    found: list[pa.Table] = field(default_factory=list)

    def matches(self, expiring: pa.Table) -> Bools:
        """Return which decisions, with the columns of `decisions.TOMBSTONE`, were rejected."""
        if not self.rows.num_rows:
            return np.zeros(expiring.num_rows, bool)
        self.found.append(self.rows.filter(pa.array(among(self.rows, expiring, TOMBSTONE))))
        return among(expiring, self.rows, TOMBSTONE)


def rejections(lake: Lake) -> pa.Table:
    """Return the rejected decisions: the columns of `decisions.TOMBSTONE`, and `requester`, who rejected them."""
    stored: dict[str, list[Any]] = lake.files.read(_FILE) or {}
    try:
        return pa.table({field.name: pa.array(stored.get(field.name, []), field.type) for field in _COLUMNS})
    except (pa.ArrowException, TypeError) as error:
        raise lake.files.damaged(_FILE, error) from error


def keep_rejections(lake: Lake, kept: pa.Table) -> None:
    """Replace the rejections by some of them; the lake must be locked."""
    if kept.num_rows < rejections(lake).num_rows:
        store(lake, kept)


def store(lake: Lake, rejected: pa.Table) -> None:
    """Replace the rejections by others, with the columns of `rejections`; the lake must be locked."""
    with lake.location.errors():
        lake.files.write(_FILE, rejected.to_pydict())
