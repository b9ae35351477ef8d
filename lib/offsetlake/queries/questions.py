"""Questions about the offsets, groups, decisions and events of a lake, each answered as an Arrow table."""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.definitions import definition
from offsetlake.lake.files import table_schema
from offsetlake.lake.history.group_places import condition_if_known
from offsetlake.lake.history.moved_groups import current_partition, log_partition_count
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.lake.sql.statements import statement
from offsetlake.lake.state_files import state_batches
from offsetlake.queries.history.key_history import DETAILS, KeyHistory
from offsetlake.queries.log_clock import clock_of_log
from offsetlake.queries.selection import check_state, like, log_partitions_of, name_or_pattern, where_named

GROUP_COLUMNS = [name for name in definition("groups").column_names if name != "replay_state"]


def offsets(lake: Lake, group_id: str | None = None, topic: str | None = None, limit: int | None = None) -> pa.Table:
    """Return rows of `offsets`, sorted by key, of one group or topic if named."""
    where = where_named({"group_id": group_id, "topic": topic})
    if group_id is not None:
        where += f" AND {condition_if_known(lake, group_id)}"
    return lake.query(f"SELECT * FROM offsets {where} ORDER BY group_id, topic, partition {_limit(limit)}", "offsets")  # noqa: S608


def count_offsets(lake: Lake, group_id: str | None = None, topic: str | None = None) -> int:
    """Return the number of rows that `offsets` returns without a limit."""
    where = where_named({"group_id": group_id, "topic": topic})
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
    sql = statement("alterations", where=where_named({"outcome": outcome}))
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
    where = where_named({"principal": principal})
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
    sql = statement("open_transactions", now=now, open_longer_ms=open_longer_ms, clock=clock_of_log(lake))
    return lake.query(sql, "pending_offsets").sort_by([("first_timestamp", "ascending")])


def _limit(limit: int | None) -> str:
    return "" if limit is None else f"LIMIT {limit}"
