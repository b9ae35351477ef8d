-- Every step except routine commits: the basis for rewinds, turns of writers and stalls.
--
-- A commit is routine if it and the commits of its key directly before and after it, which the same task read from the
-- log, increase or repeat the offset. Its step cannot be a rewind or a deletion, and none begins or ends there. So the
-- rows are few if an offset is committed often between two runs of `ingest`. The steps are in the order of
-- `commit_steps`, of which these are some. A step before which a routine commit was omitted has repeats.
--
-- Only a commit in a transaction or in parts can take effect after a newer one, and is then omitted. Steps are compared
-- in windows by group, because windows by offset, of a few rows each, take longer.
--
--   group_id             consumer group
--   topic                topic of the offset
--   partition            partition of that topic
--   log_partition        partition of the log topic
--   log_offset           log offset of the record
--   effective_log_offset log offset at which it took effect
--   effective_timestamp  when it took effect, in ms since the epoch; null if the log has no timestamps
--   kind                 commit or tombstone
--   old_offset           the offset in force before; null if there was none, or a lower one that this view omits
--   new_offset           the offset in force afterwards; null if there is none
--   repeats              how many commits of the key directly before it are known to have the same offset; 0 if the one
--                        before has a lower offset; null if neither is known
--   producer_id          id of the transactional producer; null for a commit without a transaction
--
-- worst first: log_partition, effective_log_offset DESC, log_offset DESC
-- since: effective_timestamp
-- least important: repeats, producer_id, effective_log_offset, log_partition, log_offset
-- by log partition
WITH
placed AS (
  SELECT group_id, topic, partition, log_partition, log_offset, log_offset AS effective_log_offset,
    log_timestamp AS effective_timestamp, kind, committed_offset, repeats, producer_id
  FROM offset_commits WHERE producer_id IS NULL AND commit_id IS NULL AND routine IS NOT TRUE
  UNION ALL
  SELECT group_id, topic, partition, log_partition, log_offset, effective_log_offset, effective_timestamp, kind,
    committed_offset, repeats, producer_id
  FROM (
    SELECT *, max(log_offset) OVER (
      PARTITION BY log_partition, group_id, topic, partition ORDER BY effective_log_offset, log_offset DESC
      ROWS UNBOUNDED PRECEDING
    ) AS newest
    FROM commit_outcomes
    WHERE effective_log_offset IS NOT NULL AND NOT routine AND group_id IN (
      SELECT group_id FROM offset_commits
      WHERE (producer_id IS NOT NULL OR commit_id IS NOT NULL) AND routine IS NOT TRUE
    )
  ) AS of_groups
  WHERE log_offset = newest AND (producer_id IS NOT NULL OR commit_id IS NOT NULL)
),
compared AS (
  SELECT *, lag(topic) OVER one_group AS old_topic, lag(partition) OVER one_group AS old_partition,
    lag(committed_offset) OVER one_group AS last_offset
  FROM placed
  WINDOW one_group AS (
    PARTITION BY log_partition, group_id ORDER BY topic, partition, effective_log_offset, log_offset DESC
  )
)
SELECT group_id, topic, partition, log_partition, log_offset, effective_log_offset, effective_timestamp, kind,
  CASE
    WHEN repeats IS NULL AND old_topic = topic AND old_partition = partition THEN last_offset
    WHEN repeats > 0 THEN committed_offset
  END AS old_offset,
  committed_offset AS new_offset, repeats, producer_id
FROM compared
