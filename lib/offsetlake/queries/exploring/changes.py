"""Which steps of an offset are not plain commits, and the rows of the view `changes` about some of its steps.

The view classifies all steps of an offset together. Here it is given the records of few of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from offsetlake.lake.lake import Lake
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.exploring.steps import NONE, Flags, Steps
from offsetlake.util.row_codes import Ints

Row = Mapping[str, Any]


def not_plain(lake: Lake, key: Key, steps: Steps) -> Flags:
    """Return which steps of an offset have a `change` other than commit in the view `changes`."""
    is_tombstone = steps.new == NONE
    is_lower = (steps.new < steps.old) & (steps.old != NONE)
    set_by_us, repaired = _altered(lake, steps)
    by_no_member = _in_empty_periods(lake, key, steps) & ~steps.is_transactional & ~set_by_us & ~repaired
    flags: Flags = is_tombstone | is_lower | steps.skips_ahead | set_by_us | by_no_member
    return flags


def _altered(lake: Lake, steps: Steps) -> tuple[Flags, Flags]:
    """Return which steps runs of offsetlake wrote, and which of these by `repair`, apart."""
    flags = np.zeros((2, len(steps.new)), np.bool_)
    done = "outcome = 'done' AND strategy IS NOT NULL"
    rows = lake.query(f"SELECT log_partition, log_offset, strategy FROM alterations WHERE {done}", "alterations")  # noqa: S608
    for row in rows.to_pylist():
        if (index := steps.index(row["log_partition"], row["log_offset"])) is not None:
            flags[int(row["strategy"] == "repair"), index] = True
    return flags[0], flags[1]


def _in_empty_periods(lake: Lake, key: Key, steps: Steps) -> Flags:
    flags = np.zeros(len(steps.new), np.bool_)
    engine = Key(key.group_id).engine(lake, ["empty_periods"])
    periods = engine.query("SELECT log_partition, from_log_offset, to_log_offset FROM empty_periods")
    for period in periods.to_pylist():
        end = np.inf if period["to_log_offset"] is None else period["to_log_offset"]
        flags |= (
            (steps.log_partition == period["log_partition"])
            & (steps.log_offset > period["from_log_offset"])
            & (steps.log_offset < end)
        )
    return flags


def changes_of(lake: Lake, key: Key, steps: Steps, indexes: Ints) -> list[Row]:
    """Return the rows of the view `changes` about some steps of an offset, in their order.

    Only the records of these steps, and of those before them, are read: an increase is "skip ahead" by comparison with
    all others, so that `Steps.skips_ahead` decides this kind.
    """
    if not len(indexes):
        return []
    needed: Sequence[int] = np.unique(np.append(steps.log_offset[indexes], steps.old_log_offset[indexes])).tolist()
    engine = key.engine(lake, ["changes"], records=f"log_offset IN ({', '.join(map(str, needed))})")
    rows = {
        (row["log_partition"], row["log_offset"]): row
        for row in engine.query(f"SELECT * FROM changes WHERE {key.condition}").to_pylist()  # noqa: S608
    }
    found = []
    for index in indexes.tolist():
        row = rows[int(steps.log_partition[index]), int(steps.log_offset[index])]
        if row["change"] in ("commit", "skip ahead"):
            row = row | {"change": "skip ahead" if steps.skips_ahead[index] else "commit"}
        found.append(row)
    return found
