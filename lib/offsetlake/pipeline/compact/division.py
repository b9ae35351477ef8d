"""Divides the work of a compaction into tasks.

Several small log partitions are one task. A log partition with more records than a task should have is divided by
ranges of its groups, like an external sort: first, tasks reduce parts of its history to the commits that can matter,
and write these to files sorted by group; then each range of groups is compacted from its rows of these files.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import merge
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import ROWS_A_GROUP, TableFile
from offsetlake.lake.history.history_files import History, HistoryFile
from offsetlake.lake.history.moved_groups import log_partition_count
from offsetlake.lake.runs import ingested_log_offsets
from offsetlake.lake.state_files import STATE_FILE_ROWS
from offsetlake.log.positions import OFFSETS_TOPIC
from offsetlake.pipeline.compact.group_ranges import ranges
from offsetlake.pipeline.compact.reduced_history import Compaction
from offsetlake.pipeline.compact.task import WorkItem
from offsetlake.pipeline.parallel import chunk_partitions, concurrent_tasks, distribute
from offsetlake.rules.reduction import Survivors
from offsetlake.util.row_codes import in_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_ROWS = 1 << 22  # fewer rows of a log partition are always one task
MAX_TASK_ROWS = 1 << 24  # bounds the memory of a task; a log partition with more rows is always divided
MIN_RANGE_ROWS = STATE_FILE_ROWS
SAMPLED_ROWS = 1 << 12  # of a sorted file, the group of one of so many rows is considered as a bound of a range


@dataclass(frozen=True, slots=True)
class SortedCommits:
    """The commits of a log partition that a part of its history contributes.

    | field  | description |
    |--------|-------------|
    | file   | the file with its rows sorted by group; None without rows |
    | groups | the groups of rows at regular distances, in their order |
    """

    file: HistoryFile | None
    groups: list[str]


def divide(
    spark: "SparkSession | None", compaction: Compaction[History], partitions: Sequence[int], say: Callable[[str], None]
) -> list[WorkItem]:
    """Return the tasks of a compaction of some log partitions; the files of their `commits` belong to no table."""
    history, tasks = compaction.history, concurrent_tasks(spark)
    large = _large(_estimated_rows(history, partitions), tasks)
    work = [(partition, files) for partition in large for files in _parts(history, partition)]
    if large:
        say(f"sorting the commits of log partition {', '.join(map(str, large))}, which is compacted in parallel")
    results = distribute(spark, partial(sort_commits, history), work)
    items: list[WorkItem] = []
    for partition in large:
        parts = [result for (owner, _), result in zip(work, results, strict=True) if owner == partition]
        existing = [file.first_group for file in compaction.state_files["groups"].get(partition, [])]
        items += _ranges(partition, parts, existing, tasks)
    others = [p for p in partitions if p not in large]
    if log_partition_count(compaction.lake) is not None:  # a key can be in several log partitions
        return items + [WorkItem((partition,)) for partition in others]
    return items + [WorkItem(chunk) for chunk in chunk_partitions(spark, others)]


def _estimated_rows(history: History, partitions: Sequence[int]) -> dict[int, int]:
    """Return the approximate number of new commits by log partition, by how many log offsets were ingested of each."""
    log_offsets = ingested_log_offsets(history.lake, OFFSETS_TOPIC, history.from_run, history.through_run)
    share = sum(file.rows for file in history.files["offset_commits"]) / max(sum(log_offsets.values()), 1)
    return {partition: int(log_offsets.get(partition, 0) * share) for partition in partitions}


def _large(rows: Mapping[int, int], tasks: int) -> list[int]:
    """Return the log partitions that one task would compact alone long after all others, or in too much memory.

    A divided compaction takes up to twice the work, so a log partition has to be twice as large as its fair share.
    """
    fair = 2 * sum(rows.values()) // tasks
    limit = min(max(fair, TASK_ROWS), MAX_TASK_ROWS)
    return [partition for partition, count in rows.items() if count > limit]


def _parts(history: History, partition: int) -> list[list[HistoryFile]]:
    """Divide the files with commits of a log partition into parts of about TASK_ROWS rows."""
    parts: list[list[HistoryFile]] = []
    rows = TASK_ROWS
    for file in history.files["offset_commits"]:
        if file.first_partition <= partition <= file.last_partition:
            if rows >= TASK_ROWS:
                parts.append([])
                rows = 0
            parts[-1].append(file)
            rows += file.rows
    return parts


def sort_commits(history: History, part: tuple[int, list[HistoryFile]]) -> SortedCommits:
    """Write those commits of some files that can matter to the compaction of a log partition, sorted by group."""
    partition, files = part
    source = replace(history, files=history.files | {"offset_commits": files})
    survivors = Survivors(source.rows("transaction_markers", [partition]))
    needed = ~pc.field("superseded") | (pc.field("kind") == "tombstone") | pc.field("commit_id").is_valid()
    for batch in source.batches("offset_commits", [partition], needed):
        survivors.add(batch)
    rows = survivors.result()
    if rows is None:
        return SortedCommits(None, [])
    rows = in_order(rows, ["group_id"])
    file = TableFile(history.lake, "offset_commits")
    for start in range(0, rows.num_rows, ROWS_A_GROUP):
        file.write(rows.slice(start, ROWS_A_GROUP))
    (added,) = file.close()
    sampled = pa.array(range(min(SAMPLED_ROWS // 2, rows.num_rows - 1), rows.num_rows, SAMPLED_ROWS))
    return SortedCommits(
        HistoryFile(added.path, partition, partition, rows.num_rows), rows["group_id"].take(sampled).to_pylist()
    )


def _ranges(partition: int, parts: Sequence[SortedCommits], existing: Sequence[str], tasks: int) -> list[WorkItem]:
    """Return one task per range of the groups of a log partition."""
    files = tuple(part.file for part in parts if part.file is not None)
    rows = sum(file.rows for file in files)
    count = min(max(tasks, -(-rows // TASK_ROWS)), -(-rows // MIN_RANGE_ROWS))
    bounds = choose_bounds([*merge(*(part.groups for part in parts))], existing, count)
    return [WorkItem((partition,), groups, files) for groups in ranges(bounds)]


def choose_bounds(groups: Sequence[str], existing: Sequence[str], count: int) -> list[str]:
    """Choose the bounds of about `count` ranges with about equally many of the sorted `groups`.

    The first group of an existing state file is preferred if that leaves a range between half and twice its size:
    other bounds divide state files into smaller ones.
    """
    size = -(-len(groups) // max(count, 1)) or 1
    bounds: list[str] = []
    start = 0
    while len(groups) - start > size:
        previous = bounds[-1] if bounds else groups[0]
        candidates = [
            group
            for group in existing
            if group > previous and start + size / 2 <= bisect_left(groups, group) <= start + 2 * size
        ]
        ideal = bisect_left(groups, groups[start + size])
        if ideal <= start:  # one group fills the range
            ideal = bisect_right(groups, groups[start])
        if ideal == len(groups):
            break
        nearest = min(candidates, key=lambda group: abs(bisect_left(groups, group) - start - size), default=None)
        bounds.append(groups[ideal] if nearest is None else nearest)
        start = bisect_left(groups, bounds[-1])
    return bounds
