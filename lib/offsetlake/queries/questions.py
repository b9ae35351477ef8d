"""Queries over the tables of a lake, each answered as an Arrow table without Spark."""

from collections.abc import Callable, Collection, Mapping, Sequence
from glob import escape
from typing import overload

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest, NotInLake
from offsetlake.lake.definitions import definition
from offsetlake.lake.files import has_files, table_schema
from offsetlake.lake.history.group_places import condition_if_known, group_places
from offsetlake.lake.history.history_cuts import Scope, last_cut
from offsetlake.lake.history.history_files import TIMED_TABLES, smallest
from offsetlake.lake.history.moved_groups import current_partition, log_partition_count
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.lake.sql.statements import statement
from offsetlake.lake.state_files import state_batches
from offsetlake.queries.history.key_history import DETAILS, KeyHistory
from offsetlake.queries.similar_names import similar_group, similar_topic
from offsetlake.queries.unread import check_read
from offsetlake.rules import policy
from offsetlake.util.times import MAX_TIMESTAMP_MS, to_iso

STATES = (
    "Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady", "Dead",
    "Unknown",
)  # fmt: skip
GROUP_COLUMNS = [name for name in definition("groups").column_names if name != "replay_state"]


def offsets(lake: Lake, group_id: str | None = None, topic: str | None = None, limit: int | None = None) -> pa.Table:
    """Return rows of `offsets`, sorted by key, of one group or topic if named."""
    where = _where({"group_id": group_id, "topic": topic})
    if group_id is not None:
        where += f" AND {condition_if_known(lake, group_id)}"
    return lake.query(f"SELECT * FROM offsets {where} ORDER BY group_id, topic, partition {_limit(limit)}", "offsets")  # noqa: S608


def count_offsets(lake: Lake, group_id: str | None = None, topic: str | None = None) -> int:
    """Return the number of rows that `offsets` returns without a limit."""
    where = _where({"group_id": group_id, "topic": topic})
    return int(lake.query(f"SELECT count(*) AS n FROM offsets {where}", "offsets")["n"][0].as_py())  # noqa: S608


def groups(
    lake: Lake,
    pattern: str | None = None,
    state: str | None = None,
    group_type: str | None = None,
    columns: Sequence[str] = GROUP_COLUMNS,
) -> pa.Table:
    """Return rows of `groups` with some columns, and with the number of their `offsets`; sorted by group_id.

    `pattern` is a shell pattern with `*`, `?` and `[...]`. Raises BadRequest for a state that no group can be in.
    """
    check_state(state)
    schema = table_schema("groups").empty_table().select(columns).schema
    rows = pa.Table.from_batches(state_batches(lake, "groups", columns), schema)
    for column, value in {"state": state, "group_type": group_type}.items():
        if value is not None:
            rows = rows.filter(pc.equal(rows[column], value))
    rows = like(rows, name_or_pattern(lake, pattern)).sort_by("group_id")
    counted = _offsets_by_group(lake)
    found = pc.index_in(rows["group_id"], value_set=counted["group_id"])
    return rows.append_column("offsets", pc.fill_null(counted["offsets"].take(found), 0))


def _offsets_by_group(lake: Lake) -> pa.Table:
    """Return group_id and the number of its offsets, read from some state files at a time."""
    names, numbers = list[pa.Array](), list[pa.Array]()
    for batch in state_batches(lake, "offsets", ["group_id"]):
        name, number = batch["group_id"].value_counts().flatten()
        names.append(name.cast(pa.string()))
        numbers.append(number)
    counts = pa.table({"group_id": pa.chunked_array(names, pa.string()), "n": pa.chunked_array(numbers, pa.int64())})
    return counts.group_by("group_id").aggregate([("n", "sum")]).rename_columns(["group_id", "offsets"])


def check_state(state: str | None) -> None:
    """Raise BadRequest for a state that no group can be in."""
    if state is not None and state not in STATES:
        raise BadRequest(f"no group can be in state {state!r}; states are {', '.join(STATES)}")


@overload
def name_or_pattern(lake: Lake, text: str) -> str: ...
@overload
def name_or_pattern(lake: Lake, text: str | None) -> str | None: ...
def name_or_pattern(lake: Lake, text: str | None) -> str | None:
    """Return the shell pattern for what names groups in every command: the name of one group, or a shell pattern.

    A text such as `svc[1]` is the name of a group if the state tables or the history contain a group with this name.
    """
    if text is None or text == "*" or not _WILDCARDS & {*text}:
        return text
    tables = ("groups", "offsets", "offset_commits", "group_records")
    found = " UNION ALL ".join(f"SELECT group_id FROM {table} WHERE group_id = {quoted(text)}" for table in tables)  # noqa: S608
    is_name = lake.query(f"SELECT * FROM ({found}) LIMIT 1", *tables).num_rows  # noqa: S608
    return escape(text) if is_name else text


_WILDCARDS = frozenset("*?[")


def like(rows: pa.Table, pattern: str | None) -> pa.Table:
    """Return the rows whose group_id matches the pattern, all rows without a pattern."""
    return rows if pattern is None else rows.filter(pa.array(policy.like(rows["group_id"], pattern)))


def known_groups(lake: Lake, pattern: str) -> list[str]:
    """Return the groups that history has a record of and that match the pattern; raise NotInLake if there is none."""
    tables = ["offset_commits", "group_records", "groups"]  # some groups have only records that cannot be decoded
    parts = [f"SELECT group_id FROM {table}" for table in tables]  # noqa: S608
    if has_files(lake, "unresolved_records"):
        tables.append("unresolved_records")
        parts.append("SELECT group_id FROM unresolved_records WHERE scope = 'offset'")
    known = lake.query(f"SELECT DISTINCT group_id FROM ({' UNION ALL '.join(parts)})", *tables)  # noqa: S608
    found: list[str] = like(known, name_or_pattern(lake, pattern))["group_id"].to_pylist()
    if not found:
        check_read(lake, pattern)
        raise NotInLake(
            f"no group like {pattern!r} is in history, as far as the lake {lake.location} has read its log.",
            lambda: similar_group(lake, pattern),
        )
    return found


def log_partitions_of(lake: Lake, groups: Collection[str]) -> list[int]:
    """Return the log partitions with records of groups: one each, unless partitions were added to the log topic."""
    return group_places(lake, groups, f"group_id IN ({', '.join(map(quoted, groups)) or 'NULL'})")


def log_partitions_like(lake: Lake, pattern: str) -> list[int]:
    """Return the log partitions with records of groups that match a pattern."""
    tables = ("offset_commits", "group_records", "groups")
    every = " UNION ALL ".join(f"SELECT group_id, log_partition FROM {table}" for table in tables)  # noqa: S608
    known = lake.query(f"SELECT DISTINCT group_id, log_partition FROM ({every})", *tables)  # noqa: S608
    known = like(known, name_or_pattern(lake, pattern))
    partitions: list[int] = pc.unique(known["log_partition"]).to_pylist()
    return sorted(partitions)


def check_known(lake: Lake, rows: pa.Table, pattern: str | None) -> pa.Table:
    """Return the rows of an answer; raise NotInLake if there are none and history has no group like the pattern."""
    if pattern is not None and not rows.num_rows:
        known_groups(lake, pattern)
    return rows


def outcomes(lake: Lake, condition: str = "true", since_run: int = 0) -> pa.Table:
    """Count the decisions by newest outcome and rule, most frequent first: columns outcome, rule, decisions.

    `condition` is an SQL condition on the columns of `tombstones`, of the row with the newest outcome. Decisions that
    were written only by runs before `since_run` are omitted.
    """
    decisions = statement("newest_decisions", since_run=since_run)
    counts = statement("decision_counts", decisions=decisions, condition=condition)
    return lake.query(counts, "tombstones")


def tombstones(
    lake: Lake,
    pattern: str | None = None,
    outcome: str | None = None,
    rule: str | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Return every decision once, with its newest outcome: rows of `tombstones`, a group after its offsets."""
    chosen = {"outcome": outcome, "rule": rule}
    wanted = " ".join(f"AND {name} = {quoted(value)}" for name, value in chosen.items() if value is not None)
    decisions = statement("newest_decisions", since_run=0)
    sql = f'{decisions} {wanted} ORDER BY group_id, topic NULLS LAST, "partition", judged_offset'
    rows = lake.query(sql, "tombstones").drop_columns(["newest"])
    return like(rows, name_or_pattern(lake, pattern)).slice(0, limit)


def alterations(
    lake: Lake, pattern: str | None = None, outcome: str | None = None, limit: int | None = None
) -> pa.Table:
    """Return every offset set by hand or by repair, newest first: rows of `alterations`.

    A plan that has an outcome by now is omitted: the row of its outcome repeats all of it.
    """
    sql = statement("alterations", where=_where({"outcome": outcome}))
    rows = lake.query(sql, "alterations").drop_columns(["next_outcome"])
    return like(rows, name_or_pattern(lake, pattern)).slice(0, limit)


def history(
    lake: Lake,
    group_id: str,
    topic: str,
    partition: int,
    limit: int | None = None,
    records: str = "true",
    choose: Callable[[KeyHistory, pa.Table], pa.Table] = lambda _, rows: rows,
) -> pa.Table:
    """Return every commit and tombstone of one key, newest first.

    `records` is an SQL condition on `offset_commits` for the records that are read: without those before, the
    previous_offset of the first rows is unknown. `choose` returns some of the rows of `KeyHistory.described`.

    | column          | description |
    |-----------------|-------------|
    | log_partition, log_offset, log_timestamp | where and when the record was appended |
    | event           | commit, reset_back (a commit lower than the value in force), reset (any other that is a reset in the view `changes`), tombstone |
    | committed_offset | null in a tombstone |
    | previous_offset | the value in force when the record was appended, as a broker served it, without commits of transactions that were open then; null = none |
    | difference      | committed_offset minus previous_offset |
    | leader_epoch, metadata, commit_timestamp, producer_id | as in `offset_commits` |
    | outcome         | of the transaction: committed, aborted, open (a tombstone takes effect in any case). partial: part of an incomplete commit in parts. null = a plain record, or a part of a complete commit |
    | what, principal, client_id, address | who did it, as in `audit_events`; without an audit event, the principal that requested the run of offsetlake that wrote the record; null = not recorded |
    """  # noqa: E501 - a row of a table
    source = key_history(lake, group_id, topic, partition)
    rows, _ = source.described(source.records(records, DETAILS))
    return source.completed(choose(source, rows).slice(0, limit))


def key_history(lake: Lake, group_id: str, topic: str, partition: int) -> KeyHistory:
    """Return a reader of the records of one key."""
    group = f"group_id = {quoted(group_id)}"
    key = f"{group} AND topic = {quoted(topic)} AND partition = {partition}"
    partitions = log_partitions_of(lake, [group_id])
    if len(partitions) > 1:
        current = current_partition(group_id, partitions, log_partition_count(lake))
        partitions.sort(key=lambda number: number != current)
    return KeyHistory(lake, group, key, partitions)


def audit_events(
    lake: Lake,
    pattern: str | None = None,
    principal: str | None = None,
    since: int | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Return who did what to groups that match the pattern, newest first: rows of `audit_events`; `since` is in ms."""
    where = _where({"principal": principal})
    if since is not None:
        where += f"{' AND' if where else 'WHERE'} log_timestamp >= {since}"
    sql = f"SELECT * FROM audit_events {where} ORDER BY log_timestamp DESC NULLS LAST, log_partition, log_offset DESC"  # noqa: S608
    return like(lake.query(sql, "audit_events"), name_or_pattern(lake, pattern)).slice(0, limit)


def transactions(lake: Lake, now: int, open_longer_ms: int = 0) -> pa.Table:
    """Return the transactions that are open at the instant `now`, in ms, and what each blocks, oldest first.

    | column           | description |
    |------------------|-------------|
    | producer_id, producer_epoch | the producer |
    | log_partition, first_log_offset | the first record that waits: the log cannot be cut after it |
    | first_timestamp  | when that record was appended, ms; null if the log does not have timestamps |
    | age_ms           | from then to `now`, null if that timestamp is wrong (`wrong_clocks`); transactions younger than `open_longer_ms` are omitted |
    | offsets          | number of offsets that wait for the end, and cannot expire or be changed by hand |
    | groups           | the groups of these offsets |
    """  # noqa: E501 - a row of a table
    sql = statement("open_transactions", now=now, open_longer_ms=open_longer_ms, clock=_clock(lake))
    return lake.query(sql, "pending_offsets").sort_by([("first_timestamp", "ascending")])


def check_committed(
    lake: Lake, group_id: str | None = None, topic: str | None = None, partition: int | None = None
) -> None:
    """Raise NotInLake if no offset of this group, topic and partition was ever committed."""
    where = _where(_named(group_id, topic, partition))
    if not lake.query(f"SELECT 1 FROM offset_commits {where} LIMIT 1", "offset_commits").num_rows:  # noqa: S608
        check_read(lake, group_id)
        if _has_unresolved(lake, where):
            raise NotInLake(
                f"no commit of {_subject(group_id, topic, partition)} can be decoded: the table quarantine has records "
                "of it."
            )
        raise never_committed(lake, group_id, topic, partition)


def _has_unresolved(lake: Lake, where: str) -> bool:
    """Return whether quarantined records leave an offset unknown that satisfies the condition."""
    if not has_files(lake, "unresolved_records"):
        return False
    sql = f"SELECT 1 FROM unresolved_records {where} {'AND' if where else 'WHERE'} scope = 'offset' LIMIT 1"  # noqa: S608
    return bool(lake.query(sql, "unresolved_records").num_rows)


def never_committed(
    lake: Lake, group_id: str | None = None, topic: str | None = None, partition: int | None = None
) -> NotInLake:
    """Return the error that no offset of this group, topic and partition was ever committed."""
    return NotInLake(
        f"no offset of {_subject(group_id, topic, partition)} was ever committed, as far as the lake {lake.location} "
        "has read its log.",
        lambda: similar_group(lake, group_id) or similar_topic(lake, topic, group_id),
    )


def _subject(group_id: str | None, topic: str | None, partition: int | None) -> str:
    named = _named(group_id, topic, partition).items()
    return ", ".join(f"{column.removesuffix('_id')} {value}" for column, value in named if value is not None)


def _named(group_id: str | None, topic: str | None, partition: int | None) -> dict[str, str | None]:
    return {"group_id": group_id, "topic": topic, "partition": None if partition is None else str(partition)}


def first_instant(lake: Lake) -> int | None:
    """Return from which instant on history is complete, in ms since the epoch; None if no record has a timestamp.

    This is the time of the oldest record or, if `maintain` has dropped history, of the newest dropped record. Times
    before the epoch do not count, unless all are.
    """
    cut = last_cut(lake, "history")
    if cut and cut.begins_timestamp is not None:
        return cut.begins_timestamp
    found = [smallest(lake, table, "log_timestamp") for table in TIMED_TABLES]
    first = min((timestamp for timestamp in found if timestamp is not None), default=None)
    if first is None or first >= 0:
        return first
    right = " UNION ALL ".join(f"SELECT log_timestamp FROM {table} WHERE log_timestamp >= 0" for table in TIMED_TABLES)  # noqa: S608
    rows = lake.query(f"SELECT min(log_timestamp) AS least FROM ({right})", *TIMED_TABLES)  # noqa: S608
    least: int | None = rows["least"][0].as_py()
    return first if least is None else least


def newest_instant(lake: Lake) -> int | None:
    """Return the clock of the log (the view `log_clock`) in ms since the epoch; None if no record has a timestamp."""
    newest: int | None = lake.query("SELECT clock_timestamp FROM log_clock", "log_clock")["clock_timestamp"][0].as_py()
    return newest


def wrong_clocks(lake: Lake) -> pa.Table:
    """Return the groups with records whose timestamps are wrong: after the clock of the log, or before the epoch.

    Columns: group_id, records (the number of these), least_timestamp and greatest_timestamp in ms since the epoch, and
    matches, the number of all such groups; the latest first.
    """
    tables = ("offset_commits", "group_records", "share_state_records")
    return lake.query(statement("wrong_clocks", clock=_clock(lake)), *tables)


def _clock(lake: Lake) -> int:
    clock = newest_instant(lake)
    return MAX_TIMESTAMP_MS if clock is None else clock


def what_was_dropped(lake: Lake, scope: Scope) -> str:
    """Return a sentence about the history that `maintain` has dropped; empty if it has dropped none."""
    cut = last_cut(lake, scope)
    if cut is None:
        return ""
    begins = "" if cut.begins_timestamp is None else f" at {to_iso(cut.begins_timestamp)}"
    if scope == "audit_events":
        return f"Audit events begin{begins}: `offsetlake maintain` has dropped earlier ones ([audit_events] keep)."
    return (
        f"History begins{begins}: of the records before, `offsetlake maintain` has kept only those that decide the "
        "offsets and groups since ([history] keep)."
    )


def _where(wanted: Mapping[str, str | None]) -> str:
    conditions = [f"{column} = {quoted(value)}" for column, value in wanted.items() if value is not None]
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""


def _limit(limit: int | None) -> str:
    return "" if limit is None else f"LIMIT {limit}"
