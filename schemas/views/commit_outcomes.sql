-- Every commit and tombstone ever read, and its outcome: the basis of the other views of history.
--
-- A record takes effect at its effective_log_offset: a plain commit and a tombstone at once; a transactional commit at
-- the next marker of its producer, if that is COMMIT (matched by the producer id alone); a part of a commit in parts at
-- the last part. Timestamps do not matter.
--
--   group_id             consumer group
--   topic                topic of the offset
--   partition            partition of that topic
--   log_partition        partition of the log topic
--   log_offset           log offset of the record
--   log_timestamp        when it was appended, in ms since the epoch; null if the log has no timestamps
--   kind                 commit or tombstone
--   committed_offset     the committed offset; null in a tombstone
--   leader_epoch         leader epoch of the last consumed record; null if unknown
--   metadata             text that the client committed with the offset
--   commit_timestamp     when the offset was committed, in ms since the epoch
--   producer_id          id of the transactional producer; null for a commit without a transaction
--   commit_id            id of the commit in parts that the record is a part of; null for other records
--   outcome              committed, aborted or open: outcome of its transaction; partial: part of an incomplete commit
--                        in parts; null for other records
--   effective_log_offset log offset at which it took effect; null if it has not
--   effective_timestamp  when it took effect, in ms since the epoch; null if it has not, or if the log has no
--                        timestamps
--   repeats              how many commits of the key directly before it are known to have the same offset; 0 if the one
--                        before has a lower offset; null if neither is known
--   routine              whether the commit and those of the key directly before and after it are known to increase or
--                        to repeat the offset
--
-- worst first: log_partition, log_offset DESC
-- since: log_timestamp
-- least important: routine, repeats, commit_id, leader_epoch, metadata, commit_timestamp, effective_timestamp, effective_log_offset, producer_id, log_partition, log_offset
-- outcomes in this order: log_partition, log_offset DESC
-- by log partition
WITH
next_markers AS (
  SELECT log_partition, log_offset, min(marker_offset) OVER (
    PARTITION BY log_partition, producer_id ORDER BY log_offset DESC ROWS UNBOUNDED PRECEDING
  ) AS marker_offset
  FROM (
    SELECT log_partition, producer_id, log_offset, CAST(NULL AS BIGINT) AS marker_offset
    FROM offset_commits WHERE producer_id IS NOT NULL
    UNION ALL
    SELECT log_partition, producer_id, log_offset, log_offset AS marker_offset FROM transaction_markers
  ) AS positions
),
part_runs AS (
  SELECT log_partition, log_offset, log_timestamp, commit_id, commit_size, log_offset - row_number() OVER (
    PARTITION BY log_partition, commit_id, commit_size ORDER BY log_offset
  ) AS part_run
  FROM offset_commits WHERE commit_id IS NOT NULL
),
placed_parts AS (
  SELECT *,
    log_offset - (log_offset - min(log_offset) OVER one_run) % commit_size AS first_offset,
    max(log_offset) OVER one_run AS last_offset
  FROM part_runs
  WINDOW one_run AS (PARTITION BY log_partition, commit_id, commit_size, part_run)
),
complete_parts AS (
  SELECT log_partition, log_offset, first_offset + commit_size - 1 AS complete_at,
    max(log_timestamp) OVER (PARTITION BY log_partition, first_offset) AS complete_timestamp
  FROM placed_parts WHERE first_offset + commit_size - 1 <= last_offset
)
SELECT group_id, topic, partition, log_partition, log_offset, log_timestamp, kind, committed_offset, leader_epoch,
  metadata, commit_timestamp, producer_id, commit_id, CAST(NULL AS STRING) AS outcome,
  log_offset AS effective_log_offset, log_timestamp AS effective_timestamp,
  repeats, coalesce(routine, FALSE) AS routine
FROM offset_commits WHERE producer_id IS NULL AND commit_id IS NULL
UNION ALL
SELECT records.group_id, records.topic, records.partition, records.log_partition, records.log_offset,
  records.log_timestamp, records.kind, records.committed_offset, records.leader_epoch, records.metadata,
  records.commit_timestamp, records.producer_id, records.commit_id,
  CASE markers.marker WHEN 'COMMIT' THEN 'committed' WHEN 'ABORT' THEN 'aborted' ELSE 'open' END AS outcome,
  CASE
    WHEN records.kind = 'tombstone' THEN records.log_offset
    WHEN markers.marker = 'COMMIT' THEN markers.log_offset
  END AS effective_log_offset,
  CASE
    WHEN records.kind = 'tombstone' THEN records.log_timestamp
    WHEN markers.marker = 'COMMIT' THEN greatest(records.log_timestamp, markers.log_timestamp)
  END AS effective_timestamp,
  records.repeats, FALSE AS routine
FROM offset_commits AS records
JOIN next_markers
  ON next_markers.log_partition = records.log_partition AND next_markers.log_offset = records.log_offset
LEFT JOIN transaction_markers AS markers
  ON markers.log_partition = next_markers.log_partition AND markers.log_offset = next_markers.marker_offset
WHERE records.producer_id IS NOT NULL
UNION ALL
SELECT records.group_id, records.topic, records.partition, records.log_partition, records.log_offset,
  records.log_timestamp, records.kind, records.committed_offset, records.leader_epoch, records.metadata,
  records.commit_timestamp, records.producer_id, records.commit_id,
  CASE WHEN complete_parts.complete_at IS NULL THEN 'partial' END AS outcome,
  complete_parts.complete_at AS effective_log_offset, complete_parts.complete_timestamp AS effective_timestamp,
  records.repeats, FALSE AS routine
FROM offset_commits AS records
LEFT JOIN complete_parts
  ON complete_parts.log_partition = records.log_partition AND complete_parts.log_offset = records.log_offset
WHERE records.commit_id IS NOT NULL
