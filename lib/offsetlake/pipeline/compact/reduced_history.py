"""Reduces the new history of some log partitions, with what the last compaction left waiting.

All records of a group are in one log partition, so log partitions are reduced independently, and so are ranges of the
groups of one log partition.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.definitions import STATE
from offsetlake.lake.files import table_schema
from offsetlake.lake.history.history_files import RecordSource, deciding_rows
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import StateFile, files_of_groups, read_state_files
from offsetlake.pipeline.compact.group_ranges import EVERY_GROUP, GroupRange
from offsetlake.pipeline.compact.unresolved import Quarantined
from offsetlake.rules.groups.replay import ReplayedGroups, replay_groups
from offsetlake.rules.reduction import KEY, PART, Latest, Reduction

_NEWEST_COMMIT = ["log_partition", "group_id", "log_offset"]

Source_co = TypeVar("Source_co", bound=RecordSource, covariant=True)


@dataclass(frozen=True, slots=True)
class Compaction(Generic[Source_co]):
    """The input that all tasks of one compaction share.

    | field       | description |
    |-------------|-------------|
    | history     | the new records |
    | state_files | by table and log partition, the state files at the table versions that the plan pins |
    | tables      | the tables to write |
    | groups      | the groups to compact |
    """

    history: Source_co
    state_files: dict[str, dict[int, list[StateFile]]]
    tables: Collection[str] = STATE
    groups: GroupRange = EVERY_GROUP

    @property
    def lake(self) -> Lake:
        """Return the lake that is compacted."""
        return self.history.lake

    def files(self, table: str, partition: int) -> list[StateFile]:
        """Return the state files of a table with groups to compact of a log partition."""
        return self.groups.files(self.state_files[table].get(partition, []))


@dataclass(frozen=True, slots=True)
class ReducedHistory:
    """The result of reducing the new history of some log partitions.

    | field       | description |
    |-------------|-------------|
    | reduction   | the decided and the pending offset commits |
    | commits     | the newest commit of each group that is effective or creates it; the columns _NEWEST_COMMIT |
    | waiting     | rows of `offset_commits` that the last compaction left waiting for a marker or for other parts |
    | quarantined | what records that cannot be decoded concern |
    """

    reduction: Reduction
    commits: pa.Table | None
    waiting: pa.Table
    quarantined: Quarantined

    def waiting_parts(self) -> pa.Table:
        """Return those waiting rows that are parts of commits."""
        return self.waiting.filter(pc.is_valid(self.waiting["commit_id"]))


def reduce_history(compaction: Compaction[RecordSource], partitions: Sequence[int]) -> ReducedHistory:
    """Reduce the new history of some log partitions together with the rows that wait in `pending_offsets`."""
    history = compaction.history
    waiting = _pending_before(compaction, partitions)
    waiting_parts = waiting.filter(pc.is_valid(waiting["commit_id"]))  # of all groups: one commit can be of several
    # Only these parts and the waiting parts can complete a commit. All parts of a complete commit are in one run, or
    # its first part is in `waiting`: the parts have consecutive log offsets, so no record followed the first parts
    # when they were read, and none had overwritten their keys.
    markers, new_parts = deciding_rows(history, partitions, PART)
    quarantined = _quarantined(compaction, partitions)
    if len(earlier := quarantined.markers()):
        markers = pa.concat_tables([markers.select(earlier.column_names), earlier])
    parts = pa.concat_tables([new_parts, waiting_parts.select(PART)], promote_options="default")
    reduction = Reduction(markers, parts)
    commits = Latest(("group_id",))
    for batch in history.batches("offset_commits", partitions, ~pc.field("superseded") & compaction.groups.condition):
        reduction.add(batch)
        commits.add(_commit_positions(reduction.complete_only(batch)))
    waiting = compaction.groups.rows(waiting)
    reduction.add(waiting)
    # A commit in parts creates its group when it becomes complete, which can be now. A transactional commit has created
    # its group already.
    commits.add(_commit_positions(reduction.complete_only(compaction.groups.rows(waiting_parts))))
    return ReducedHistory(reduction, commits.result(), waiting, quarantined)


def _quarantined(compaction: Compaction[RecordSource], partitions: Sequence[int]) -> Quarantined:
    by_partition = compaction.state_files["unresolved_records"]
    files = [file for partition in partitions for file in by_partition.get(partition, [])]
    return Quarantined.read(
        compaction.history, partitions, read_state_files(compaction.lake, "unresolved_records", files)
    )


def _commit_positions(records: pa.Table) -> pa.Table:
    return records.filter(pc.equal(records["kind"], "commit")).select(_NEWEST_COMMIT)


def _pending_before(compaction: Compaction[RecordSource], partitions: Sequence[int]) -> pa.Table:
    """Return the rows of `pending_offsets` as the last compaction left them, in the columns of `offset_commits`."""
    by_partition = compaction.state_files["pending_offsets"]
    state_files = [state_file for partition in partitions for state_file in by_partition.get(partition, [])]
    rows = read_state_files(compaction.lake, "pending_offsets", state_files)
    derived = {
        "kind": pc.if_else(pc.is_null(rows["committed_offset"]), "tombstone", "commit"),
        "superseded": pa.repeat(pa.scalar(value=False), rows.num_rows),
        "ingest_run": pa.nulls(rows.num_rows, pa.int64()),
        "repeats": pa.nulls(rows.num_rows, pa.int32()),
        "routine": pa.nulls(rows.num_rows, pa.bool_()),
    }
    schema = table_schema("offset_commits")
    columns = [derived[name] if name in derived else rows[name] for name in schema.names]
    return pa.table(dict(zip(schema.names, columns, strict=True))).cast(_nullable(schema))


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([column.with_nullable(nullable=True) for column in schema])


def replayed_groups(compaction: Compaction[RecordSource], partition: int, new: ReducedHistory) -> ReplayedGroups:
    """Replay the groups of one log partition that have new records or commits, or that quarantined ones concern."""
    unread, commits = new.quarantined.unread(partition), new.commits
    unread.records = {name: of for name, of in unread.records.items() if compaction.groups.contains(name)}
    records = compaction.history.rows("group_records", [partition], compaction.groups.condition)
    if commits is None:
        commits = table_schema("offset_commits").empty_table().select(_NEWEST_COMMIT)
    commits = rows_of(commits, partition)
    if unread.is_new:  # it concerns every group of the log partition
        stored = read_state_files(compaction.lake, "groups", compaction.files("groups", partition))
        return replay_groups(records, commits, compaction.groups.rows(stored), unread)
    group_ids = {*pc.unique(records["group_id"]).to_pylist(), *commits["group_id"].to_pylist(), *unread.records}
    state_files = files_of_groups(compaction.files("groups", partition), group_ids)
    stored = read_state_files(compaction.lake, "groups", [file for files, _ in state_files for file in files])
    changed = pc.is_in(stored["group_id"], pa.array(group_ids, pa.string()))
    return replay_groups(records, commits, stored.filter(changed), unread)


def still_pending(
    compaction: Compaction[RecordSource], partitions: Sequence[int], new: ReducedHistory
) -> pa.Table | None:
    """Return the new rows of `pending_offsets` of these log partitions; None if there are none."""
    columns = [*KEY, "log_partition", "log_offset"]
    is_tombstone = (pc.field("kind") == "tombstone") & compaction.groups.condition
    tombstones = compaction.history.batches("offset_commits", partitions, is_tombstone, columns)
    waiting_parts = new.waiting_parts()
    waiting_tombstones = waiting_parts.filter(pc.equal(waiting_parts["kind"], "tombstone")).select(columns)
    return new.reduction.pending(chain(tombstones, [waiting_tombstones]))


def unresolved(
    compaction: Compaction[RecordSource],
    partitions: Sequence[int],
    new: ReducedHistory,
    decided: pa.Table | None,
    pending: pa.Table | None,
) -> pa.Table:
    """Return the new rows of `unresolved_records` of some log partitions; `pending` is of `still_pending`."""
    parts = [
        new.quarantined.left(
            replayed_groups(compaction, partition, new),
            partition,
            decided,
            compaction.history.rows("share_state_records", [partition]),
            pending,
            compaction.groups,
        )
        for partition in partitions
    ]
    return pa.concat_tables(parts)


def rows_of(rows: pa.Table, partition: int) -> pa.Table:
    """Return the rows of a log partition."""
    return rows.filter(pc.equal(rows["log_partition"], partition))
