"""Offsets as they were at some instants, by log partition, by the rule that makes the table `offsets`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from offsetlake.lake.files import table_schema
from offsetlake.lake.history.history_files import History, deciding_rows
from offsetlake.lake.history.moved_groups import PLACE, in_force_at, moved_places
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.queries.history.reduction import (
    COMMIT_TABLES,
    REDUCED_COLUMNS,
    Advance,
    appended_until,
    commits_in_force,
    deciding_commits,
    partitions_in_portions,
)
from offsetlake.queries.selection import log_partitions_of
from offsetlake.rules.reduction import KEY, PART, Reduction

_ROWS_AT_ONCE = 1 << 19
_PART_COLUMNS = [*PART, "log_timestamp"]


def first_rows(parts: Iterable[pa.Table], limit: int | None) -> pa.Table:
    """Return the rows of some tables in the order of their keys, at most `limit` of them."""
    return pa.concat_tables(parts).sort_by([(name, "ascending") for name in KEY]).slice(0, limit)


def replayed(
    lake: Lake, instants: Sequence[int], wanted: Mapping[str, str | None], columns: Sequence[str], advance: Advance
) -> Iterator[list[pa.Table]]:
    """Yield for some log partitions at a time the offsets in force at each of some instants, without an order.

    `wanted` maps columns to the value that rows must have, or None for any. Memory is bounded by the keys of the log
    partitions; history is read once for all instants.
    """
    history, group_id = History.open(lake, COMMIT_TABLES, until_ms=max(instants)), wanted.get("group_id")
    moved = moved_places(lake)
    within = None if group_id is None else log_partitions_of(lake, [group_id])
    for partitions in partitions_in_portions(history, _ROWS_AT_ONCE, advance, within):
        found = _replay(history, partitions, instants, wanted, [*dict.fromkeys((*columns, *PLACE))])
        yield [in_force_at(rows, moved, instant).select(columns) for rows, instant in zip(found, instants, strict=True)]


def _replay(
    history: History,
    partitions: Sequence[int],
    instants: Sequence[int],
    wanted: Mapping[str, str | None],
    columns: Sequence[str],
) -> list[pa.Table]:
    """Return the offsets that some log partitions had in force at each instant."""
    last = max(instants)
    named = [f"{column} = {quoted(value)}" for column, value in wanted.items() if value is not None]
    markers, parts = deciding_rows(history, partitions, _PART_COLUMNS, appended_until(last))
    reductions = [
        Reduction(markers.filter(appended_until(instant)), parts.filter(appended_until(instant)))
        for instant in instants
    ]
    needed = [*dict.fromkeys((*columns, *REDUCED_COLUMNS))]
    for batch in deciding_commits(history.lake, partitions, instants, " AND ".join(named) or "true", needed):
        for instant, reduction in zip(instants, reductions, strict=True):
            reduction.add(batch if instant == last else batch.filter(appended_until(instant)))
    schema = table_schema("offsets").empty_table().select(columns).schema
    return [commits_in_force(reduction).select(columns).cast(schema) for reduction in reductions]
