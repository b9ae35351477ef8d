"""The last values of deleted offsets, from history, and what a run changed."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake import runs
from offsetlake.lake.files import table_schema
from offsetlake.lake.history.history_files import History, deciding_rows
from offsetlake.lake.history.moved_groups import one_place_each
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.statements import statement
from offsetlake.lake.unread import check_read
from offsetlake.queries.history.reduction import COMMIT_TABLES
from offsetlake.queries.selection import log_partitions_of, name_or_pattern
from offsetlake.rules.reduction import KEY, PART, Reduction
from offsetlake.util.row_codes import among

_CHANGES = {"alterations": "done_alterations", "tombstones": "emitted_tombstones"}


def groups_in_history(lake: Lake, pattern: str) -> dict[str, int]:
    """Return the log partition of every group that ever committed and matches the pattern.

    Raises BadRequest if there is none.
    """
    rows = lake.query("SELECT DISTINCT group_id, log_partition FROM offset_commits", "offset_commits")
    log_partitions = one_place_each(lake, rows)
    match = name_or_pattern(lake, pattern)
    chosen = [name for name in sorted(log_partitions) if fnmatchcase(name, match)]
    if not chosen:
        check_read(lake, pattern)
        raise BadRequest(f"no group like {pattern!r} has ever committed, as far as the lake {lake.location} has read")
    return {name: log_partitions[name] for name in chosen}


def deleted_offsets(lake: Lake, groups: Sequence[str], topic: str | None = None) -> pa.Table:
    """Return the last commit of each key of these groups that a tombstone deleted: rows of `offset_commits`."""
    wanted = pc.field("group_id").isin([*groups])
    if topic is not None:
        wanted &= pc.field("topic") == topic
    history = History.open(lake, COMMIT_TABLES)
    partitions = log_partitions_of(lake, groups)
    none = table_schema("offset_commits").empty_table()
    if not partitions:
        return none
    deciding = deciding_rows(history, partitions, PART)
    latest, last_commits = Reduction(*deciding), Reduction(*deciding)
    for batch in history.batches("offset_commits", partitions, wanted):
        latest.add(batch)
        last_commits.add(batch.filter(pc.equal(batch["kind"], "commit")))
    newest, commits = latest.decided(), last_commits.decided()
    if newest is None or commits is None:
        return none
    return commits.filter(pa.array(among(commits, newest.filter(pc.equal(newest["kind"], "tombstone")), KEY)))


def done_by(lake: Lake, run_id: int) -> dict[str, pa.Table]:
    """Return what a run changed: its rows of `alterations`, and its rows of `tombstones` that are about offsets.

    The decisions of a run by hand are emitted by the next emit, whose rows are then returned. Beside each row is the
    commit that was replaced or deleted: went_offset (null: history does not have it), leader_epoch, metadata,
    expire_timestamp, topic_id, and log_partition, in which the group is stored. Raises BadRequest if the run changed
    nothing.
    """
    emitted_by = _emitted_by(lake, run_id)
    changes = {
        table: lake.query(statement(name, run_id=emitted_by), table, "offset_commits")
        for table, name in _CHANGES.items()
    }
    if not any(rows.num_rows for rows in changes.values()):
        raise BadRequest(f"run {run_id} has changed no offset: list the runs with `offsetlake runs`")
    return changes


def share_changes(lake: Lake, run_id: int) -> pa.Table:
    """Return the start offsets of share partitions that a run set or deleted; as `done_by` for decisions by hand.

    Columns: group_id, topic, partition, log_partition; previous_offset, the start offset before, and set_offset, the
    one after, each null for none.
    """
    return lake.query(statement("share_changes", run_id=_emitted_by(lake, run_id)), "alterations", "tombstones")


def _emitted_by(lake: Lake, run_id: int) -> int:
    """Return the run that emitted the decisions of a run by hand, or the run itself."""
    by_hand = ", ".join(f"'{job}'" for job in runs.BY_HAND)
    emits = f"""
        SELECT min(run_id) AS run_id FROM runs WHERE job = 'emit'
        AND run_id >= (SELECT run_id FROM runs WHERE run_id = {run_id} AND job IN ({by_hand}))"""  # noqa: S608
    return int(lake.query(emits, "runs")["run_id"][0].as_py() or run_id)
