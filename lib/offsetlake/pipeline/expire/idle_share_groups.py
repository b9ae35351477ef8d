"""When the share groups of a log partition expire by the policy `share_idle`."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import table_schema
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import StateFile, read_state_files
from offsetlake.rules.retention import NEVER, Bools, GroupFacts, Ints, share_groups_idle_since
from offsetlake.rules.unresolved import Unresolved

SHARE_IDLE = "share_idle"
"""The rule that expires share groups."""

ACTIVITY = "activity_timestamp"
"""The clock of the rule: when somebody last used the share group."""

SHARE_PARTITIONS = "share_partitions"
"""The state table that the rule reads in addition to those of the other rules."""

_COLUMNS = ("group_id", "updated_timestamp")


class IdleShareGroups(NamedTuple):
    """One element per group, in ms since the epoch: since when it is idle, and when it expires; else NEVER."""

    since: Ints
    expires_at: Ints

    def expired(self, now: int) -> Bools:
        """Return which groups expire at the time `now`."""
        expired: Bools = self.expires_at <= now
        return expired

    def next_change(self, now: int) -> int:
        """Return when the next of the other groups expires; NEVER if none does."""
        return int(np.min(self.expires_at, where=self.expires_at > now, initial=NEVER))


def idle_share_groups(
    groups: GroupFacts,
    updates: pa.Table,
    stored: Ints,
    pending: pa.Table,
    idle_ms: int | None,
    unresolved: Unresolved,
) -> IdleShareGroups:
    """Return when groups expire if nobody uses them; `idle_ms` is the time of the policy, None if there is none.

    The other arguments are those of `share_groups_idle_since`.
    """
    if idle_ms is None:
        never = np.full(groups.rows.num_rows, NEVER)
        return IdleShareGroups(never, never)
    since = share_groups_idle_since(groups, updates, stored, pending, unresolved)
    return IdleShareGroups(since, np.minimum(since, NEVER - idle_ms) + idle_ms)


def newest_updates(lake: Lake, state_files: Iterable[Sequence[StateFile]]) -> pa.Table:
    """Return the newest update of the share partitions of each group; null if that of one of them is unknown.

    Args:
        lake: The lake.
        state_files: The state files of `share_partitions`, by log partition.

    Returns:
        The columns group_id and updated_timestamp, in ms since the epoch.
    """
    parts = [_newest(read_state_files(lake, SHARE_PARTITIONS, of_partition, _COLUMNS)) for of_partition in state_files]
    none = table_schema(SHARE_PARTITIONS).empty_table().select(_COLUMNS)
    return _newest(pa.concat_tables([none, *parts]))


def _newest(updates: pa.Table) -> pa.Table:
    options = pc.ScalarAggregateOptions(skip_nulls=False)
    newest = updates.group_by("group_id").aggregate([("updated_timestamp", "max", options)])
    return newest.rename_columns({"updated_timestamp_max": "updated_timestamp"}).select(_COLUMNS).cast(updates.schema)
