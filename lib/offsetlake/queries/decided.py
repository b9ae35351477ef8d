"""The records of history that count: what is left of it without open and aborted transactions, and half commits."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.history_files import History, history_files, partition_rows
from offsetlake.lake.lake import Lake
from offsetlake.rules import policy
from offsetlake.rules.reduction import KEY, PART, Reduction

_TABLES = ("offset_commits", "transaction_markers")
_COLUMNS = [
    "ingest_run", "log_partition", "log_offset", "kind", *KEY, "committed_offset", "commit_timestamp", "producer_id",
]  # fmt: skip


_ROWS_AT_ONCE = 1_000_000  # about: what bounds memory; to read each log partition by itself reads most files over again


def decided_until(
    lake: Lake,
    run_id: int,
    where: pc.Expression | None = None,
    pattern: str | None = None,
    within: Sequence[int] | None = None,
) -> Iterator[pa.Table]:
    """Give the commits that count and the tombstones that an ingest and those before it read.

    Whole log partitions at a time; `where` chooses rows, and `pattern` groups by their names; `within`
    names the log partitions to read, all without it. Columns are those of
    `offset_commits` that say who, where and when.
    """
    history = History(lake, 0, run_id, {table: history_files(lake, table, 0, run_id) for table in _TABLES})
    partitions = history.partitions() if within is None else within
    chosen = pc.field("ingest_run") <= run_id
    if where is not None:
        chosen &= where
    step = max(1, len(partitions) * _ROWS_AT_ONCE // max(lake.count("offset_commits"), 1))
    for some in (partitions[start : start + step] for start in range(0, len(partitions), step)):
        # All parts, also those of other keys: a commit is complete by what is there of it, not by what is asked for.
        parts = history.rows("offset_commits", some, pc.field("commit_id").is_valid(), [*PART])
        reduction = Reduction(history.rows("transaction_markers", some), parts)
        rows = partition_rows(
            lake, "offset_commits", history.files["offset_commits"], some, chosen, _COLUMNS, alone=True
        )
        if pattern is not None:
            rows = rows.filter(pa.array(policy.like(rows["group_id"], pattern)))
        yield reduction.all_decided(rows)
