"""Offsets as they were at an instant, from history, by the one rule that makes the table `offsets`."""

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.audit.questions import first_instant
from offsetlake.errors import BadRequest
from offsetlake.lake.definitions import definition
from offsetlake.lake.files import table_schema
from offsetlake.lake.history_files import History, history_files
from offsetlake.lake.lake import Lake
from offsetlake.lifecycle.reduction import KEY, PART, Reduction
from offsetlake.times import to_iso

_ALL_RUNS = (0, 2**63 - 1)


def offsets_as_of(
    lake: Lake, instant_ms: int, group_id: str | None = None, topic: str | None = None, limit: int | None = None
) -> pa.Table:
    """Rows of `offsets` as they were at an instant (ms since the epoch), of one group or topic where named; by key.

    What a broker that had read the log up to then would have served: of the records and the transaction markers whose
    `log_timestamp` is not behind the instant, or who have none (Kafka before 0.10), the newest decided one of each key,
    unless it is a tombstone; a commit in parts counts from its last part on. Order is by log offset all the same.
    Raises BadRequest for an instant before history.
    """
    first = first_instant(lake)
    if first is None:
        raise BadRequest(f"the lake {lake.path} holds no record with a time yet: `offsetlake run` reads the log")
    if instant_ms < first:
        raise BadRequest(
            f"history begins at {to_iso(first)}: nothing is known of {to_iso(instant_ms)}, which is before it"
        )
    kept = _replay(lake, instant_ms, {"group_id": group_id, "topic": topic})
    if kept is None:
        return table_schema("offsets").empty_table()
    rows = kept.filter(pc.equal(kept["kind"], "commit")).select(definition("offsets").column_names)
    return rows.sort_by([(name, "ascending") for name in KEY]).slice(0, limit)


def _replay(lake: Lake, instant_ms: int, wanted: dict[str, str | None]) -> pa.Table | None:
    """Give the newest decided record of each key wanted, tombstones included; None where there is none."""
    appended = pc.field("log_timestamp").is_null() | (pc.field("log_timestamp") <= instant_ms)
    of_keys = appended
    for column, value in wanted.items():
        if value is not None:
            of_keys &= pc.field(column) == value
    tables = ("offset_commits", "transaction_markers")
    history = History(lake, *_ALL_RUNS, {table: history_files(lake, table, *_ALL_RUNS) for table in tables})
    partitions = history.partitions()
    if not partitions:
        return None
    # All parts, also those of other keys: a commit is complete by what is there of it, not by what is asked for.
    parts = history.rows("offset_commits", partitions, appended & pc.field("commit_id").is_valid(), [*PART])
    reduction = Reduction(history.rows("transaction_markers", partitions, appended), parts)
    for batch in history.batches("offset_commits", partitions, of_keys):
        reduction.add(batch)
    return reduction.decided()
