-- Which transactions are open, since when, and which offsets of which groups wait for them, oldest first.
--
-- Offsets that wait cannot expire or be changed by hand, and the log cannot be cut after the first of them.
--
--   producer_id      producer whose transaction is open
--   log_partition    partition of the log topic
--   first_log_offset log offset of its first record that waits
--   first_timestamp  when that record was appended, in ms since the epoch; null if the log has no timestamps
--   age_ms           time from then to the newest record in the lake; null if that timestamp is wrong: before the epoch,
--                    or after the newest record (log_clock)
--   group_id         consumer group; one row for each group that waits
--   topics           number of topics
--   offsets          number of offsets of the group that wait
--
-- worst first: age_ms DESC, producer_id, log_partition, group_id
-- since: first_timestamp
-- least important: first_log_offset, log_partition, first_timestamp
SELECT waiting.producer_id, waiting.log_partition, waiting.first_log_offset,
  coalesce(waiting.plausible_timestamp, waiting.first_timestamp) AS first_timestamp,
  waiting.clock_timestamp - waiting.plausible_timestamp AS age_ms, waiting.group_id, waiting.topics, waiting.offsets
FROM (
  SELECT producer_id, log_partition, group_id, clock_timestamp, min(log_offset) AS first_log_offset,
    min(log_timestamp) AS first_timestamp,
    min(CASE WHEN log_timestamp BETWEEN 0 AND clock_timestamp THEN log_timestamp END) AS plausible_timestamp,
    count(DISTINCT topic) AS topics, count(*) AS offsets
  FROM pending_offsets CROSS JOIN log_clock WHERE producer_id IS NOT NULL
  GROUP BY producer_id, log_partition, group_id, clock_timestamp
) AS waiting
