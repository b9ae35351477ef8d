-- Which transactions are open, since when, and which groups' offsets wait for their end: the oldest first.
--
-- What waits cannot expire nor be changed by hand, and the log cannot be cut behind the first of it.
--
--   producer_id      producer whose transaction is open
--   log_partition    partition of the log topic
--   first_log_offset the first record of it that still matters
--   first_timestamp  when that was appended, ms since the epoch; null: the log does not say
--   age_ms           from then to the newest record the lake has read
--   group_id         consumer group: a row for each that waits
--   topics           of how many topics
--   offsets          how many offsets of that group wait
--
-- worst first: age_ms DESC, producer_id, log_partition, group_id
-- since: first_timestamp
-- least important: first_log_offset, log_partition, first_timestamp
SELECT waiting.producer_id, waiting.log_partition, waiting.first_log_offset, waiting.first_timestamp,
  log_clock.clock_timestamp - waiting.first_timestamp AS age_ms, waiting.group_id, waiting.topics, waiting.offsets
FROM (
  SELECT producer_id, log_partition, group_id, min(log_offset) AS first_log_offset,
    min(log_timestamp) AS first_timestamp, count(DISTINCT topic) AS topics, count(*) AS offsets
  FROM pending_offsets WHERE producer_id IS NOT NULL
  GROUP BY producer_id, log_partition, group_id
) AS waiting
CROSS JOIN log_clock
