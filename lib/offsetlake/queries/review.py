"""What people review: planned tombstones with their evidence, unused groups, and incomplete commits."""

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake import runs
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.lake.sql.statements import statement
from offsetlake.lake.sql.views import views
from offsetlake.queries.audits import has_history
from offsetlake.util.columns import taken
from offsetlake.util.row_codes import rows_in


def planned_tombstones(lake: Lake) -> pa.Table:
    """Return the tombstones that are planned now: rows of `tombstones`, a group after its offsets.

    Only runs are read that can have decisions which are still planned.
    """
    decisions = statement("newest_decisions", since_run=runs.open_run(lake, "expire", "emit"))
    sql = f"{decisions} AND outcome = 'planned' ORDER BY group_id, topic NULLS LAST, \"partition\", judged_offset"
    return lake.query(sql, "tombstones").drop_columns(["newest"])


def incomplete_commits(lake: Lake, limit: int | None = None) -> pa.Table:
    """Return offsets of commits in parts of which some are missing: rows of `pending_offsets`, the oldest first."""
    sql = "SELECT * FROM pending_offsets WHERE producer_id IS NULL ORDER BY log_partition, log_offset"
    return lake.query(f"{sql} {_limited(limit)}", "pending_offsets")


def hanging_transactions(lake: Lake, limit: int | None = None) -> pa.Table:
    """Return the rows of the view `hanging_transactions`, the oldest transaction first."""
    sql = f"SELECT * FROM hanging_transactions ORDER BY {views()['hanging_transactions'].order}"  # noqa: S608
    return lake.query(f"{sql} {_limited(limit)}", "hanging_transactions")


def _limited(limit: int | None) -> str:
    return "" if limit is None else f"LIMIT {limit}"


def orphans(lake: Lake, limit: int | None = None, names: Collection[str] | None = None) -> pa.Table:
    """Return the rows of the view `orphan_groups`, those with the most offsets first, with one more column.

    | Column        | Type           | Description |
    |---------------|----------------|-------------|
    | unused_topics | list of string | The topics whose offsets nobody uses; null if that is the whole group. |

    Args:
        lake: The lake.
        limit: The maximum number of rows; None for all.
        names: Only these groups; None for all.
    """
    if not has_history(lake):
        return pa.table({"group_id": pa.array([], pa.string())})
    only = "true" if names is None else f"group_id IN ({', '.join(map(quoted, names)) or 'NULL'})"
    sql = f"SELECT * FROM orphan_groups WHERE {only} ORDER BY {views()['orphan_groups'].order}"  # noqa: S608
    rows = lake.query(f"{sql} {_limited(limit)}", "orphan_groups")
    partly = rows.filter(pc.is_in(rows["why"], pa.array(["topics_deleted", "not_subscribed"])))["group_id"]
    listed = ", ".join(map(quoted, partly.to_pylist())) or "NULL"
    topics = lake.query(statement("unused_topics", groups=listed), "orphan_groups", "groups", "offsets", "tombstones")
    return rows.append_column("unused_topics", taken(topics["topics"], rows_in(rows, topics, ["group_id"])))
