"""The records of history that took effect: without open and aborted transactions and incomplete commits in parts."""

from collections.abc import Callable, Collection, Iterator, Sequence
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.history.history_files import History, deciding_rows, row_groups
from offsetlake.lake.lake import Lake
from offsetlake.queries.history.reduction import COMMIT_TABLES
from offsetlake.rules import policy
from offsetlake.rules.reduction import KEY, PART, Reduction

_COLUMNS = [
    "ingest_run", "log_partition", "log_offset", "kind", *KEY, "committed_offset", "commit_timestamp", "producer_id",
]  # fmt: skip

Needed = Callable[[pa.Table], pa.Table]

_ROWS_AT_ONCE = 250_000  # approximate bound; to read each log partition by itself would read most files repeatedly


def decided_until(
    lake: Lake,
    run_id: int,
    where: pc.Expression | None = None,
    pattern: str | None = None,
    within: Collection[int] | None = None,
    needed: Needed | None = None,
) -> Iterator[pa.Table]:
    """Yield the commits that took effect and the tombstones, as an ingest and those before it read them.

    Some log partitions at a time, each completely. The columns are those of `offset_commits` that identify, place and
    time a commit. Arguments are those of `decided_by_portion`.
    """
    portions = decided_by_portion(lake, run_id, where, pattern, within, needed)
    return map(itemgetter(1), portions)  # keeps no portion while it reads the next


def decided_by_portion(
    lake: Lake,
    run_id: int,
    where: pc.Expression | None = None,
    pattern: str | None = None,
    within: Collection[int] | None = None,
    needed: Needed | None = None,
    others: Collection[int] = (),
) -> Iterator[tuple[Sequence[int], pa.Table]]:
    """Yield some log partitions at a time, and their records as `decided_until` yields them.

    Args:
        lake: The lake to read.
        run_id: The newest ingest run whose records are read.
        where: Condition that chooses rows.
        pattern: Pattern that the names of the groups must match.
        within: The log partitions to read; all by default.
        needed: Returns those of some records that the caller needs; the others may be omitted.
        others: Log partitions to yield even if they have no records, unless `within` excludes them.

    """
    history = History.open(lake, COMMIT_TABLES, 0, run_id)
    partitions = sorted({*history.partitions(), *others} if within is None else within)
    chosen = pc.field("ingest_run") <= run_id
    if where is not None:
        chosen &= where
    step = max(1, len(partitions) * _ROWS_AT_ONCE // max(lake.count("offset_commits"), 1))
    for some in (partitions[start : start + step] for start in range(0, len(partitions), step)):
        yield some, _decided(lake, history, some, chosen, pattern, needed)
        pa.default_memory_pool().release_unused()  # of each portion: the C library keeps it in fragments otherwise


def _decided(
    lake: Lake,
    history: History,
    partitions: Sequence[int],
    chosen: pc.Expression,
    pattern: str | None,
    needed: Needed | None,
) -> pa.Table:
    reduction = Reduction(*deciding_rows(history, partitions, PART))
    parts, limit = list[pa.Table](), _ROWS_AT_ONCE
    for rows in row_groups(lake, "offset_commits", history.files["offset_commits"], partitions, chosen, _COLUMNS):
        if pattern is not None:
            rows = rows.filter(pa.array(policy.like(rows["group_id"], pattern)))  # noqa: PLW2901
        parts.append(reduction.all_decided(rows))
        if needed is not None and sum(part.num_rows for part in parts) > limit:
            parts = [needed(pa.concat_tables(parts))]
            limit = max(_ROWS_AT_ONCE, 2 * parts[0].num_rows)
    return pa.concat_tables(parts)
