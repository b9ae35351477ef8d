"""What people review: planned tombstones with their evidence, and incomplete commits."""

import pyarrow as pa

from offsetlake.lake import runs
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.statements import statement


def planned_tombstones(lake: Lake) -> pa.Table:
    """Return the tombstones that are planned now: rows of `tombstones`, a group after its offsets.

    Only runs are read that can have decisions which are still planned.
    """
    decisions = statement("newest_decisions", since_run=runs.open_run(lake, "expire", "emit"))
    sql = f"{decisions} AND outcome = 'planned' ORDER BY group_id, topic NULLS LAST, \"partition\", judged_offset"
    return lake.query(sql, "tombstones").drop_columns(["newest"])


def incomplete_commits(lake: Lake, limit: int) -> pa.Table:
    """Return offsets of commits in parts of which some are missing: rows of `pending_offsets`, the oldest first."""
    sql = f"SELECT * FROM pending_offsets WHERE producer_id IS NULL ORDER BY log_partition, log_offset LIMIT {limit}"  # noqa: S608
    return lake.query(sql, "pending_offsets")
