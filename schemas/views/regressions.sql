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
WITH
rewinds AS (
  SELECT *, CAST(old_offset AS DECIMAL(20)) - CAST(new_offset AS DECIMAL(20)) AS records_again
  FROM turning_points WHERE kind = 'commit' AND repeats IS NULL AND new_offset < old_offset
)
SELECT rewinds.group_id, rewinds.topic, rewinds.partition, count(*) AS regressions,
  sum(rewinds.records_again) AS records_again, max(rewinds.records_again) AS farthest,
  max(rewinds.effective_timestamp) AS last_timestamp, rewinds.log_partition,
  max(rewinds.log_offset) AS last_log_offset
FROM rewinds
LEFT JOIN alterations
  ON alterations.log_partition = rewinds.log_partition AND alterations.log_offset = rewinds.log_offset
  AND alterations.outcome = 'done'
LEFT JOIN empty_periods
  ON empty_periods.log_partition = rewinds.log_partition AND empty_periods.group_id = rewinds.group_id
  AND rewinds.log_offset > empty_periods.from_log_offset
  AND (rewinds.log_offset < empty_periods.to_log_offset OR empty_periods.to_log_offset IS NULL)
WHERE alterations.strategy = 'repair'
  OR (alterations.strategy IS NULL AND (rewinds.producer_id IS NOT NULL OR empty_periods.group_id IS NULL))
GROUP BY rewinds.group_id, rewinds.topic, rewinds.partition, rewinds.log_partition
