"""Offsets and groups as they were at an instant, from history, by the rules that make the tables of both."""

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake.definitions import definition
from offsetlake.lake.files import table_schema
from offsetlake.lake.history_files import History, history_files
from offsetlake.lake.lake import Lake
from offsetlake.lake.portions import portions
from offsetlake.queries.questions import check_state, first_instant, known_groups
from offsetlake.queries.replayed import first_rows, replayed
from offsetlake.rules.group_replay import replay_groups
from offsetlake.rules.reduction import PART, Latest, Reduction
from offsetlake.util.times import to_iso

_ALL_RUNS = (0, 2**63 - 1)
_ROWS_AT_ONCE = 1 << 20
_COMMITS = ("offset_commits", "transaction_markers")
_MADE_BY = ["log_partition", "group_id", "log_offset"]


def offsets_as_of(
    lake: Lake,
    instant_ms: int,
    group_id: str | None = None,
    topic: str | None = None,
    limit: int | None = None,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> pa.Table:
    """Rows of `offsets` as they were at an instant (ms since the epoch), of one group or topic where named; by key.

    What a broker that had read the log up to then would have served: of the records and the transaction markers whose
    `log_timestamp` is not behind the instant, or who have none (Kafka before 0.10), the newest decided one of each key,
    unless it is a tombstone; a commit in parts counts from its last part on. Order is by log offset all the same.
    `advance` is called with how many records were looked at, and of how many. Raises BadRequest for an instant before
    history.
    """
    check_known(lake, instant_ms)
    columns = definition("offsets").column_names
    found = [rows for (rows,) in replayed(lake, [instant_ms], {"group_id": group_id, "topic": topic}, columns, advance)]
    return first_rows([table_schema("offsets").empty_table(), *found], limit)


def groups_as_of(
    lake: Lake,
    instant_ms: int,
    pattern: str | None = None,
    state: str | None = None,
    group_type: str | None = None,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> pa.Table:
    """Return what `questions.groups` would have answered at an instant (ms since the epoch), by the records up to then.

    Some log partitions at a time are read, which bounds memory; `advance` is called after each with how many records
    were read, and of how many. Raises BadRequest for an instant before history, a group that history does not have, and
    an unknown state.
    """
    check_state(state)
    check_known(lake, instant_ms)
    wanted = _appended(instant_ms)
    if pattern is not None:
        wanted &= pc.field("group_id").isin(known_groups(lake, pattern))
    tables = (*_COMMITS, "group_records")
    history = _history(lake, *tables)
    partitions = history.partitions()
    parts = portions({table: lake.delta_table(table) for table in tables}, 0, _ROWS_AT_ONCE)
    done, total, found = 0, sum(part.rows for part in parts), []
    for part in parts:
        if some := [partition for partition in partitions if part.has(partition)]:
            found.append(_groups_of(history, some, instant_ms, wanted))
        done += part.rows
        advance(done, total)
    if not found:
        found = [_with_offsets(table_schema("groups").empty_table(), {})]
    groups = pa.concat_tables(found)
    for column, value in {"state": state, "group_type": group_type}.items():
        if value is not None:
            groups = groups.filter(pc.equal(groups[column], value))
    return groups.sort_by("group_id")


def _groups_of(history: History, partitions: Sequence[int], instant_ms: int, wanted: pc.Expression) -> pa.Table:
    """Return the groups of some log partitions as they were at an instant."""
    reduction, made_by = _reduction(history, partitions, instant_ms), Latest(("group_id",))
    for batch in history.batches("offset_commits", partitions, wanted):
        reduction.add(batch)
        made_by.add(reduction.complete_only(batch.filter(pc.equal(batch["kind"], "commit"))).select(_MADE_BY))
    commits = made_by.result()
    if commits is None:
        commits = table_schema("offset_commits").empty_table().select(_MADE_BY)
    schema = table_schema("groups")
    records = history.rows("group_records", partitions, wanted)
    groups = pa.Table.from_pylist(replay_groups(records, commits, schema.empty_table()).groups, schema)
    counted = _stored(reduction).group_by("group_id").aggregate([("group_id", "count")])
    counts = dict(zip(*(counted[name].to_pylist() for name in ("group_id", "group_id_count")), strict=True))
    return _with_offsets(groups, counts)


def _with_offsets(groups: pa.Table, counts: Mapping[str, int]) -> pa.Table:
    """Add to rows of `groups` how many offsets each has."""
    offsets = pa.array([counts.get(name, 0) for name in groups["group_id"].to_pylist()], pa.int64())
    return groups.drop_columns(["replay_state"]).append_column("offsets", offsets)


def check_known(lake: Lake, instant_ms: int) -> None:
    """Raise BadRequest for an instant before history, or where there is none."""
    first = first_instant(lake)
    if first is None:
        raise BadRequest(f"the lake {lake.path} holds no record with a time yet: `offsetlake run` reads the log")
    if instant_ms < first:
        raise BadRequest(
            f"history begins at {to_iso(first)}: nothing is known of {to_iso(instant_ms)}, which is before it"
        )


def _appended(instant_ms: int) -> pc.Expression:
    return pc.field("log_timestamp").is_null() | (pc.field("log_timestamp") <= instant_ms)


def _history(lake: Lake, *tables: str) -> History:
    return History(lake, *_ALL_RUNS, {table: history_files(lake, table, *_ALL_RUNS) for table in tables})


def _reduction(history: History, partitions: Sequence[int], instant_ms: int) -> Reduction:
    """Begin a reduction of the records of some log partitions up to an instant."""
    appended = _appended(instant_ms)
    # All parts, also those of other keys: a commit is complete by what is there of it, not by what is asked for.
    parts = history.rows("offset_commits", partitions, appended & pc.field("commit_id").is_valid(), [*PART])
    return Reduction(history.rows("transaction_markers", partitions, appended), parts)


def _stored(reduction: Reduction) -> pa.Table:
    """Return the newest decided commit of each key that no tombstone follows."""
    rows = reduction.decided()
    if rows is None:
        return table_schema("offset_commits").empty_table()
    return rows.filter(pc.equal(rows["kind"], "commit"))
