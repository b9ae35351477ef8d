"""Offsets as they were at some instants, by log partition, by the rule that makes the table `offsets`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import table_schema
from offsetlake.lake.history_files import History, history_files
from offsetlake.lake.lake import Lake
from offsetlake.lake.portions import portions
from offsetlake.rules.reduction import KEY, PART, Reduction

_ALL_RUNS = (0, 2**63 - 1)
_ROWS_AT_ONCE = 1 << 20
_PARTS = [*PART, "log_timestamp"]
_NEEDED = (*KEY, "log_partition", "log_offset", "log_timestamp", "kind", "producer_id")
_IS_COMMIT = pc.field("kind") == "commit"


def first_rows(parts: Iterable[pa.Table], limit: int | None) -> pa.Table:
    """Return the rows of some tables in the order of their keys, at most `limit` of them."""
    return pa.concat_tables(parts).sort_by([(name, "ascending") for name in KEY]).slice(0, limit)


def replayed(
    lake: Lake,
    instants: Sequence[int],
    wanted: Mapping[str, str | None],
    columns: Sequence[str],
    advance: Callable[[int, int], None],
) -> Iterator[list[pa.Table]]:
    """Yield for some log partitions at a time the offsets in force at each of some instants, without an order.

    `wanted` maps columns to the value rows must have, or None for any. Memory is bounded by the keys of the log
    partitions; history is read once for all instants.
    """
    tables = ("offset_commits", "transaction_markers")
    history = History(lake, *_ALL_RUNS, {table: history_files(lake, table, *_ALL_RUNS) for table in tables})
    partitions = history.partitions()
    parts = portions({table: lake.delta_table(table) for table in tables}, 0, _ROWS_AT_ONCE)
    done, total = 0, sum(part.rows for part in parts)
    for part in parts:
        if some := [partition for partition in partitions if part.has(partition)]:
            yield _replay(history, some, instants, wanted, columns)
        done += part.rows
        advance(done, total)


def _replay(
    history: History,
    partitions: Sequence[int],
    instants: Sequence[int],
    wanted: Mapping[str, str | None],
    columns: Sequence[str],
) -> list[pa.Table]:
    """Return the offsets that some log partitions had in force at each instant."""
    appended = _until(max(instants))
    of_keys = appended
    for column, value in wanted.items():
        if value is not None:
            of_keys &= pc.field(column) == value
    # All parts, also those of other keys: a commit is complete by what is there of it, not by what is asked for.
    parts = history.rows("offset_commits", partitions, appended & pc.field("commit_id").is_valid(), _PARTS)
    markers = history.rows("transaction_markers", partitions, appended)
    reductions = [Reduction(markers.filter(_until(at)), parts.filter(_until(at))) for at in instants]
    for batch in history.batches("offset_commits", partitions, of_keys, [*dict.fromkeys((*columns, *_NEEDED))]):
        for at, reduction in zip(instants, reductions, strict=True):
            reduction.add(batch if at == max(instants) else batch.filter(_until(at)))
    none = table_schema("offsets").empty_table().select(columns)
    decided = [reduction.decided() for reduction in reductions]
    return [none if rows is None else rows.filter(_IS_COMMIT).select(columns).cast(none.schema) for rows in decided]


def _until(instant_ms: int) -> pc.Expression:
    return pc.field("log_timestamp").is_null() | (pc.field("log_timestamp") <= instant_ms)
