"""The compaction of some log partitions in a Spark task: reads new history and state files, writes new state files.

All records of a group are in one log partition, so log partitions are compacted independently, and so are ranges of the
groups of one log partition. A state file with groups of several ranges is replaced by one file for each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.definitions import STATE
from offsetlake.lake.files import FileChanges, table_schema
from offsetlake.lake.history.history_files import History, HistoryFile, RecordSource
from offsetlake.lake.state_files import files_of_groups, read_state_files, rewrite
from offsetlake.pipeline.compact.group_ranges import EVERY_GROUP, GroupRange
from offsetlake.pipeline.compact.reduced_history import (
    Compaction,
    ReducedHistory,
    reduce_history,
    replayed_groups,
    rows_of,
    still_pending,
    unresolved,
)
from offsetlake.rules.groups.replay import ReplayedGroups
from offsetlake.rules.reduction import merged
from offsetlake.rules.share_replay import replay_share_partitions

_REPLACED = ("pending_offsets", "unresolved_records")
"""The small state tables, whose rows of a log partition are all replaced at once."""


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
            changes["offsets"].append(_offsets(compaction, partition, rows_of(decided, partition)))
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


def _offsets(compaction: Compaction[RecordSource], partition: int, decided: pa.Table) -> FileChanges:
    combine = partial(_merged, compaction.groups)
    return rewrite(compaction.lake, "offsets", compaction.files("offsets", partition), decided, combine)


def _merged(groups: GroupRange, old: pa.Table, decided: pa.Table) -> pa.Table:
    return merged(groups.rows(old), decided)


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
        changes[table].append(rewrite(compaction.lake, table, compaction.files(table, partition), changed, combine))


def _share_partitions(compaction: Compaction[RecordSource], partition: int) -> Iterator[FileChanges]:
    """Rewrite the state files of `share_partitions` of one log partition whose groups have new records."""
    records = compaction.history.rows("share_state_records", [partition], compaction.groups.condition)
    if not records.num_rows:
        return
    state_files = compaction.files("share_partitions", partition)
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


def _replace(
    compaction: Compaction[RecordSource],
    table: str,
    partitions: Sequence[int],
    rows: pa.Table | None,
    changes: list[FileChanges],
) -> None:
    """Replace all rows of a small state table of these log partitions."""
    for partition in partitions:
        state_files = compaction.files(table, partition)
        change = FileChanges(removed=[state_file.path for state_file in state_files])
        if rows is not None:
            change.added = rewrite(compaction.lake, table, [], rows_of(rows, partition), _only_new).added
        changes.append(change)


def _only_new(_old: pa.Table, new: pa.Table) -> pa.Table:
    return new
