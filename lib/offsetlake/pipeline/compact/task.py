"""The compaction of some log partitions in a Spark task: reads new history and state files, writes new state files.

All records of a group are in one log partition, so log partitions are compacted independently, and so are ranges of the
groups of one log partition. A state file with groups of several ranges is replaced by one file for each.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.definitions import STATE
from offsetlake.lake.files import FileChanges, table_schema
from offsetlake.lake.history.history_files import History, HistoryFile, RecordSource, deciding_rows
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import StateFile, files_of_groups, read_state_files, rewrite
from offsetlake.pipeline.compact.group_ranges import EVERY_GROUP, GroupRange
from offsetlake.pipeline.compact.unresolved import Quarantined
from offsetlake.rules.groups.replay import ReplayedGroups, replay_groups
from offsetlake.rules.reduction import KEY, PART, Latest, Reduction, merged
from offsetlake.rules.share_replay import replay_share_partitions

_REPLACED = ("pending_offsets", "unresolved_records")
"""The small state tables, whose rows of a log partition are all replaced at once."""

_NEWEST_COMMIT = ["log_partition", "group_id", "log_offset"]

Source_co = TypeVar("Source_co", bound=RecordSource, covariant=True)


@dataclass(frozen=True, slots=True)
class WorkItem:
    """What one task compacts.

    | field      | description |
    |------------|-------------|
    | partitions | the log partitions |
    | groups     | the groups of these |
    | commits    | files to read the offset commits from; empty: those of the history |
    """

    partitions: Sequence[int]
    groups: GroupRange = EVERY_GROUP
    commits: tuple[HistoryFile, ...] = ()


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


def compact_item(compaction: Compaction[History], item: WorkItem) -> dict[str, list[FileChanges]]:
    """Compact some log partitions, or groups of one; return by table the file changes that the job has to commit."""
    if item.commits:
        files = compaction.history.files | {"offset_commits": [*item.commits]}
        compaction = replace(compaction, history=replace(compaction.history, files=files), groups=item.groups)
    partitions = item.partitions
    changes: dict[str, list[FileChanges]] = {table: [] for table in STATE}
    new = reduce_history(compaction, partitions)
    decided = new.reduction.decided()
    for partition in partitions:
        if decided is not None and "offsets" in compaction.tables:
            changes["offsets"].append(_offsets(compaction, partition, _rows_of(decided, partition)))
        _groups(compaction, partition, new, changes)
        if "share_partitions" in compaction.tables:
            changes["share_partitions"] += _share_partitions(compaction, partition)
        for table in compaction.tables:
            if table not in _REPLACED:
                _divide_shared(compaction, table, partition, changes[table])
    is_waiting = new.waiting.num_rows or new.reduction.has_open()
    pending = still_pending(compaction, partitions, new) if is_waiting else None
    if "pending_offsets" in compaction.tables and is_waiting:
        _replace(compaction, "pending_offsets", partitions, pending, changes["pending_offsets"])
    if "unresolved_records" in compaction.tables and (new.quarantined.stored or new.quarantined.new):
        left = unresolved(compaction, partitions, new, decided, pending)
        _replace(compaction, "unresolved_records", partitions, left, changes["unresolved_records"])
    return changes


def _quarantined(compaction: Compaction[RecordSource], partitions: Sequence[int]) -> Quarantined:
    by_partition = compaction.state_files["unresolved_records"]
    files = [file for partition in partitions for file in by_partition.get(partition, [])]
    return Quarantined.read(
        compaction.history, partitions, read_state_files(compaction.lake, "unresolved_records", files)
    )


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


def _commit_positions(records: pa.Table) -> pa.Table:
    return records.filter(pc.equal(records["kind"], "commit")).select(_NEWEST_COMMIT)


def _rows_of(rows: pa.Table, partition: int) -> pa.Table:
    return rows.filter(pc.equal(rows["log_partition"], partition))


def _state_files(compaction: Compaction[RecordSource], table: str, partition: int) -> list[StateFile]:
    return compaction.groups.files(compaction.state_files[table].get(partition, []))


def _divide_shared(
    compaction: Compaction[RecordSource], table: str, partition: int, changes: list[FileChanges]
) -> None:
    """Write the rows of the range of each state file with groups of other ranges, unless `changes` contain them.

    Another task can remove the file, because one of its groups has changed.
    """
    rewritten = {path for change in changes for path in change.removed}
    for file in compaction.groups.shared_files(compaction.state_files[table].get(partition, [])):
        if file.path not in rewritten:
            first = pa.table({"group_id": [file.first_group]})
            only_range = partial(_only_old, compaction.groups)
            changes.append(rewrite(compaction.lake, table, [file], first, only_range))


def _only_old(groups: GroupRange, old: pa.Table, _first: pa.Table) -> pa.Table:
    return groups.rows(old)


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


def _offsets(compaction: Compaction[RecordSource], partition: int, decided: pa.Table) -> FileChanges:
    combine = partial(_merged, compaction.groups)
    return rewrite(compaction.lake, "offsets", _state_files(compaction, "offsets", partition), decided, combine)


def _merged(groups: GroupRange, old: pa.Table, decided: pa.Table) -> pa.Table:
    return merged(groups.rows(old), decided)


def replayed_groups(compaction: Compaction[RecordSource], partition: int, new: ReducedHistory) -> ReplayedGroups:
    """Replay the groups of one log partition that have new records or commits, or that quarantined ones concern."""
    unread, commits = new.quarantined.unread(partition), new.commits
    unread.records = {name: of for name, of in unread.records.items() if compaction.groups.contains(name)}
    records = compaction.history.rows("group_records", [partition], compaction.groups.condition)
    if commits is None:
        commits = table_schema("offset_commits").empty_table().select(_NEWEST_COMMIT)
    commits = _rows_of(commits, partition)
    if unread.is_new:  # it concerns every group of the log partition
        stored = read_state_files(compaction.lake, "groups", _state_files(compaction, "groups", partition))
        return replay_groups(records, commits, compaction.groups.rows(stored), unread)
    group_ids = {*pc.unique(records["group_id"]).to_pylist(), *commits["group_id"].to_pylist(), *unread.records}
    state_files = files_of_groups(_state_files(compaction, "groups", partition), group_ids)
    stored = read_state_files(compaction.lake, "groups", [file for files, _ in state_files for file in files])
    changed = pc.is_in(stored["group_id"], pa.array(group_ids, pa.string()))
    return replay_groups(records, commits, stored.filter(changed), unread)


def _groups(
    compaction: Compaction[RecordSource],
    partition: int,
    new: ReducedHistory,
    changes: dict[str, list[FileChanges]],
) -> None:
    """Rewrite the state files of `groups` and `group_members` of one log partition whose groups have changed."""
    tables = [table for table in ("groups", "group_members") if table in compaction.tables]
    replayed = replayed_groups(compaction, partition, new) if tables else ReplayedGroups()
    if not replayed.group_ids:
        return
    rows = {"groups": replayed.groups, "group_members": replayed.members}
    for table in tables:
        schema = table_schema(table)
        changed = pa.table({"group_id": pa.array(replayed.group_ids, pa.string())})
        combine = partial(_replaced, compaction.groups, pa.Table.from_pylist(rows[table], schema=schema))
        changes[table].append(
            rewrite(compaction.lake, table, _state_files(compaction, table, partition), changed, combine)
        )


def _share_partitions(compaction: Compaction[RecordSource], partition: int) -> Iterator[FileChanges]:
    """Rewrite the state files of `share_partitions` of one log partition whose groups have new records."""
    records = compaction.history.rows("share_state_records", [partition], compaction.groups.condition)
    if not records.num_rows:
        return
    state_files = _state_files(compaction, "share_partitions", partition)
    group_ids = pc.unique(records["group_id"])
    files = [file for files, _ in files_of_groups(state_files, group_ids.to_pylist()) for file in files]
    stored = read_state_files(compaction.lake, "share_partitions", files)
    rows = replay_share_partitions(records, stored.filter(pc.is_in(stored["group_id"], group_ids)))
    changed = pa.table({"group_id": group_ids})
    yield rewrite(
        compaction.lake, "share_partitions", state_files, changed, partial(_replaced, compaction.groups, rows)
    )


def _replaced(groups: GroupRange, new: pa.Table, old: pa.Table, changed: pa.Table) -> pa.Table:
    return replaced_groups(new, groups.rows(old), changed)


def replaced_groups(new: pa.Table, old: pa.Table, changed: pa.Table) -> pa.Table:
    """Replace the rows of each changed group by its new rows: zero or more per group."""
    kept = old.filter(pc.invert(pc.is_in(old["group_id"], changed["group_id"])))
    return pa.concat_tables([kept, new.filter(pc.is_in(new["group_id"], changed["group_id"]))])


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


def _replace(
    compaction: Compaction[RecordSource],
    table: str,
    partitions: Sequence[int],
    rows: pa.Table | None,
    changes: list[FileChanges],
) -> None:
    """Replace all rows of a small state table of these log partitions."""
    for partition in partitions:
        state_files = _state_files(compaction, table, partition)
        change = FileChanges(removed=[state_file.path for state_file in state_files])
        if rows is not None:
            change.added = rewrite(compaction.lake, table, [], _rows_of(rows, partition), _only_new).added
        changes.append(change)


def _only_new(_old: pa.Table, new: pa.Table) -> pa.Table:
    return new
