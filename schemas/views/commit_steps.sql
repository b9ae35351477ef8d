-- Every commit and tombstone that took effect, with the value in force before it: the basis for changes, rates and
-- stalls.
--
-- The steps of an offset are in the order in which they took effect. A commit never took effect if a newer commit was
-- in force when it was decided, or if a newer commit of the same offset took effect together with it.
--
--   group_id             consumer group
--   topic                topic of the offset
--   partition            partition of that topic
--   log_partition        partition of the log topic
--   log_offset           log offset of the record
--   effective_log_offset log offset at which it took effect
--   effective_timestamp  when it took effect, in ms since the epoch; null if the log has no timestamps
--   kind                 commit or tombstone
--   old_offset           the offset in force before; null if there was none
--   new_offset           the offset in force afterwards; null if there is none
--   old_log_offset       log offset of the preceding step of the offset; null if history has none
--   producer_id          id of the transactional producer; null for a commit without a transaction
--
-- worst first: log_partition, effective_log_offset DESC, log_offset DESC
-- since: effective_timestamp
-- least important: old_log_offset, producer_id, effective_log_offset, log_partition, log_offset
-- outcomes in this order: log_partition, effective_log_offset DESC, log_offset DESC
-- by log partition
WITH
placed AS (
  SELECT group_id, topic, partition, log_partition, log_offset, effective_log_offset, effective_timestamp, kind,
    committed_offset, producer_id, max(log_offset) OVER (
      PARTITION BY log_partition, group_id, topic, partition ORDER BY effective_log_offset, log_offset DESC
      ROWS UNBOUNDED PRECEDING
    ) AS newest
  FROM commit_outcomes WHERE effective_log_offset IS NOT NULL
)
SELECT group_id, topic, partition, log_partition, log_offset, effective_log_offset, effective_timestamp, kind,
  lag(committed_offset) OVER one_key AS old_offset, committed_offset AS new_offset,
  lag(log_offset) OVER one_key AS old_log_offset, producer_id
FROM placed WHERE log_offset = newest
WINDOW one_key AS (
  PARTITION BY log_partition, group_id, topic, partition ORDER BY effective_log_offset, log_offset DESC
)
