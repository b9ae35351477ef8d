"""Plans to take over offsets that another store of offsets contains."""

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.lake import Lake
from offsetlake.pipeline.changes import targets
from offsetlake.pipeline.changes.alterations import Strategy, plan_alterations
from offsetlake.pipeline.changes.group_selection import groups_named

if TYPE_CHECKING:
    from offsetlake.log.cluster.admin import ClusterAdmin


def plan_import(lake: Lake, rows: pa.Table, strategy: Strategy, admin: "ClusterAdmin | None", now: int) -> pa.Table:
    """Plan to set offsets of any groups, limited to the log start and end offsets if a cluster is available.

    Args:
        lake: The lake.
        rows: The columns of `offsets_csv.SCHEMA`, and `reason`, with which a row is refused.
        strategy: The source of the rows.
        admin: The cluster whose partitions the offsets must belong to; None if there is none.
        now: The commit timestamp in ms since the epoch.

    Raises:
        BadRequest: The log partition of a group that does not exist yet cannot be determined.
    """
    if admin is not None:
        unknown = pa.array(_unknown_partitions(rows, admin), pa.string())
        rows = rows.set_column(rows.column_names.index("reason"), "reason", pc.coalesce(rows["reason"], unknown))
    groups = groups_named(lake, {*rows["group_id"].unique().to_pylist()}, live=admin is not None)
    return plan_alterations(groups, targets.from_rows(rows, targets.LogEndLookup(admin)), strategy, now)


def _unknown_partitions(rows: pa.Table, admin: "ClusterAdmin") -> list[str | None]:
    """Return a text for each row whose partition the cluster does not contain."""
    topics = admin.partitions(rows["topic"].unique().to_pylist())
    known = {(topic, partition) for topic, partitions in topics.items() for partition in partitions}
    partitions = zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)
    return [
        None
        if (topic, partition) in known
        else f"the cluster does not contain partition {partition} of topic {topic!r}"
        for topic, partition in partitions
    ]
