-- The commits and tombstones of one key, newest first. {key} is the condition for the key, on the rows of {source};
-- {lacking} are columns that an older lake lacks; {audit_events} is where the audit events are read from; {rows} is a
-- condition on the result; {limit} is a LIMIT or empty.
--
-- next_end: the marker that ended a transactional record, which is the first marker of its producer after the record.
-- complete: the last part of a complete commit in parts, by the rule of `incomplete` in rules/reduction.py.
-- in_force: the log offset of the value in force when a record was appended. That is the highest log offset among the
--   records applied by then: plain commits and tombstones by themselves, transactional commits by their marker, parts by
--   the last part of their commit.
-- events_before: the nearest audit event at or before each record. It may be of other records: last_log_offset decides.
WITH
commits AS (SELECT *{lacking} FROM offset_commits),
records AS (SELECT *{lacking} FROM {source} WHERE {key}),
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
events_before AS (
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
SELECT * FROM (
  SELECT compared.log_partition, compared.log_offset, compared.log_timestamp, CASE
      WHEN kind = 'tombstone' THEN 'tombstone'
      WHEN difference < 0 AND (outcome IS NULL OR outcome = 'committed') THEN 'reset_back'
      ELSE 'commit'
    END AS event,
    committed_offset, previous_offset, difference, leader_epoch, metadata, commit_timestamp, producer_id, outcome,
    events.what, events.principal, events.client_id, events.address
  FROM compared
  JOIN events_before
    ON events_before.log_partition = compared.log_partition AND events_before.log_offset = compared.log_offset
  LEFT JOIN {audit_events} AS events
    ON events.log_partition = events_before.log_partition AND events.log_offset = events_before.audit_offset
    AND events.last_log_offset >= compared.log_offset
) WHERE {rows} ORDER BY log_partition, log_offset DESC {limit}
