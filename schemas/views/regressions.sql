-- Which offsets went back without a decision that explains it, how often and how far: records were consumed again.
--
-- Each regression is a `rewind` of the view `changes`, which describes the rules: it is not a reset, neither by a run
-- of offsetlake nor while the group had no members.
--
--   group_id        consumer group
--   topic           topic of the offset
--   partition       partition of that topic
--   regressions     number of regressions
--   records_again   sum of the distances
--   farthest        largest distance
--   last_timestamp  when the last regression was, in ms since the epoch; null if the log has no timestamps
--   log_partition   partition of the log topic
--   last_log_offset log offset of that commit
--
-- worst first: records_again DESC, group_id, topic, partition
-- since: last_timestamp
-- least important: last_log_offset, log_partition, farthest
-- by log partition
SELECT group_id, topic, partition, count(*) AS regressions, sum(-difference) AS records_again,
  max(-difference) AS farthest, max(effective_timestamp) AS last_timestamp, log_partition,
  max(log_offset) AS last_log_offset
FROM changes WHERE change = 'rewind'
GROUP BY group_id, topic, partition, log_partition
