"""What was deleted, from history: the last value of every offset whose newest record is a tombstone; what a run did."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake import runs
from offsetlake.lake.files import table_schema
from offsetlake.lake.history_files import History, history_files
from offsetlake.lake.lake import Lake
from offsetlake.rules.reduction import KEY, PART, Reduction
from offsetlake.util.row_codes import among

_DONE = {
    "alterations": """
        SELECT went.committed_offset AS set_offset, went.previous_offset AS committed_offset,
          went.previous_offset AS went_offset, went.previous_leader_epoch AS leader_epoch,
          went.previous_metadata AS metadata""",
    "tombstones": """
        SELECT went.committed_offset, past.committed_offset AS went_offset, past.leader_epoch, past.metadata""",
}
_OUTCOME = {"alterations": "done", "tombstones": "emitted"}
_ALL_RUNS = (0, 2**63 - 1)


def groups_in_history(lake: Lake, pattern: str) -> dict[str, int]:
    """Give the log partition of every group that ever committed and is like the pattern; BadRequest where none is."""
    rows = lake.query("SELECT DISTINCT group_id, log_partition FROM offset_commits", "offset_commits").to_pylist()
    places = {row["group_id"]: row["log_partition"] for row in rows}
    chosen = [pattern] if pattern in places else [name for name in sorted(places) if fnmatchcase(name, pattern)]
    if not chosen:
        raise BadRequest(f"no group like {pattern!r} has ever committed, as far as the lake {lake.path} has read")
    return {name: places[name] for name in chosen}


def deleted_offsets(lake: Lake, groups: Sequence[str], topic: str | None = None) -> pa.Table:
    """Give the last commit of each key of these groups that a tombstone has taken; the columns of `offset_commits`."""
    wanted = pc.field("group_id").isin([*groups])
    if topic is not None:
        wanted &= pc.field("topic") == topic
    tables = ("offset_commits", "transaction_markers")
    history = History(lake, *_ALL_RUNS, {table: history_files(lake, table, *_ALL_RUNS) for table in tables})
    partitions = history.partitions()
    none = table_schema("offset_commits").empty_table()
    if not partitions:
        return none
    markers = history.rows("transaction_markers", partitions)
    parts = history.rows("offset_commits", partitions, pc.field("commit_id").is_valid(), [*PART])
    latest, last_commits = Reduction(markers, parts), Reduction(markers, parts)
    for batch in history.batches("offset_commits", partitions, wanted):
        latest.add(batch)
        last_commits.add(batch.filter(pc.equal(batch["kind"], "commit")))
    newest, commits = latest.decided(), last_commits.decided()
    if newest is None or commits is None:
        return none
    return commits.filter(pa.array(among(commits, newest.filter(pc.equal(newest["kind"], "tombstone")), KEY)))


def done_by(lake: Lake, run_id: int) -> dict[str, pa.Table]:
    """Give what a run has done: its rows of `alterations`, and those of `tombstones` that are of offsets.

    A run by hand has its decisions emitted by the next emit: that is what it has done. Beside each row is the commit
    that went: went_offset (null: history does not have it), leader_epoch, metadata, expire_timestamp, topic_id.
    So is log_partition, where the group lives. BadRequest where the run has changed nothing.
    """
    by_hand = ", ".join(f"'{job}'" for job in runs.BY_HAND)
    emits = f"""
        SELECT min(run_id) AS run_id FROM runs WHERE job = 'emit'
        AND run_id >= (SELECT run_id FROM runs WHERE run_id = {run_id} AND job IN ({by_hand}))"""  # noqa: S608
    emitted_by = lake.query(emits, "runs")["run_id"][0].as_py() or run_id
    found = {}
    for table, columns in _DONE.items():
        sql = f"""{columns}, went.group_id, went.topic, went."partition", went.log_partition,
              past.expire_timestamp, past.topic_id
            FROM {table} AS went LEFT JOIN offset_commits AS past
            ON past.log_partition = went.log_partition AND past.log_offset = went.judged_offset
            WHERE went.run_id = {emitted_by} AND went.outcome = '{_OUTCOME[table]}' AND went.topic IS NOT NULL"""
        found[table] = lake.query(sql, table, "offset_commits")
    if not any(rows.num_rows for rows in found.values()):
        raise BadRequest(
            f"run {run_id} has changed no offset; the table `runs` has them all, those of emit and by hand"
        )
    return found
