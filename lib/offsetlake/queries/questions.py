"""The questions asked of a lake, each answered as an Arrow table: SQL over the Delta tables, without Spark."""

from collections.abc import Mapping

import pyarrow as pa

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.rules import policy

STATES = (
    "Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady", "Dead",
)  # fmt: skip
TIMED = ("offset_commits", "transaction_markers", "group_records", "share_state_records")

# `next_end`: of each transactional record the marker that ended it, the first behind it of its producer.
# `complete`: of each part of a complete commit its last part, by the rule of `incomplete` in `rules/reduction.py`.
# `in_force`: of each record the log offset of the value in force when it was appended, which is the highest one among
# what had been applied by then: plain commits and tombstones by themselves, transactional commits by their marker,
# parts by the last one of their commit.
# `acted`: of each record the first one of the audit event nearest before it, which may be of other records.
_HISTORY = """
WITH
commits AS (SELECT *{lacking} FROM offset_commits),
records AS (SELECT * FROM commits WHERE {key}),
ends AS (
  SELECT log_partition, log_offset, producer_id, marker FROM transaction_markers
  WHERE producer_id IN (SELECT producer_id FROM records)
),
transactional AS (
  SELECT log_partition, producer_id, log_offset, CAST(NULL AS BIGINT) AS ended_at
  FROM records WHERE producer_id IS NOT NULL
  UNION ALL SELECT log_partition, producer_id, log_offset, log_offset AS ended_at FROM ends
),
next_end AS (
  SELECT log_partition, log_offset, min(ended_at) OVER (
    PARTITION BY log_partition, producer_id ORDER BY log_offset DESC ROWS UNBOUNDED PRECEDING
  ) AS ended_at
  FROM transactional
),
parts AS (
  SELECT log_partition, log_offset, commit_id, commit_size FROM commits
  WHERE commit_id IN (SELECT commit_id FROM records)
),
part_runs AS (
  SELECT *, log_offset - row_number() OVER (
    PARTITION BY log_partition, commit_id, commit_size ORDER BY log_offset
  ) AS run
  FROM parts
),
placed_parts AS (
  SELECT log_partition, log_offset, commit_size,
    min(log_offset) OVER one_run AS first_part, max(log_offset) OVER one_run AS last_part
  FROM part_runs WINDOW one_run AS (PARTITION BY log_partition, commit_id, commit_size, run)
),
complete AS (
  SELECT log_partition, log_offset, complete_at FROM (
    SELECT log_partition, log_offset, last_part,
      log_offset + commit_size - 1 - (log_offset - first_part) % commit_size AS complete_at
    FROM placed_parts
  ) WHERE complete_at <= last_part
),
decided AS (
  SELECT records.*, coalesce(complete.complete_at, ends.log_offset) AS ended_at, CASE
    WHEN records.commit_id IS NOT NULL AND complete.complete_at IS NULL THEN 'partial'
    WHEN records.producer_id IS NULL THEN NULL
    WHEN ends.marker = 'COMMIT' THEN 'committed' WHEN ends.marker = 'ABORT' THEN 'aborted' ELSE 'open'
  END AS outcome
  FROM records
  LEFT JOIN next_end ON next_end.log_partition = records.log_partition AND next_end.log_offset = records.log_offset
  LEFT JOIN ends ON ends.log_partition = records.log_partition AND ends.log_offset = next_end.ended_at
  LEFT JOIN complete ON complete.log_partition = records.log_partition AND complete.log_offset = records.log_offset
),
applied AS (
  SELECT log_partition, log_offset, CASE
    WHEN outcome = 'partial' THEN NULL
    WHEN commit_id IS NOT NULL OR (kind = 'commit' AND outcome = 'committed') THEN ended_at
    WHEN kind = 'tombstone' OR outcome IS NULL THEN log_offset
  END AS applied_at
  FROM decided
),
moments AS (
  SELECT log_partition, log_offset AS moment, 0 AS turn, CAST(NULL AS BIGINT) AS applied FROM decided
  UNION ALL
  SELECT log_partition, applied_at AS moment, 1 AS turn, log_offset AS applied
  FROM applied WHERE applied_at IS NOT NULL
),
in_force AS (
  SELECT log_partition, moment, turn, max(applied) OVER (
    PARTITION BY log_partition ORDER BY moment, turn ROWS UNBOUNDED PRECEDING
  ) AS log_offset
  FROM moments
),
acted AS (
  SELECT log_partition, log_offset, audit_offset FROM (
    SELECT log_partition, log_offset, is_audit_event, max(CASE WHEN is_audit_event THEN log_offset END) OVER (
      PARTITION BY log_partition ORDER BY log_offset
    ) AS audit_offset
    FROM (
      SELECT log_partition, log_offset, FALSE AS is_audit_event FROM records
      UNION ALL SELECT log_partition, log_offset, TRUE AS is_audit_event FROM {audit_events}
    )
  ) WHERE NOT is_audit_event
),
compared AS (
  SELECT decided.*, previous.committed_offset AS previous_offset,
    CAST(decided.committed_offset AS DECIMAL(20)) - CAST(previous.committed_offset AS DECIMAL(20)) AS difference
  FROM decided
  JOIN in_force ON in_force.turn = 0
    AND in_force.log_partition = decided.log_partition AND in_force.moment = decided.log_offset
  LEFT JOIN records AS previous
    ON previous.log_partition = in_force.log_partition AND previous.log_offset = in_force.log_offset
)
SELECT compared.log_partition, compared.log_offset, compared.log_timestamp, CASE
    WHEN kind = 'tombstone' THEN 'tombstone'
    WHEN difference < 0 AND (outcome IS NULL OR outcome = 'committed') THEN 'reset_back'
    ELSE 'commit'
  END AS event,
  committed_offset, previous_offset, difference, leader_epoch, metadata, commit_timestamp, producer_id, outcome,
  events.what, events.principal, events.client_id, events.address
FROM compared
JOIN acted ON acted.log_partition = compared.log_partition AND acted.log_offset = compared.log_offset
LEFT JOIN {audit_events} AS events
  ON events.log_partition = acted.log_partition AND events.log_offset = acted.audit_offset
  AND events.last_log_offset >= compared.log_offset
ORDER BY compared.log_partition, compared.log_offset DESC {limit}
"""

_DECISIONS = """
SELECT * FROM (
  SELECT *, row_number() OVER (
    PARTITION BY group_id, topic, "partition", judged_offset ORDER BY run_id DESC
  ) AS newest FROM tombstones
) WHERE newest = 1"""

_BEFORE_PARTS = ", CAST(NULL AS BIGINT) AS commit_id, CAST(NULL AS INT) AS commit_size"  # of a lake not upgraded yet
_BEFORE_AUDIT_EVENTS = """(SELECT log_partition, log_offset, log_offset AS last_log_offset,
  CAST(NULL AS STRING) AS what,
  CAST(NULL AS STRING) AS principal, CAST(NULL AS STRING) AS client_id, CAST(NULL AS STRING) AS address
  FROM offset_commits WHERE FALSE)"""  # of a lake not upgraded yet


def offsets(lake: Lake, group_id: str | None = None, topic: str | None = None, limit: int | None = None) -> pa.Table:
    """Rows of table `offsets`, sorted by key."""
    where = _where({"group_id": group_id, "topic": topic})
    return lake.query(f"SELECT * FROM offsets {where} ORDER BY group_id, topic, partition {_limit(limit)}", "offsets")  # noqa: S608


def count_offsets(lake: Lake, group_id: str | None = None, topic: str | None = None) -> int:
    """Return how many rows `offsets` has without a limit."""
    where = _where({"group_id": group_id, "topic": topic})
    return int(lake.query(f"SELECT count(*) AS n FROM offsets {where}", "offsets")["n"][0].as_py())  # noqa: S608


def groups(lake: Lake, pattern: str | None = None, state: str | None = None, group_type: str | None = None) -> pa.Table:
    """Rows of table `groups` without `replay_state`, and `offsets`: how many the group has; sorted by group_id.

    `pattern` is one of the shell: `*`, `?`, `[...]`. Raises BadRequest for a state no group can be in.
    """
    check_state(state)
    sql = f"""
        SELECT groups.*, coalesce(counted.offsets, 0) AS offsets FROM groups
        LEFT JOIN (SELECT group_id, count(*) AS offsets FROM offsets GROUP BY group_id) AS counted
        ON counted.group_id = groups.group_id
        {_where({"state": state, "group_type": group_type})} ORDER BY groups.group_id"""  # noqa: S608
    found = lake.query(sql, "groups", "offsets").drop_columns(["replay_state"])
    return like(found, pattern)


def check_state(state: str | None) -> None:
    """Raise BadRequest for a state that no group can be in."""
    if state is not None and state not in STATES:
        raise BadRequest(f"no group can be in state {state!r}; states are {', '.join(STATES)}")


def like(rows: pa.Table, pattern: str | None) -> pa.Table:
    """Keep the rows whose group_id is like the pattern, all where there is none."""
    return rows if pattern is None else rows.filter(pa.array(policy.like(rows["group_id"], pattern)))


def known_groups(lake: Lake, pattern: str) -> list[str]:
    """Return the groups like the pattern that history has a record of; raise BadRequest if there is none."""
    every = "SELECT group_id FROM offset_commits UNION ALL SELECT group_id FROM group_records"
    known = lake.query(f"SELECT DISTINCT group_id FROM ({every})", "offset_commits", "group_records")  # noqa: S608
    found: list[str] = like(known, pattern)["group_id"].to_pylist()
    if not found:
        raise BadRequest(f"no group like {pattern!r} is in history, as far as the lake {lake.path} has read its log")
    return found


def check_known(lake: Lake, rows: pa.Table, pattern: str | None) -> pa.Table:
    """Return the rows of an answer; raise BadRequest if there are none and history has no group like the pattern."""
    if pattern is not None and not rows.num_rows:
        known_groups(lake, pattern)
    return rows


def outcomes(lake: Lake, condition: str = "true") -> pa.Table:
    """Count the decisions that `tombstones` gives: columns outcome, rule, decisions; the most first.

    `condition` is one of SQL on the columns of `tombstones`.
    """
    sql = f"""
        SELECT outcome, rule, count(*) AS decisions FROM ({_DECISIONS}) WHERE {condition}
        GROUP BY outcome, rule ORDER BY decisions DESC, outcome, rule"""  # noqa: S608
    return lake.query(sql, "tombstones")


def tombstones(
    lake: Lake, pattern: str | None = None, outcome: str | None = None, limit: int | None = None
) -> pa.Table:
    """Give every decision once, with its newest outcome: rows of `tombstones`, a group's offsets before the group."""
    wanted = "" if outcome is None else f"AND outcome = {quoted(outcome)}"
    sql = f'{_DECISIONS} {wanted} ORDER BY group_id, topic NULLS LAST, "partition", judged_offset'
    return like(lake.query(sql, "tombstones").drop_columns(["newest"]), pattern).slice(0, limit)


def alterations(
    lake: Lake, pattern: str | None = None, outcome: str | None = None, limit: int | None = None
) -> pa.Table:
    """Give every offset set by hand or by repair, newest first: rows of `alterations`.

    A plan of which something came is left out: its outcome says all of it.
    """
    wanted = "" if outcome is None else f"WHERE outcome = {quoted(outcome)}"
    sql = f"""
        SELECT * FROM (
          SELECT * FROM (
            SELECT *, lead(outcome) OVER (PARTITION BY group_id, topic, "partition" ORDER BY run_id) AS then
            FROM alterations
          ) WHERE outcome <> 'planned' OR then IS NULL OR then = 'planned'
        ) {wanted} ORDER BY run_id DESC, group_id, topic, "partition", outcome"""  # noqa: S608
    return like(lake.query(sql, "alterations").drop_columns(["then"]), pattern).slice(0, limit)


def history(lake: Lake, group_id: str, topic: str, partition: int, limit: int | None = None) -> pa.Table:
    """Every commit and tombstone of one key, newest first.

    | column          | is |
    |-----------------|----|
    | log_partition, log_offset, log_timestamp | where and when the record was appended |
    | event           | commit, reset_back (a commit of less than was in force), tombstone |
    | committed_offset | null in a tombstone |
    | previous_offset | the value in force when the record was appended, as a broker served it: commits of transactions that were open then are not; null = none |
    | difference      | committed_offset less previous_offset |
    | leader_epoch, metadata, commit_timestamp, producer_id | as in `offset_commits` |
    | outcome         | how the transaction ended: committed, aborted, open; a tombstone holds all the same. partial: a part of a commit in parts that is not complete, which does not hold. null = a plain record, or a part that holds from the last part on |
    | what, principal, client_id, address | who did it, as in `audit_events`; null = not recorded |
    """  # noqa: E501 - a row of a table
    key = f"group_id = {quoted(group_id)} AND topic = {quoted(topic)} AND partition = {partition}"
    lacking = "" if "commit_id" in lake.columns("offset_commits") else _BEFORE_PARTS
    there = ("audit_events",) if "audit_events" in lake.tables() else ()
    of_group = f"(SELECT * FROM audit_events WHERE group_id = {quoted(group_id)})" if there else _BEFORE_AUDIT_EVENTS  # noqa: S608
    sql = _HISTORY.format(key=key, lacking=lacking, audit_events=of_group, limit=_limit(limit))
    return lake.query(sql, "offset_commits", "transaction_markers", *there)


def audit_events(
    lake: Lake,
    pattern: str | None = None,
    principal: str | None = None,
    since: int | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Who did what to groups like the pattern, newest first: rows of `audit_events`; `since` is ms since the epoch."""
    where = _where({"principal": principal})
    if since is not None:
        where += f"{' AND' if where else 'WHERE'} log_timestamp >= {since}"
    sql = f"SELECT * FROM audit_events {where} ORDER BY log_timestamp DESC NULLS LAST, log_partition, log_offset DESC"  # noqa: S608
    return like(lake.query(sql, "audit_events"), pattern).slice(0, limit)


def transactions(lake: Lake, now: int, open_longer_ms: int = 0) -> pa.Table:
    """Give the transactions that are open at the instant `now`, ms since the epoch, and what each blocks, oldest first.

    | column           | is |
    |------------------|----|
    | producer_id, producer_epoch | who began it |
    | log_partition, first_log_offset | the first record of it that still matters: the log cannot be cut behind it |
    | first_timestamp  | when that was appended, ms; null where the log does not say |
    | age_ms           | from then to `now`; those not older than `open_longer_ms` are left out |
    | offsets          | how many offsets wait for its end, and cannot expire or be changed by hand |
    | groups           | of these groups |
    """
    sql = f"""
        SELECT producer_id, max(producer_epoch) AS producer_epoch, log_partition, min(log_offset) AS first_log_offset,
          min(log_timestamp) AS first_timestamp, {now} - min(log_timestamp) AS age_ms,
          count(*) AS offsets, array_sort(array_agg(DISTINCT group_id)) AS groups
        FROM pending_offsets WHERE producer_id IS NOT NULL GROUP BY producer_id, log_partition
        HAVING coalesce({now} - min(log_timestamp), 9223372036854775807) >= {open_longer_ms}
        ORDER BY log_partition, first_log_offset"""  # noqa: S608 - numbers
    return lake.query(sql, "pending_offsets").sort_by([("first_timestamp", "ascending")])


def check_committed(
    lake: Lake, group_id: str | None = None, topic: str | None = None, partition: int | None = None
) -> None:
    """Raise BadRequest where no offset of this group, topic and partition was ever committed."""
    named = {"group_id": group_id, "topic": topic, "partition": None if partition is None else str(partition)}
    where = _where(named)
    if not lake.query(f"SELECT 1 FROM offset_commits {where} LIMIT 1", "offset_commits").num_rows:  # noqa: S608
        of = ", ".join(f"{column.removesuffix('_id')} {value}" for column, value in named.items() if value is not None)
        raise BadRequest(f"nobody ever committed an offset of {of}, as far as the lake {lake.path} has read its log")


def first_instant(lake: Lake) -> int | None:
    """When the oldest record in history was appended, ms since the epoch; None where no record says."""
    every = " UNION ALL ".join(f"SELECT min(log_timestamp) AS at FROM {table}" for table in TIMED)  # noqa: S608
    found: int | None = lake.query(f"SELECT min(at) AS at FROM ({every})", *TIMED)["at"][0].as_py()  # noqa: S608
    return found


def quoted(value: str) -> str:
    """Write a text as SQL does."""
    return "'" + value.replace("'", "''") + "'"


def _where(wanted: Mapping[str, str | None]) -> str:
    conditions = [f"{column} = {quoted(value)}" for column, value in wanted.items() if value is not None]
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""


def _limit(limit: int | None) -> str:
    return "" if limit is None else f"LIMIT {limit}"
