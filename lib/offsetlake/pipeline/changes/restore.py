"""Plans of `restore`: committed offsets of groups together with start offsets of share groups."""

import pyarrow as pa

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.changes import reset as offset_resets
from offsetlake.pipeline.changes import share_groups
from offsetlake.pipeline.changes.live import LiveChange
from offsetlake.pipeline.changes.targets import Scope
from offsetlake.queries.history.before import LogPosition
from offsetlake.queries.history.deleted import groups_in_history


def restore_run(lake: Lake, run_id: int, now: int, live: LiveChange | None, *, through_cluster: bool) -> pa.Table:
    """Plan to undo a run, for offsets that have not changed since; raise BadRequest if it changed nothing."""
    of_share_groups = share_groups.undo_share_changes(lake, run_id, now, through_cluster=through_cluster)
    try:
        committed = offset_resets.undo(lake, run_id, now, live)
    except BadRequest:
        if of_share_groups is None:
            raise
        return of_share_groups
    return _together(committed, of_share_groups)


def restore_as_of(
    lake: Lake,
    pattern: str,
    moment: int | LogPosition,
    scope: Scope,
    now: int,
    live: LiveChange | None,
    *,
    through_cluster: bool,
) -> pa.Table:
    """Plan to restore the offsets of groups at an instant, or from before the record at a log position.

    Start offsets of share groups are restored as of an instant only, because their state is in another log.
    Raises BadRequest if no group matches the pattern.
    """
    of_share_groups = None
    if not isinstance(moment, LogPosition):
        of_share_groups = share_groups.share_as_of(lake, pattern, moment, scope, now, through_cluster=through_cluster)
    try:
        committed = offset_resets.as_of(lake, groups_in_history(lake, pattern), moment, scope, now, live)
    except BadRequest:
        if of_share_groups is None:
            raise
        return of_share_groups
    return _together(committed, of_share_groups)


def _together(committed: pa.Table, of_share_groups: pa.Table | None) -> pa.Table:
    """Concatenate plans; only that of committed offsets can have the column `live.LIMIT`."""
    if of_share_groups is None:
        return committed
    return pa.concat_tables([committed, of_share_groups], promote_options="default")
