-- Every commit and tombstone that took effect, beside the value in force before it: what changes, rates and stalls are
-- read off.
--
-- In the order in which they took effect in the log, one at a time of each offset: a commit that a newer one had overtaken
-- when it came to count, or that counts together with a newer one of its transaction, never took effect.
--
--   group_id             consumer group
--   topic                topic the offset is of
--   partition            partition of that topic
--   log_partition        partition of the log topic
--   log_offset           where the record stands in it
--   effective_log_offset log offset from which on it counted
--   effective_timestamp  when that was, ms since the epoch; null: the log does not say
--   kind                 commit or tombstone
--   old_offset           the offset in force before; null: none
--   new_offset           the offset in force from then on; null: none
--   old_log_offset       where the record before it of the key stands; null: history has none
--   producer_id          transactional producer; null: none
--
-- worst first: log_partition, effective_log_offset DESC, log_offset DESC
-- since: effective_timestamp
-- least important: old_log_offset, producer_id, effective_log_offset, log_partition, log_offset
-- by log partition
WITH
placed AS (
  SELECT group_id, topic, partition, log_partition, log_offset, effective_log_offset, effective_timestamp, kind,
    committed_offset, producer_id, max(log_offset) OVER (
      PARTITION BY group_id, topic, partition ORDER BY effective_log_offset, log_offset DESC ROWS UNBOUNDED PRECEDING
    ) AS newest
  FROM commit_outcomes WHERE effective_log_offset IS NOT NULL
)
SELECT group_id, topic, partition, log_partition, log_offset, effective_log_offset, effective_timestamp, kind,
  lag(committed_offset) OVER one_key AS old_offset, committed_offset AS new_offset,
  lag(log_offset) OVER one_key AS old_log_offset, producer_id
FROM placed WHERE log_offset = newest
WINDOW one_key AS (PARTITION BY group_id, topic, partition ORDER BY effective_log_offset, log_offset DESC)
