"""State files: the sorted files of the state tables, each with a range of the groups of one log partition.

A compaction reads and rewrites only the state files that contain its groups, several log partitions in parallel. If
another program rearranges the files, `offsetlake.lake.foreign.layout` restores this form.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import LakeUnusable
from offsetlake.lake.files import FileChanges, TableFile, active_files, repeating_as_dictionaries, table_schema
from offsetlake.lake.history.history_files import file_dataset
from offsetlake.lake.lake import Lake
from offsetlake.util.row_codes import in_order, order_codes

STATE_FILE_ROWS = 100_000
"""Rows of a state file; more only if its last group has more."""

_ORDER = ("group_id", "topic", "partition", "member_id")
_ORDER_BY_ID = ("group_id", "topic_id", "partition")


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file of a state table: the groups of one log partition from `first_group` up to that of the next file."""

    path: str
    log_partition: int
    first_group: str


def list_state_files(lake: Lake, table: str, version: int) -> dict[int, list[StateFile]]:
    """Return the state files of a table at a Delta version: by log partition, in the order of their groups.

    Raises LakeUnusable if another program rearranged the files.
    """
    files = active_files(lake, table, version)
    if out_of_layout(files):
        raise LakeUnusable(
            f"the files of table {table} of the lake {lake.location} were rearranged by another program: "
            "`offsetlake compact` arranges them again"
        )
    by_partition: dict[int, list[StateFile]] = {}
    for row in files:
        file = StateFile(row["path"], row["min.log_partition"], row["min.group_id"])
        by_partition.setdefault(file.log_partition, []).append(file)
    return {
        partition: sorted(state_files, key=lambda file: file.first_group)
        for partition, state_files in by_partition.items()
    }


def state_batches(lake: Lake, table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield some columns of all rows of a state table, without an order; repeated texts are dictionaries."""
    paths = [file["path"] for file in active_files(lake, table)]
    dataset = file_dataset(lake, table, paths, dictionaries=True)
    yield from dataset.scanner(columns=[*columns], batch_readahead=1, fragment_readahead=4).to_batches()


def out_of_layout(files: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the files, as `active_files` lists them, that are not state files, because their ranges overlap.

    These are files with rows of several log partitions, and files that overlap another one. If a file has no
    statistics, all files are returned.
    """
    bounds = ("min.log_partition", "max.log_partition", "min.group_id", "max.group_id")
    if any(file.get(name) is None for file in files for name in bounds):
        return [*files]
    wrong = {file["path"]: file for file in files if file["min.log_partition"] < file["max.log_partition"]}
    by_partition: dict[int, list[dict[str, Any]]] = {}
    for file in files:
        for partition in range(file["min.log_partition"], file["max.log_partition"] + 1):
            by_partition.setdefault(partition, []).append(file)
    for in_partition in by_partition.values():
        in_partition.sort(key=lambda file: str(file["min.group_id"]))
        farthest = in_partition[0]
        for file in in_partition[1:]:
            if file["min.group_id"] <= farthest["max.group_id"]:
                wrong |= {farthest["path"]: farthest, file["path"]: file}
            farthest = max(farthest, file, key=lambda one: str(one["max.group_id"]))
    return [*wrong.values()]


def read_state_files(
    lake: Lake, table: str, state_files: Iterable[StateFile], columns: Sequence[str] | None = None
) -> pa.Table:
    """Read whole state files, by default all columns; columns with repeated values are dictionaries.

    Raises LakeUnusable if a file was removed.
    """
    names = table_schema(table).names if columns is None else [*columns]
    schema = repeating_as_dictionaries(table)
    parts = [pa.schema([schema.field(name) for name in names]).empty_table()]
    for file in state_files:
        try:
            parts.append(file_dataset(lake, table, [file.path], dictionaries=True).to_table(names, use_threads=False))
        except FileNotFoundError as error:
            raise LakeUnusable(
                f"table {table} of the lake {lake.location} is damaged, because its data file {file.path} is missing: "
                "if another program rearranged and vacuumed the table, `offsetlake compact` adapts to that; otherwise "
                f"run `offsetlake rebuild --table {table}`, which rebuilds it from history"
            ) from error
    return pa.concat_tables(parts)


def stored_topics(lake: Lake) -> set[str]:
    """Return the topics of the stored offsets."""
    paths = [file["path"] for file in active_files(lake, "offsets")]
    batches = file_dataset(lake, "offsets", paths, dictionaries=True).to_batches(columns=["topic"])
    return {topic for batch in batches for topic in pc.unique(batch["topic"]).to_pylist()}


def subscribed_topics(lake: Lake) -> set[str]:
    """Return the topics that members of groups are subscribed to, without those of share groups."""
    paths = [file["path"] for file in active_files(lake, "groups")]
    has_members = (pc.field("member_count") > 0) & (pc.field("group_type") != "share")
    batches = file_dataset(lake, "groups", paths).to_batches(columns=["subscribed_topics"], filter=has_members)
    return {topic for batch in batches for topic in pc.unique(pc.list_flatten(batch["subscribed_topics"])).to_pylist()}


def share_topics(lake: Lake) -> set[str]:
    """Return the topics of the share partitions of all share groups."""
    if not active_files(lake, "share_partitions"):
        return set()
    paths = [file["path"] for file in active_files(lake, "groups")]
    rows = file_dataset(lake, "groups", paths).to_table(["replay_state"], filter=pc.field("group_type") == "share")
    states = map(json.loads, rows["replay_state"].to_pylist())
    return {name for state in states for name in topics_of_share_record(state["share_topics"])}


def topics_of_share_record(value: Mapping[str, Any] | None) -> set[str]:
    """Return the names of the topics in a ShareGroupStatePartitionMetadataValue, without those that are deleted."""
    lists = ("initializingTopics", "initializedTopics")
    return {topic["topicName"] for name in lists for topic in (value or {}).get(name, ())}


def files_of_groups(state_files: Sequence[StateFile], groups: Iterable[str]) -> list[tuple[list[StateFile], list[str]]]:
    """Assign groups to the state file of one log partition that contains them, or into whose range they fall.

    The list of files is empty if the log partition has no state file yet, else it has one.
    """
    firsts = [file.first_group for file in state_files]
    by_index: dict[int, list[str]] = {}
    for group in groups:
        by_index.setdefault(max(bisect_right(firsts, group) - 1, 0), []).append(group)
    return [([*state_files[index : index + 1]], names) for index, names in by_index.items()]


def rewrite(
    lake: Lake,
    table: str,
    state_files: Sequence[StateFile],
    changed: pa.Table,
    combine: Callable[[pa.Table, pa.Table], pa.Table],
) -> FileChanges:
    """Rewrite the state files of one log partition into which changes fall.

    `changed` has a column group_id. `combine` returns the new rows of a file, given its old rows and the changes to its
    groups.
    """
    changes = FileChanges()
    for old, groups in files_of_groups(state_files, pc.unique(changed["group_id"]).to_pylist()):
        of_file = changed
        if len(state_files) > 1:
            of_file = changed.filter(pc.is_in(changed["group_id"], pa.array(groups, pa.string())))
        for rows in split_sorted(combine(read_state_files(lake, table, old), of_file)):
            file = TableFile(lake, table)
            file.write(rows)
            changes.added += file.close()
        changes.removed += [file.path for file in old]
    return changes


def split_sorted(rows: pa.Table) -> Iterator[pa.Table]:
    """Sort rows and split them into state files of about STATE_FILE_ROWS rows, but never split a group."""
    by_id = "topic" not in rows.column_names and "topic_id" in rows.column_names
    order = [name for name in (_ORDER_BY_ID if by_id else _ORDER) if name in rows.column_names]
    order = order[:1] if "scope" in rows.column_names else order  # of `unresolved_records`, other columns can be null
    ordered = in_order(rows, order)
    groups = order_codes(ordered, order[:1])
    start = 0
    while start < len(groups):
        end = min(start + STATE_FILE_ROWS, len(groups))
        end = int(np.searchsorted(groups, groups[end - 1], side="right"))
        yield ordered.slice(start, end - start)
        start = end
