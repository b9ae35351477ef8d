"""Reads the offsets of groups that another store of offsets is to have."""

import pyarrow as pa

from offsetlake.lake.lake import Lake
from offsetlake.pipeline.changes.alterations import OFFSET
from offsetlake.pipeline.changes.group_selection import groups_like
from offsetlake.rules.reduction import KEY


def committed_offsets(lake: Lake, pattern: str) -> pa.Table:
    """Return the offsets of the groups that match a shell pattern, sorted by group, topic and partition.

    Columns: those of the key, committed_offset, and reason: why the offsets of the group are not final, such as its
    members, or that a quarantined record leaves them unknown; null if they are. Raises BadRequest if no group matches.
    """
    groups = groups_like(lake, pattern)
    rows = groups.rows("offsets", OFFSET)
    rows = rows.sort_by([(name, "ascending") for name in KEY])
    obstacles = groups.blocked() | groups.members()
    unknown = groups.unknown_offsets(rows)
    reasons = [unknown.get(row) or obstacles.get(name) for row, name in enumerate(rows["group_id"].to_pylist())]
    rows = rows.select([*KEY, "committed_offset"])
    return rows.append_column("reason", pa.array(reasons, pa.string()))
