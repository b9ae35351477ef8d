"""Reads the offsets of groups that another store of offsets is to have."""

import pyarrow as pa

from offsetlake.lake.lake import Lake
from offsetlake.pipeline.changes.alterations import OFFSET
from offsetlake.pipeline.changes.group_selection import groups_like
from offsetlake.rules.reduction import KEY


def committed_offsets(lake: Lake, pattern: str) -> pa.Table:
    """Return the offsets of the groups that match a shell pattern, sorted by group, topic and partition.

    Columns: those of the key, committed_offset, and reason: why the offsets of the group are not final, such as its
    members; null if they are. Raises BadRequest if no group matches.
    """
    groups = groups_like(lake, pattern)
    rows = groups.rows("offsets", OFFSET).select([*KEY, "committed_offset"])
    rows = rows.sort_by([(name, "ascending") for name in KEY])
    obstacles = groups.blocked() | groups.members()
    reasons = [obstacles.get(name) for name in rows["group_id"].to_pylist()]
    return rows.append_column("reason", pa.array(reasons, pa.string()))
