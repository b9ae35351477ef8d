-- Which offsets went back with no decision to explain it, how often and how far: records were consumed again.
--
-- Each is a `rewind` of the view `changes`, where its rules are: not a reset, by a run of ours or while the group had no
-- member.
--
--   group_id       consumer group
--   topic          topic the offset is of
--   partition      partition of that topic
--   regressions    how often it went back
--   records_again  by how many offsets in all
--   farthest       by how many at most
--   last_timestamp when it last did, ms since the epoch; null: the log does not say
--   log_partition  partition of the log topic
--   last_log_offset where that commit stands in it
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
