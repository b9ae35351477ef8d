"""Reads what the questions reduce to the state at an instant: log partitions in portions, some rows of each.

`offsetlake.rules.reduction.Reduction` decides which records take effect.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import active_files, table_schema
from offsetlake.lake.history.group_places import in_log_partitions
from offsetlake.lake.history.history_files import ALL_RUNS, History
from offsetlake.lake.history.moved_groups import apart, together
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.portions import portions
from offsetlake.rules.reduction import KEY, Reduction

COMMIT_TABLES = ("offset_commits", "transaction_markers")
"""The tables of history that determine the offsets."""

REDUCED_COLUMNS = (*KEY, "log_partition", "log_offset", "log_timestamp", "kind", "producer_id")
"""The columns of `offset_commits` that `Reduction` needs, and that with the time."""

Advance = Callable[[int, int], None]
"""Called with the number of records read and the number of all records."""


def commits_in_force(reduction: Reduction) -> pa.Table:
    """Return the newest decided commit of each key whose newest decided record is no tombstone."""
    rows = reduction.decided()
    if rows is None:
        return table_schema("offset_commits").empty_table()
    return rows.filter(pc.equal(rows["kind"], "commit"))


def appended_until(instant_ms: int) -> pc.Expression:
    """Return the condition for records appended by an instant, or without a timestamp (Kafka before 0.10)."""
    return pc.field("log_timestamp").is_null() | (pc.field("log_timestamp") <= instant_ms)


def appended_by(instant_ms: int) -> str:
    """Return the condition `appended_until` in SQL."""
    return f"(log_timestamp IS NULL OR log_timestamp <= {instant_ms})"


def group_records(lake: Lake, partitions: Sequence[int], condition: str) -> pa.Table:
    """Return the rows of `group_records` of some log partitions that satisfy an SQL condition.

    The engine reads only the pages of a file that have rows of the log partitions: a dataset of Arrow reads the texts
    of all records of a file that `maintain` has merged.
    """
    where = f"{in_log_partitions(partitions)} AND {condition}"
    return lake.query(f"SELECT * FROM group_records WHERE {where}", "group_records")  # noqa: S608


def deciding_commits(
    lake: Lake, partitions: Sequence[int], instants: Sequence[int], condition: str, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield those rows of `offset_commits` that can be the newest of their keys at some instants, batch by batch.

    The others are superseded: an ingest run read them together with a newer decided record of their key, so that they
    are not the newest at any instant after the last record of this run. `condition` is an SQL condition.
    """
    files = [file for table in COMMIT_TABLES for file in active_files(lake, table)]
    first, last = min(instants), max(instants)
    unknown = [file for file in files if not (file.get("max.log_timestamp") or first + 1) <= first]
    first_run = min((file.get("min.ingest_run") or 0 for file in unknown), default=ALL_RUNS)
    conditions = (
        condition,
        in_log_partitions(partitions),
        appended_by(last),
        f"(NOT superseded OR ingest_run >= {first_run})",
    )
    sql = f"SELECT {', '.join(columns)} FROM offset_commits WHERE {' AND '.join(conditions)}"  # noqa: S608
    for batch in lake.engine(["offset_commits"], {}).stream(sql):
        yield pa.Table.from_batches([batch])


def partitions_in_portions(
    history: History, rows_at_once: int, advance: Advance, within: Collection[int] | None = None
) -> Iterator[list[int]]:
    """Yield the log partitions of history some at a time, of about `rows_at_once` rows, which bounds memory.

    Two with records of one group, because partitions were added to the topic, are not yielded together. `advance` is
    called after each portion; `within`, if not None, limits the log partitions.
    """
    partitions = [partition for partition in history.partitions() if within is None or partition in within]
    parts = portions({table: history.lake.delta_table(table) for table in history.files}, 0, rows_at_once)
    wanted = [
        (part, some) for part in parts if (some := [partition for partition in partitions if part.has(partition)])
    ]
    done, total = 0, sum(part.rows for part, _ in wanted)
    pairs = together(history.lake)
    for part, some in wanted:
        yield from apart(some, pairs)
        pa.default_memory_pool().release_unused()  # of each portion: the C library keeps it in fragments otherwise
        done += part.rows
        advance(done, total)
