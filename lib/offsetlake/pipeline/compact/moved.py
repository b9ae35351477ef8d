"""Removes from the state tables what log partitions contain that do not coordinate a group any more.

Such groups exist only if partitions were added to `__consumer_offsets` (`offsetlake.lake.history.moved_groups`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import FileChanges, discard_files
from offsetlake.lake.history.history_files import History
from offsetlake.lake.history.moved_groups import former_places, log_partition_count
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import StateFile, read_state_files, rewrite

_TABLES = ("offsets", "pending_offsets", "groups", "group_members")
_PLACE = ["group_id", "log_partition"]
_NO_PLACES = pa.table({"group_id": pa.array([], pa.string()), "log_partition": pa.array([], pa.int32())})

StateFiles = Mapping[str, Mapping[int, Sequence[StateFile]]]
"""State files by table and log partition."""


def remove_former_places(
    history: History, state_files: StateFiles, results: Sequence[dict[str, list[FileChanges]]]
) -> None:
    """Change the file changes of a compaction so that each group has state in one log partition.

    Args:
        history: The new records.
        state_files: The state files before the compaction.
        results: The file changes of each task, by table.
    """
    lake, count = history.lake, log_partition_count(history.lake, history.through_run)
    if count is None or not results:
        return
    files = {table: _files_after(state_files[table], results, table) for table in _TABLES}
    stored = {table: _places(lake, table, files[table]) for table in _TABLES}
    former = former_places(_distinct([*_new_places(history), *stored.values()]), count)
    for table in _TABLES:
        there = stored[table].join(former, _PLACE, join_type="right semi") if former.num_rows else former
        for number in pc.unique(there["log_partition"]).to_pylist():
            groups = there.filter(pc.equal(there["log_partition"], number)).select(["group_id"])
            _apply(lake, table, results, rewrite(lake, table, files[table][number], groups, _without))


def _files_after(
    before: Mapping[int, Sequence[StateFile]], results: Sequence[dict[str, list[FileChanges]]], table: str
) -> dict[int, list[StateFile]]:
    """Return the state files of a table after the changes of all tasks, by log partition in the order of groups."""
    changes = [change for result in results for change in result[table]]
    removed = {path for change in changes for path in change.removed}
    files = [file for of_partition in before.values() for file in of_partition if file.path not in removed]
    for action in (action for change in changes for action in change.added):
        smallest = json.loads(action.stats)["minValues"]
        files.append(StateFile(action.path, smallest["log_partition"], smallest["group_id"]))
    by_partition: dict[int, list[StateFile]] = {}
    for file in sorted(files, key=lambda file: file.first_group):
        by_partition.setdefault(file.log_partition, []).append(file)
    return by_partition


def _new_places(history: History) -> Iterator[pa.Table]:
    for table in ("offset_commits", "group_records"):
        for batch in history.batches(table, history.partitions(), columns=_PLACE):
            yield _distinct([batch])


def _places(lake: Lake, table: str, files: Mapping[int, Sequence[StateFile]]) -> pa.Table:
    return _distinct([read_state_files(lake, table, of_partition, _PLACE) for of_partition in files.values()])


def _distinct(places: Sequence[pa.Table]) -> pa.Table:
    return (
        pa.concat_tables([_NO_PLACES, *(part.cast(_NO_PLACES.schema) for part in places)])
        .group_by(_PLACE)
        .aggregate([])
    )


def _without(old: pa.Table, groups: pa.Table) -> pa.Table:
    return old.filter(pc.invert(pc.is_in(old["group_id"].cast(pa.string()), groups["group_id"].combine_chunks())))


def _apply(lake: Lake, table: str, results: Sequence[dict[str, list[FileChanges]]], change: FileChanges) -> None:
    """Add a change to the results; files that it removes and a task has added are not committed at all."""
    unwanted = {action.path for result in results for each in result[table] for action in each.added} & {
        *change.removed
    }
    for each in (each for result in results for each in result[table]):
        each.added = [action for action in each.added if action.path not in unwanted]
    change.removed = [path for path in change.removed if path not in unwanted]
    results[0][table].append(change)
    discard_files(lake, table, unwanted)
