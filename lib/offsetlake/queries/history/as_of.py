"""Offsets and groups as they were at an instant, from history, by the rules that make the tables of both."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake.definitions import definition
from offsetlake.lake.files import table_schema
from offsetlake.lake.history.history_cuts import last_cut
from offsetlake.lake.history.history_files import History, deciding_rows
from offsetlake.lake.history.moved_groups import PLACE, in_force_at, moved_places
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.queries.history.reduction import (
    COMMIT_TABLES,
    REDUCED_COLUMNS,
    Advance,
    appended_by,
    appended_until,
    commits_in_force,
    deciding_commits,
    group_records,
    partitions_in_portions,
)
from offsetlake.queries.history.replayed import first_rows, replayed
from offsetlake.queries.log_clock import first_instant
from offsetlake.queries.questions import GROUP_COLUMNS
from offsetlake.queries.selection import check_state, known_groups, log_partitions_like
from offsetlake.rules.groups.replay import NOTHING_UNREAD, QuarantinedRecords, replay_groups
from offsetlake.rules.reduction import PART, Latest, Reduction
from offsetlake.rules.unresolved import unread_by_partition
from offsetlake.util.times import to_iso

_ROWS_AT_ONCE = 1 << 19
_NEWEST_COMMIT = ["log_partition", "group_id", "log_offset"]


def offsets_as_of(
    lake: Lake,
    instant_ms: int,
    group_id: str | None = None,
    topic: str | None = None,
    limit: int | None = None,
    advance: Advance = lambda _done, _total: None,
) -> pa.Table:
    """Return the rows of `offsets` as they were at an instant (ms since the epoch), in the order of their keys.

    `group_id` and `topic` limit the rows. The offsets are those that a broker would have served that had read the log
    up to the instant: of the records and transaction markers with a `log_timestamp` up to the instant, or without one
    (Kafka before 0.10), the newest decided record of each key, unless it is a tombstone. A commit in parts takes effect
    at its last part. Timestamps only choose records; their order is that of the log offsets. `advance` is called with
    the number of records read and the number of all records. Raises BadRequest for an instant before history.
    """
    check_known(lake, instant_ms)
    columns = definition("offsets").column_names
    wanted = {"group_id": group_id, "topic": topic}
    parts = [rows for (rows,) in replayed(lake, [instant_ms], wanted, columns, advance)]
    return first_rows([table_schema("offsets").empty_table(), *parts], limit)


def groups_as_of(
    lake: Lake,
    instant_ms: int,
    pattern: str | None = None,
    state: str | None = None,
    group_type: str | None = None,
    columns: Sequence[str] = GROUP_COLUMNS,
    advance: Advance = lambda _done, _total: None,
) -> pa.Table:
    """Return what `questions.groups` would have returned at an instant (ms since the epoch), by the records up to then.

    Some log partitions are read at a time, which bounds memory; `advance` is called after each portion with the number
    of records read and the number of all records. Raises BadRequest for an instant before history, for groups that
    history does not have, and for an unknown state.
    """
    check_state(state)
    check_known(lake, instant_ms)
    condition, within = "true", None
    known: list[str] | None = None
    if pattern is not None:
        known = known_groups(lake, pattern)
        condition = f"group_id IN ({', '.join(map(quoted, known))})"
        within = log_partitions_like(lake, pattern)
    history = History.open(lake, (*COMMIT_TABLES, "group_records", "quarantine"), until_ms=instant_ms)
    moved, placed = moved_places(lake), [*dict.fromkeys((*columns, *PLACE))]
    groups = pa.concat_tables(
        [
            _with_offsets(table_schema("groups").empty_table(), {}).select([*columns, "offsets"]),
            *(
                in_force_at(
                    _groups_of(history, partitions, instant_ms, condition, known).select([*placed, "offsets"]),
                    moved,
                    instant_ms,
                ).select([*columns, "offsets"])
                for partitions in partitions_in_portions(history, _ROWS_AT_ONCE, advance, within)
            ),
        ]
    )
    for column, value in {"state": state, "group_type": group_type}.items():
        if value is not None:
            groups = groups.filter(pc.equal(groups[column], value))
    return groups.sort_by("group_id")


def _groups_of(
    history: History, partitions: Sequence[int], instant_ms: int, condition: str, known: Sequence[str] | None
) -> pa.Table:
    """Return those groups of some log partitions that satisfy an SQL condition, as they were at an instant.

    `known` are these groups; None for all.
    """
    counts, newest_commits = _commits_of(history, partitions, instant_ms, condition)
    schema = table_schema("groups")
    records = group_records(history.lake, partitions, f"{appended_by(instant_ms)} AND {condition}")
    unread = _unread(history, partitions, instant_ms)
    of_partition = {number: pc.field("log_partition") == number for number in partitions} if unread else {}
    parts = [(records.filter(chosen), newest_commits.filter(chosen)) for chosen in of_partition.values()]
    rows: list[dict[str, Any]] = []
    for number, (some, commits) in zip(of_partition or [0], parts or [(records, newest_commits)], strict=True):
        rows += replay_groups(some, commits, schema.empty_table(), unread.get(number, NOTHING_UNREAD)).groups
    groups = pa.Table.from_pylist(rows, schema)
    if unread and known is not None:
        groups = groups.filter(pc.is_in(groups["group_id"], pa.array(known, pa.string())))
    return _with_offsets(groups, counts)


def _unread(history: History, partitions: Sequence[int], instant_ms: int) -> dict[int, QuarantinedRecords]:
    """Return the quarantined records that concerned groups at an instant, by log partition; usually none.

    The time of a batch that cannot be read is unknown: it counts as read by the instant unless a record before it is
    newer.
    """
    quarantined = history.rows("quarantine", partitions, appended_until(instant_ms))
    if not quarantined.num_rows:
        return {}
    is_batch = pc.and_(pc.is_null(quarantined["key_bytes"]), pc.is_null(quarantined["log_timestamp"]))
    later = [
        row["log_offset"]
        for row in quarantined.filter(is_batch).to_pylist()
        if _newest_before(history.lake, row["log_partition"], row["log_offset"]) > instant_ms
    ]
    not_yet = pc.and_(is_batch, pc.is_in(quarantined["log_offset"], pa.array(later, pa.int64())))
    return unread_by_partition(quarantined.filter(pc.invert(not_yet)))


def _newest_before(lake: Lake, partition: int, log_offset: int) -> int:
    """Return the newest time of the records before a log offset, in ms since the epoch; 0 if there is none."""
    where = f"WHERE log_partition = {partition} AND log_offset < {log_offset}"
    tables = ("offset_commits", "group_records")
    times = " UNION ALL ".join(f"SELECT max(log_timestamp) AS newest FROM {table} {where}" for table in tables)  # noqa: S608
    return lake.query(f"SELECT max(newest) AS newest FROM ({times})", *tables)["newest"][0].as_py() or 0  # noqa: S608


def _commits_of(
    history: History, partitions: Sequence[int], instant_ms: int, condition: str
) -> tuple[dict[str, int], pa.Table]:
    """Return the number of offsets of each of these groups at an instant, and its newest commit."""
    reduction = Reduction(*deciding_rows(history, partitions, PART, appended_until(instant_ms)))
    newest = Latest(("group_id",))
    for batch in deciding_commits(history.lake, partitions, [instant_ms], condition, REDUCED_COLUMNS):
        reduction.add(batch)
        commits_only = batch.filter(pc.equal(batch["kind"], "commit"))
        newest.add(reduction.complete_only(commits_only).select(_NEWEST_COMMIT))
    commits = newest.result()
    if commits is None:
        commits = table_schema("offset_commits").empty_table().select(_NEWEST_COMMIT)
    counted = commits_in_force(reduction).group_by("group_id").aggregate([("group_id", "count")])
    counts = dict(zip(*(counted[name].to_pylist() for name in ("group_id", "group_id_count")), strict=True))
    return counts, commits


def _with_offsets(groups: pa.Table, counts: Mapping[str, int]) -> pa.Table:
    """Add to rows of `groups` the number of their offsets."""
    offsets = pa.array([counts.get(name, 0) for name in groups["group_id"].to_pylist()], pa.int64())
    return groups.append_column("offsets", offsets)


def check_known(lake: Lake, instant_ms: int) -> None:
    """Raise BadRequest for an instant before history, or if there is no history."""
    first = first_instant(lake)
    if first is None:
        raise BadRequest(f"the lake {lake.location} contains no record with a time yet: `offsetlake run` reads the log")
    if instant_ms < first:
        dropped = last_cut(lake, "history") is not None
        why = "; `offsetlake maintain` has dropped the history before ([history] keep)" if dropped else ""
        raise BadRequest(
            f"history begins at {to_iso(first)}: nothing is known of {to_iso(instant_ms)}, which is before it{why}"
        )
